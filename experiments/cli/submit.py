"""`aesjax submit`, `aesjax status` and `aesjax join`: a study in parts on a SLURM cluster"""

import dataclasses
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from experiments.cli.errors import DONE, refusing
from experiments.cli.run import Methods, Runtime, study_of
from experiments.session.study import Study, flag, in_words
from experiments.study.process import start_jax

if TYPE_CHECKING:
    from experiments.study.slurm import StudyPlan


@dataclass(frozen=True)
class Cluster:
    """The jobs that train the parts."""

    parts: int | None = None
    """Number of parts, each one job of the array."""
    partition: str | None = None
    """SLURM's partition."""
    time: int | None = None
    """Time limit of a part in minutes, by default 60. A part that needs longer is continued in another job."""
    gres: str | None = None
    """Generic resources of a part, such as gpu:1."""
    mem: str | None = None
    """Memory of a part, such as 8G."""
    cpus: int | None = None
    """Cores of a part, by default 1."""
    sbatch: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Any other option of sbatch, NAME=VALUE; may be repeated."""


@dataclass(frozen=True)
class Status:
    """Show the parts of a study that `aesjax submit` began: their states, and the last output of failed parts."""

    directory: tyro.conf.Positional[Path]
    """Folder of the study."""


@dataclass(frozen=True)
class Join:
    """Join the parts that `aesjax submit` trained into one study; also done automatically after the last part."""

    directory: tyro.conf.Positional[Path]
    """Folder of the study."""
    report: bool = True
    """Also write the report, if the study was submitted with one."""


@tyro.conf.configure(tyro.conf.OmitArgPrefixes)
@dataclass(frozen=True)
class Submit:
    """Train a study in independent parts, as one array job of SLURM, and join them into one study. Takes the options
    of `aesjax run` except --dry-run, --devices and --tensorboard. With --resume and --out alone it resubmits unfinished
    parts without a running job; options of the jobs replace the earlier options."""

    cluster: Cluster = field(default_factory=Cluster)
    methods: Methods = field(default_factory=Methods)
    study: Study = field(default_factory=Study)
    runtime: Runtime = field(default_factory=Runtime)


def execute(options: Submit) -> int:
    """Write the plan and submit its parts."""
    from experiments.study import slurm
    from experiments.study.folder import Owner

    with refusing():
        out = options.runtime.out
        if out is None:
            raise ValueError("--out, the folder of the study, is needed")
        _check_runtime(options.runtime)
        slurm.check_slurm()
        out = out.absolute()
        plan = _resumed(out, options) if options.runtime.resume else _planned(out, options)
        left = [part.number for part in slurm.statuses(plan) if part.standing]
        out.mkdir(parents=True, exist_ok=True)
        with Owner(out):
            plan.write()
            if left:
                jobs = slurm.submit(plan, left)
                dataclasses.replace(plan, jobs={**plan.jobs, **jobs}).write()
                print(f"job {jobs[str(left[0])].partition('_')[0]}: parts {', '.join(jobs)} of {plan.parts}")
        print(f"progress:  aesjax status {options.runtime.out}")
    return DONE


def _check_runtime(runtime: Runtime) -> None:
    """Raise for a runtime option of one process, which independent jobs cannot have."""
    other = {
        "dry_run": "estimate the study with aesjax run --dry-run",
        "devices": "give the cores of a job by --cpus",
        "tensorboard": "write the events of the joined study with aesjax report --tensorboard",
    }
    for name, advice in other.items():
        value = getattr(runtime, name)
        if value != getattr(Runtime(), name):
            raise ValueError(f"--{flag(name)} is no option of aesjax submit, got {value}; {advice}")


def _planned(out: Path, options: Submit) -> "StudyPlan":
    from envs.bridge.names import PYTHON
    from experiments.study import folder, slurm, store
    from experiments.study.program import plan_of

    runtime, parts = options.runtime, options.cluster.parts
    if out.exists() and (not out.is_dir() or not folder.is_empty(out)):
        hint = "add --resume to continue its parts, or " if (out / store.PLAN).exists() else ""
        raise ValueError(f"--out {out} is not an empty folder; {hint}choose another one")
    if runtime.sim_python is not None:
        os.environ[PYTHON] = str(runtime.sim_python.absolute())  # jobs inherit it
    start_jax(None)
    study = study_of(options)
    paths = {name: Path(path).absolute() for name in ("controls_from", "start") if (path := getattr(study, name))}
    study = dataclasses.replace(study, **paths)  # jobs start in another folder
    plan = plan_of(study)
    runs = sum(len(share.keys) for share in plan.shares.values())
    if parts is None or not 1 <= parts <= runs:
        raise ValueError(f"--parts: the study has {runs} runs, so it divides into 1 to {runs} parts; got {parts}")
    command = study.command_or_none(plan.config)
    text = "" if command else study.to_toml()  # methods that differ between carriers
    words = ["--config", str(out / store.STUDY)] if text else shlex.split(command)[2:]
    plain = vars(Runtime(out=runtime.out, report=runtime.report, sim_python=runtime.sim_python))
    words += in_words({name: value for name, value in vars(runtime).items() if value != plain[name]})
    job = _job(options.cluster, {"job_name": "aesjax", "time": 60, "additional_parameters": {"requeue": True}})
    return slurm.StudyPlan(out, plan.config.to_json(), runs, parts, words, runtime.report, job, study=text)


def _resumed(out: Path, options: Submit) -> "StudyPlan":
    """Stored plan with the given options of the jobs."""
    from experiments.study import slurm

    if (options.methods, options.study, options.cluster.parts) != (Methods(), Study(), None):
        raise ValueError("--resume continues the study in --out; leave out its options and --parts")
    plan = slurm.read_plan(out)
    return dataclasses.replace(plan, job=_job(options.cluster, plan.job))


def _job(cluster: Cluster, before: Any) -> dict[str, Any]:
    """Parameters of submitit's executor: ``before``, updated by the given options; ValueError for invalid ones."""
    from experiments.study.slurm import SHORTEST

    if cluster.time is not None and cluster.time < SHORTEST:
        raise ValueError(f"--time must be at least {SHORTEST} minutes; got {cluster.time}")
    more = {name: value for name in ("partition", "gres", "mem") if (value := getattr(cluster, name)) is not None}
    for item in cluster.sbatch:
        name, equals, value = item.lstrip("-").partition("=")
        if not name:
            raise ValueError(f"--sbatch must look like account=mine; got '{item}'")
        more[name] = value if equals else True
    sizes = {name: value for name, value in (("time", cluster.time), ("cpus_per_task", cluster.cpus)) if value}
    return {**before, **sizes, "additional_parameters": {**before["additional_parameters"], **more}}


