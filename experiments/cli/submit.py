"""`aesjax submit`, `aesjax status` and `aesjax join`: a study in parts, on a cluster or on this machine"""

import dataclasses
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from experiments.cli.errors import DONE, INTERRUPTED, WRONG, refusing, say
from experiments.cli.run import Methods, Run, Runtime, study_of
from experiments.session.study import Study, in_words
from experiments.study.process import start_jax

if TYPE_CHECKING:
    from experiments.study.slurm import StudyPlan


@dataclass(frozen=True)
class Cluster:
    """Where the parts are trained."""

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


@dataclass(frozen=True)
class Status:
    """Show the parts of a study that `aesjax submit` began: their states, and the last lines of those that failed."""

    directory: tyro.conf.Positional[Path]
    """Folder of the study."""


@dataclass(frozen=True)
class Join:
    """Make one study of the parts that `aesjax submit` had trained; also done at the end of the last part."""

    directory: tyro.conf.Positional[Path]
    """Folder of the study."""
    report: bool = True
    """Write the report, too, if the study was submitted with one."""


@tyro.conf.configure(tyro.conf.OmitArgPrefixes)
@dataclass(frozen=True)
class Submit:
    """Train a study in parts that do not depend on each other, as one array job of SLURM or on this machine's
    devices, and make one study of them. Takes the options of `aesjax run`; with --resume and --out alone it trains
    the parts that have not ended and that nothing trains, and given options of the cluster replace those before."""

    own: Cluster = field(default_factory=Cluster)
    methods: Methods = field(default_factory=Methods)
    study: Study = field(default_factory=Study)
    runtime: Runtime = field(default_factory=Runtime)


_SET = ("array", "error", "ntasks", "open-mode", "output", "signal", "wrap")  # options of sbatch that are ours


def execute(options: Submit) -> int:
    """Write the plan and train its parts, or submit them."""
    from envs.bridge.names import PYTHON
    from experiments.study import slurm
    from experiments.study.folder import Owner

    with refusing():
        own, runtime = options.own, options.runtime
        if runtime.out is None:
            raise ValueError("--out, the folder of the study, is needed")
        if runtime.sim_python is not None:
            os.environ[PYTHON] = str(runtime.sim_python.absolute())
        start_jax(None)
        out = runtime.out.expanduser().absolute()
        typed = None if (options.methods, options.study) == (Methods(), Study()) else _study(options)
        study = typed or _study(options)
        plan = _resumed(out, own, typed) if runtime.resume else _planned(out, own, study, runtime)
        left = [n for n, _, state, *_ in slurm.statuses(plan) if state not in ("done", "running", "queued")]
        out.mkdir(parents=True, exist_ok=True)
        with Owner(out):
            plan.write()
            if plan.cluster["name"] == "local":
                if code := _here(runtime.out, plan, left):
                    return code
            elif left:
                jobs = slurm.submit(plan, left, _parameters(plan.cluster))
                dataclasses.replace(plan, jobs={**plan.jobs, **jobs}).write()
                print(f"job {jobs[str(left[0])].partition('_')[0]}: parts {', '.join(jobs)} of {plan.parts}")
        if plan.cluster["name"] == "slurm" and plan.missing():
            print(f"progress:  aesjax status {runtime.out}")
        else:
            _join(runtime.out)
    return DONE


def _study(options: Submit) -> Study:
    """The study that was typed; its folders are absolute, because parts begin in another one."""
    study = study_of(options)
    paths = {name: Path(path).absolute() for name in ("controls_from", "start") if (path := getattr(study, name))}
    return dataclasses.replace(study, **paths)


def _planned(out: Path, own: Cluster, study: Study, runtime: Runtime) -> "StudyPlan":
    from experiments.study import folder, slurm, store
    from experiments.study.program import counts_of

    if own.cluster is None or own.parts is None:
        raise ValueError("give --cluster (slurm or local) and --parts, the number of parts")
    if out.exists() and (not out.is_dir() or not folder.is_empty(out)):
        hint = "add --resume to go on with its parts, or " if (out / store.PLAN).exists() else ""
        raise ValueError(f"--out {out} is not an empty folder; {hint}choose another one")
    cluster, config = _cluster(own), study.config
    runs = sum(counts_of(config).values())
    if not 1 <= own.parts <= runs:
        raise ValueError(f"the study has {runs} runs, so it divides into 1 to {runs} parts; got {own.parts}")
    words = shlex.split(study.command())[2:]
    plain = vars(Runtime(out=runtime.out, report=runtime.report, sim_python=runtime.sim_python))
    words += in_words({name: value for name, value in vars(runtime).items() if value != plain[name]})
    return slurm.StudyPlan(out, config.to_json(), runs, own.parts, words, runtime.report, not config.objects, cluster)


def _resumed(out: Path, own: Cluster, typed: Study | None) -> "StudyPlan":
    """The plan in the folder with the options of the cluster that are given now."""
    from experiments.study import slurm, store

    plan = slurm.read_plan(out)
    if typed is None and not plan.alone:
        raise ValueError("--resume: the study uses objects from outside; type its complete command, with --resume")
    study = study_of(tyro.cli(Run, args=list(plan.words))) if typed is None else typed
    if own.parts not in (None, plan.parts):
        raise ValueError(f"--resume: the study in {out} has {plan.parts} parts, not {own.parts}")
    if differing := store.differing_fields(plan.config, study.config.to_json()):
        raise ValueError(f"--resume: the study in {out} is another one ({'; '.join(differing)})")
    return dataclasses.replace(plan, cluster=_cluster(own, plan.cluster))


def _cluster(own: Cluster, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
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
    from experiments.study.process import StopFlag, visible_gpus

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
