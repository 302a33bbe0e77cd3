"""`aesjax submit`, `aesjax status` and `aesjax join`: a study in parts, on a cluster or on this machine"""

import dataclasses
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from experiments.cli.errors import DONE, INTERRUPTED, WRONG, refusing, say
from experiments.cli.run import ALL, Run, RunOptions, configured, flat, grouped, typed
from experiments.study.devices import start_jax

if TYPE_CHECKING:
    from experiments.study.slurm import StudyPlan


@dataclass
class OwnOptions:
    """Options of `aesjax submit` alone."""

    cluster: Literal["slurm", "local"] | None = None
    """slurm, or local: processes on this machine, one per GPU where it has some."""
    parts: int | None = None
    """Number of parts."""
    partition: str | None = None
    """SLURM's partition."""
    time: int | None = None
    """Time limit of a part in minutes, by default 60. A part that needs longer is continued in another job."""
    gres: str | None = None
    """Generic resources of a part, such as gpu:1."""
    mem: str | None = None
    """Memory of a part, such as 8G."""
    cpus: int | None = None
    """Cores of a part, by default 1. On this machine as many parts train at a time as it has cores for, or one on each
    of its GPUs."""
    sbatch: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Any other option of sbatch, NAME=VALUE; may be given several times."""


@dataclass
class Status:
    """Show the parts of a study that `aesjax submit` began: their states, and the last lines of those that failed."""

    directory: tyro.conf.Positional[Path]
    """Folder of the study."""


@dataclass
class Join:
    """Make one study of the parts that `aesjax submit` had trained; also done at the end of the last part."""

    directory: tyro.conf.Positional[Path]
    """Folder of the study."""
    report: bool = True
    """Write the report, too, if the study was submitted with one."""


_ABOUT = """Train a study in parts that do not depend on each other, as one array job of SLURM or on this machine's
devices, and make one study of them. Takes the options of `aesjax run`."""
_RESUME = ALL["resume"]._replace(
    help="Train the parts again that have not ended and that nothing trains; needs --out alone. The given ones of "
    "--partition, --time, --gres, --mem, --cpus and --sbatch replace those given before."
)
_ALLOWED = {name: option for name, option in ALL.items() if name not in ("devices", "block", "dry_run", "config")}
SubmitOptions: Any = grouped("SubmitOptions", _ABOUT, {**_ALLOWED, "resume": _RESUME}, more=OwnOptions)
_LEFT = ("resume", "out", "report", "sim_python")  # options that parts do not receive, or in another way
_SET = ("array", "error", "ntasks", "open-mode", "output", "signal", "wrap")  # options of sbatch that are ours


def execute(parsed: Any) -> int:
    """Write the plan and train its parts, or submit them."""
    from envs.bridge.names import PYTHON
    from experiments.study import slurm
    from experiments.study.lock import Owner

    own = parsed.own
    options = flat(parsed, lambda **given: Run(**{n: v for n, v in given.items() if n not in vars(own)}))
    paths = {name: path for name in ("controls_from", "start", "sim_python") if (path := getattr(options, name))}
    options = dataclasses.replace(options, **{name: path.absolute() for name, path in paths.items()})
    with refusing():
        if options.out is None:
            raise ValueError("--out, the folder of the study, is needed")
        if options.sim_python is not None:
            os.environ[PYTHON] = str(options.sim_python)
        start_jax(None, options.compiled)
        out = options.out.absolute()
        plan = _resumed(out, own, options) if options.resume else _planned(out, own, options)
        left = [n for n, _, state, *_ in slurm.statuses(plan) if state not in ("done", "running", "queued")]
        out.mkdir(parents=True, exist_ok=True)
        with Owner(out):
            plan.write()
            if plan.cluster["name"] == "local":
                if code := _here(options.out, plan, left):
                    return code
            elif left:
                jobs = slurm.submit(plan, left, _parameters(plan.cluster))
                dataclasses.replace(plan, jobs={**plan.jobs, **jobs}).write()
                print(f"job {jobs[str(left[0])].partition('_')[0]}: parts {', '.join(jobs)} of {plan.parts}")
        if plan.cluster["name"] == "slurm" and plan.missing():
            print(f"progress:  aesjax status {options.out}")
        else:
            _join(options.out)
    return DONE


def _planned(out: Path, own: OwnOptions, options: Any) -> "StudyPlan":
    from experiments.study import lock, slurm, store
    from experiments.study.arms import runs_of
    from experiments.study.folder import readable

    if own.cluster is None or own.parts is None:
        raise ValueError("give --cluster (slurm or local) and --parts, the number of parts")
    if out.exists() and (not out.is_dir() or not lock.is_empty(out)):
        hint = "add --resume to go on with its parts, or " if (out / store.PLAN).exists() else ""
        raise ValueError(f"--out {options.out} is not an empty folder; {hint}choose another one")
    cluster, config = _cluster(own), configured(options)
    runs = sum(map(len, runs_of(config).values()))
    if not 1 <= own.parts <= runs:
        raise ValueError(f"the study has {runs} runs, so it divides into 1 to {runs} parts; got {own.parts}")
    words, alone = typed(options, besides=_LEFT), readable(config)
    return slurm.StudyPlan(out, config.to_json(), runs, own.parts, words, options.report, alone, cluster)


def _resumed(out: Path, own: OwnOptions, options: Any) -> "StudyPlan":
    """The plan in the folder with the options of the cluster that are given now."""
    from experiments.study import slurm, store

    plan = slurm.read_plan(out)
    words = typed(options, besides=_LEFT)
    if not words:
        if not plan.alone:
            raise ValueError("--resume: the study uses objects from outside; type its complete command, with --resume")
        words = list(plan.words)
        options = flat(tyro.cli(RunOptions, args=words))
    if own.parts not in (None, plan.parts):
        raise ValueError(f"--resume: the study in {out} has {plan.parts} parts, not {own.parts}")
    if differing := store.differing_fields(plan.config, configured(options).to_json()):
        raise ValueError(f"--resume: the study in {out} is another one ({'; '.join(differing)})")
    return dataclasses.replace(plan, words=words, cluster=_cluster(own, plan.cluster))


def _cluster(own: OwnOptions, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options of the cluster, given now or ``before``, checked (ValueError)."""
    from experiments.study import slurm

    given = {n: v for n, v in vars(own).items() if n not in ("cluster", "parts") and v not in (None, ())}
    given |= {"name": own.cluster} if own.cluster else {}
    for name, least in (("cpus", 1), ("time", slurm.SHORTEST)):
        if given.get(name, least) < least:
            raise ValueError(f"--{name} must be at least {least}; got {given[name]}")
    cluster = {**(before or {}), **given}
    _parameters(cluster)
    if cluster["name"] == "slurm":
        slurm.check_slurm()
    return cluster


