"""`aesjax submit`: a study in parts, on a cluster or on the devices of this machine"""

import dataclasses
import os
import shlex
import shutil
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from experiments.cli.errors import DONE, INTERRUPTED, WRONG, refusing, say
from experiments.cli.join import join_and_report
from experiments.cli.run import ALL, Run, RunOptions, configured, flat, grouped, typed
from experiments.study.devices import start_jax

if TYPE_CHECKING:
    from experiments.study.cluster import Task
    from experiments.study.parts import StudyPlan


_CLUSTERS = ("slurm", "local")
_OWN = ("partition", "time", "gres", "mem", "cpus", "sbatch")  # what is asked of a cluster
_SET = ("array", "error", "ntasks", "open-mode", "output", "signal", "wrap")  # options of sbatch that are ours
_LEFT = ("resume", "out", "part", "devices", "report")  # options that parts do not receive, or under other names


@dataclass
class OwnOptions:
    """Options of `aesjax submit` alone."""

    cluster: str | None = None
    """slurm, or local: processes on this machine, one per GPU where it has some."""
    parts: int | None = None
    """How many parts."""
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


_ABOUT = """Train a study in parts that do not depend on each other, as one array job of SLURM or on this machine's
devices, and make one study of them. Takes the options of `aesjax run`."""
_TOGETHER = ALL["together"]._replace(default=8)
_RESUME = ALL["resume"]._replace(
    help="Train the parts again that have not ended and that nobody trains; needs --out alone. The given ones of "
    "--partition, --time, --gres, --mem, --cpus and --sbatch replace those given before."
)
_ALLOWED = {name: option for name, option in ALL.items() if name not in ("devices", "part", "dry_run", "config")}
SubmitOptions: Any = grouped(
    "SubmitOptions", _ABOUT, {**_ALLOWED, "together": _TOGETHER, "resume": _RESUME}, more=OwnOptions
)


Submit: Any = dataclasses.make_dataclass(
    "Submit",
    [("together", Any, dataclasses.field(default=_TOGETHER.default))]
    + [(field.name, Any, dataclasses.field(default=field.default)) for field in dataclasses.fields(OwnOptions)],
    bases=(Run,),
)


def execute(parsed: Any) -> int:
    """Write the plan and have its parts trained."""
    from experiments.study import parts, store
    from experiments.study.lock import Owner

    options = flat(parsed, Submit)
    # The parts may be started from another folder.
    paths = {name: getattr(options, name) for name in ("controls_from", "start", "sim_python")}
    options = dataclasses.replace(options, **{n: None if p is None else p.absolute() for n, p in paths.items()})
    with refusing():
        if options.out is None:
            raise ValueError("--out, the folder of the study, is needed")
        start_jax(None, options.compiled)
        out, new = options.out.absolute(), not options.out.exists()
        if options.resume:
            plan = _resumed(options)
        else:
            plan = _planned(options)
            parts.begin(options.out, plan)
        with ExitStack() as stack:
            if new:
                stack.callback(_remove_if_empty, out)
            stack.enter_context(Owner(out))
            numbers = _left(out, plan)
            if plan.cluster["name"] == "slurm":
                try:
                    plan = _to_slurm(out, plan, numbers)
                except ValueError:
                    if not options.resume:
                        shutil.rmtree(out / store.SLURM, ignore_errors=True)
                        (out / store.PLAN).unlink()
                    raise
                parts.write_plan(out, plan)
            else:
                parts.write_plan(out, plan)
                code = _here(options.out, plan, numbers)
                if code is not None:
                    return code
        if plan.cluster["name"] == "local" or all(place.exists() for place in plan.results(out)):
            join_and_report(options.out)
        else:
            print(f"progress:  aesjax status {options.out}")
    return DONE


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _planned(options: Any) -> "StudyPlan":
    from experiments.study.parts import make_plan

    if options.cluster is None or options.parts is None:
        raise ValueError(f"give --cluster ({' or '.join(_CLUSTERS)}) and --parts, how many there shall be")
    asked = _asked(options)
    _check(asked)
    config = configured(options)
    return make_plan(config, options.parts, _words(options), report=options.report, cluster=asked)


def _asked(options: Any) -> dict[str, Any]:
    """Options for the cluster as plain JSON; only those that were typed."""
    given = {name: getattr(options, name) for name in _OWN}
    asked = {name: value for name, value in given.items() if value not in (None, ())}
    if "sbatch" in asked:
        asked["sbatch"] = list(asked["sbatch"])
    from experiments.study.cluster import NOTICE, SHORTEST

    if options.cpus is not None and options.cpus < 1:
        raise ValueError(f"--cpus must be at least 1; got {options.cpus}")
    if options.time is not None and options.time < SHORTEST:
        raise ValueError(
            f"--time must be at least {SHORTEST} minutes, of which a part needs about one to start and the last "
            f"{NOTICE} s for its checkpoint; got {options.time}"
        )
    return {"name": options.cluster, **asked}


def _check(asked: dict[str, Any]) -> None:
    """Refuse what can be known not to work before anything is written."""
    from aesjax.registry import Registry
    from experiments.study.cluster import check_slurm

    Registry("cluster", **{name: name for name in _CLUSTERS})[asked["name"]]
    _parameters(asked)
    if asked["name"] == "slurm":
        check_slurm()


def _words(options: Any) -> list[str]:
    """The options of every part."""
    return typed(options, besides=_LEFT)