def status(options: Status) -> int:
    """Print a line for each part, then the last output of failed parts."""
    from experiments.study import slurm, store

    with refusing():
        plan = slurm.read_plan(options.directory)
        parts = slurm.statuses(plan)
    joined, done = (options.directory / store.MANIFEST).exists(), sum(part.state == "done" for part in parts)
    print(f"{options.directory}: {plan.runs} runs in {plan.parts} parts, {done} done{', joined' if joined else ''}")
    for part in parts:
        more = f"  {part.diverged} diverged" if part.diverged else ""
        more += f"  job {part.job}" if part.job else ""
        print(f"  part {part.number}  {part.state:<{max(len(each.state) for each in parts)}}  {part.runs} runs{more}")
    for part in parts:
        if part.last:
            print(f"part {part.number}, the last lines of job {part.job}:")
            print(*(f"  | {line}" for line in part.last), sep="\n")
    if any(part.standing for part in parts):
        print(f"train the others:  aesjax submit --resume --out {options.directory}")
    elif done == plan.parts and not joined:
        print(f"make one study of them:  aesjax join {options.directory}")
    return DONE


def join(options: Join) -> int:
    """Join the parts if necessary, and write the report if the study was submitted with one."""
    from experiments.report import write_report
    from experiments.study import slurm

    with refusing():
        plan, new = slurm.join(options.directory)
        print(f"study: {options.directory} ({plan.parts} parts{'' if new else ', joined before'})", flush=True)
        if new and options.report and plan.report:
            print(f"report: {write_report(options.directory)}")
    return DONE