def _parameters(cluster: Any) -> dict[str, Any]:
    """Options for SLURM in submitit's names (ValueError where one would change the job script)."""
    for name, value in cluster.items():
        if not all(str(text).isprintable() for text in (value if isinstance(value, list | tuple) else [value])):
            raise ValueError(f"--{name} must be one line of printable characters; got {value!r}")
    more = {"requeue": True, **{name: cluster[name] for name in ("partition", "gres", "mem") if name in cluster}}
    for item in cluster.get("sbatch", ()):
        name, equals, value = item.lstrip("-").partition("=")
        if not name or name in _SET:
            raise ValueError(f"--sbatch must look like account=mine, with none of {', '.join(_SET)}; got '{item}'")
        more[name] = value if equals else True
    sizes = {"time": cluster.get("time", 60), "cpus_per_task": cluster.get("cpus", 1)}
    return {"job_name": "aesjax", **sizes, "additional_parameters": more}


def _here(out: Path, plan: "StudyPlan", numbers: list[int]) -> int:
    """Train parts on this machine; the exit code."""
    from envs.physics.host import usable_cores
    from experiments.study import slurm
    from experiments.study.devices import visible_gpus
    from experiments.study.stop import StopFlag

    places = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in visible_gpus()]
    places = places or [{}] * max(1, usable_cores() // plan.cluster.get("cpus", 1))
    with StopFlag() as stop:
        left = slurm.train_here(plan, numbers, places, lambda: stop.asked)
    words = shlex.join(["aesjax", "submit", "--resume", "--out", str(out), *(() if plan.alone else plan.words)])
    if stop.asked and left:
        say(f"interrupted; the unfinished parts are saved in their latest checkpoints. Continue with:\n  {words}")
        return INTERRUPTED
    if left:
        names = ", ".join(map(str, left))
        say(f"not done: part {names}; see aesjax status {out}. Continue with:\n  {words}")
        return WRONG
    return DONE


def status(options: Status) -> int:
    """Print a line for each part, then the last lines of those that have to be trained again."""
    from experiments.study import slurm, store

    with refusing():
        plan = slurm.read_plan(options.directory)
        parts = slurm.statuses(plan)
    joined = (options.directory / store.MANIFEST).exists()
    done = sum(part.state == "done" for part in parts)
    print(
        f"{options.directory}: {plan.runs} runs in {plan.parts} parts on {plan.cluster['name']}, {done} done"
        f"{', joined' if joined else ''}"
    )
    width = max(len(part.state) for part in parts)
    for part in parts:
        more = f"  {part.diverged} diverged" if part.diverged else ""
        more += f"  job {part.job}" if part.job else ""
        print(f"  part {part.number}  {part.state:<{width}}  {part.runs} runs{more}")
    standing = [part for part in parts if part.state.startswith(("failed", "interrupted", "lost"))]
    for part in standing:
        print(f"part {part.number}, the last lines of {part.log}:")
        print(*(f"  | {line}" for line in part.last), sep="\n")
    if standing:
        own = "" if plan.alone else " and the options of the study"
        print(f"train them again:  aesjax submit --resume --out {options.directory}{own}")
    elif done == plan.parts and not joined:
        print(f"make one study of them:  aesjax join {options.directory}")
    return DONE


def join(options: Join) -> int:
    """Join, and write the report."""
    with refusing():
        _join(options.directory, report=options.report)
    return DONE


def _join(directory: Path, *, report: bool = True) -> None:
    """Join the parts unless that was done, and write the report if the study was submitted with one."""
    from experiments.report import write_report
    from experiments.study import slurm

    plan, new = slurm.join(directory)
    print(f"study: {directory} ({plan.parts} parts{'' if new else ', joined before'})", flush=True)
    if new and report and plan.report:
        print(f"report: {write_report(directory)}")