def _resumed(options: Any) -> "StudyPlan":
    """The plan in the folder, with what is now asked of the cluster."""
    from envs.bridge.names import PYTHON
    from experiments.study import store
    from experiments.study.parts import read_plan
    from experiments.study.plugins import check_unchanged

    plan = read_plan(options.out)
    alone = _words(options) == _words(Submit(out=options.out))
    if alone and plan.outside:
        raise ValueError("--resume: the study uses objects from outside; type its complete command, with --resume")
    words = flat(tyro.cli(RunOptions, args=list(plan.words))) if alone else options
    if alone and str(words.sim_python) not in ("None", os.environ.get(PYTHON)):
        raise ValueError(f"--resume: the words of {store.PLAN} name another Python than {PYTHON}")
    if options.parts not in (None, plan.parts):
        raise ValueError(f"--resume: the study in {options.out} has {plan.parts} parts, not {options.parts}")
    config = configured(words)
    check_unchanged(plan.config.get("definitions", {}), config.definitions)
    if differing := store.differing_fields(plan.config, config.to_json()):
        raise ValueError(f"--resume: the study in {options.out} is another one ({'; '.join(differing)})")
    asked = {**plan.cluster, **{name: value for name, value in _asked(options).items() if value is not None}}
    _check(asked)
    return dataclasses.replace(plan, cluster=asked, words=plan.words if alone else tuple(_words(options)))


def _left(out: Path, plan: "StudyPlan") -> list[int]:
    """The parts that are to be trained: neither done nor under way."""
    from experiments.study.parts import statuses

    states = {part.number: part.state for part in statuses(out, plan)}
    return [number for number, state in states.items() if state not in ("done", "running", "queued")]


def _parameters(asked: dict[str, Any]) -> dict[str, Any]:
    """Options for SLURM, in submitit's names."""
    for name, value in asked.items():
        if not all(str(text).isprintable() for text in (value if isinstance(value, list) else [value])):
            raise ValueError(f"--{name} must be one line of printable characters; got {value!r}")
    more = {"requeue": True, **({"mem": asked["mem"]} if "mem" in asked else {})}
    for item in asked.get("sbatch", ()):
        name, equals, value = item.lstrip("-").partition("=")
        if not name:
            raise ValueError(f"--sbatch must look like account=mine; got '{item}'")
        if name in _SET:
            raise ValueError(f"--sbatch {name}: aesjax submit sets it, because every part is one task of one array job")
        more[name] = value if equals else True
    named = {name: asked[name] for name in ("partition", "gres") if name in asked}
    time, cpus = asked.get("time", 60), asked.get("cpus", 1)
    if not isinstance(time, int) or not isinstance(cpus, int):  # in a plan that was edited
        raise ValueError(f"the time limit and the cores must be whole numbers; got {time!r} and {cpus!r}")
    return {"job_name": "aesjax", "time": time, "cpus_per_task": cpus, "additional_parameters": more, **named}


def _to_slurm(out: Path, plan: "StudyPlan", numbers: list[int]) -> "StudyPlan":
    """Submit the parts ``numbers`` as one array job; the plan with their jobs."""
    from experiments.study import store
    from experiments.study.cluster import SlurmTask, submit_slurm
    from experiments.study.parts import AESJAX

    if not numbers:
        print("every part is done, queued or under way")
        return plan
    after = (*AESJAX, "join", str(out))
    tasks = [SlurmTask(plan.task(out, number), plan.results(out), after) for number in numbers]
    python = f"{shlex.quote(sys.executable)} -P"  # what lies in the working folder is not taken for our packages
    jobs = submit_slurm(tasks, out / store.SLURM, _parameters(dict(plan.cluster)), python)
    print(f"job {jobs[0].partition('_')[0]}: parts {', '.join(map(str, numbers))} of {plan.parts}")
    return dataclasses.replace(plan, jobs={**plan.jobs, **dict(zip(map(str, numbers), jobs, strict=True))})


def _here(out: Path, plan: "StudyPlan", numbers: list[int]) -> int | None:
    """Train the parts ``numbers`` on this machine; an exit code if that ended before all were done."""
    from envs.physics.host import usable_cores
    from experiments.study.cluster import LOG, run_local
    from experiments.study.devices import visible_gpus
    from experiments.study.stop import StopFlag

    gpus, cores = visible_gpus(), usable_cores()
    places = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus]
    places = places or [{}] * max(1, cores // plan.cluster.get("cpus", 1))
    tasks = [plan.task(out.absolute(), number) for number in numbers]

    def started(task: "Task") -> None:
        print(f"part {task.folder.name} of {plan.parts} begins", flush=True)

    def ended(task: "Task", done: bool) -> None:
        print(f"part {task.folder.name} {'is done' if done else 'has ended before it was done'}", flush=True)

    words = ["aesjax", "submit", "--resume", "--out", str(out), *(plan.words if plan.outside else ())]
    on = f"Continue with:\n  {shlex.join(words)}"
    with StopFlag() as stop:
        left = run_local(tasks, places, asked=lambda: stop.asked, on_start=started, on_end=ended)
    if stop.asked:
        say(f"interrupted; the unfinished parts are saved in their latest checkpoints. {on}")
        return INTERRUPTED
    if left:
        names = ", ".join(task.folder.name for task in left)
        say(f"not done: part {names}; see aesjax status {out} and {left[0].folder / LOG}. {on}")
        return WRONG
    return None
