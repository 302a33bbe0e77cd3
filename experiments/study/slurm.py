"""A study in parts: blocks of its runs, each trained by `aesjax run` in a job of one SLURM array.

The folder of the study has `plan.json`, the results in `parts/K`, and submitit's files in `slurm`, with the output of
the jobs; also `study.toml` if options cannot express the study. After the last part, `join` writes the files of the
complete study into the folder.
"""

import dataclasses
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from experiments.study import store
from experiments.study.folder import Owner, clean
from experiments.study.parts import join_parts
from experiments.study.process import check_numerics
from experiments.study.store import Results, check_folder, open_results

SHORTEST = 3  # minutes of a job: for its start and for the warning signal
_NOTICE = 90  # seconds before its end at which SLURM signals a job
_POLL = 0.2  # seconds
_LAST_CHECKPOINT = 60.0  # seconds for a part's last checkpoint
_INTERRUPTED = 130  # exit code of a training that ended at a checkpoint
_LINGER = 600.0  # seconds
_MOST_TIME_OUTS = 1000
_FORMAT = 4
_LAST_LINES = 5
_ACTIVE = ("PENDING", "RUNNING", "REQUEUED", "COMPLETING", "CONFIGURING", "SUSPENDED")  # states of SLURM
#: `aesjax` with this Python; -P: modules in the working folder do not hide our packages.
_AESJAX = (sys.executable, "-P", "-c", "from experiments.cli import entry; entry()")


@dataclasses.dataclass(frozen=True)
class StudyPlan:
    """A study and its parts, counted from 1: the contents of `plan.json`."""

    directory: Path  # of the study, absolute, on a shared file system; not stored
    config: Mapping[str, Any]  # of the complete study, as its config.json
    runs: int  # of the complete study
    parts: int
    words: Sequence[str]  # arguments of `aesjax run` in every part, besides its block and its folder
    report: bool  # write a report when the parts are joined
    job: Mapping[str, Any]  # parameters of `submitit.SlurmExecutor`
    jobs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # part -> its newest SLURM job
    study: str = ""  # as TOML, if ``words`` name the file that `write` makes of it; not stored

    def write(self) -> None:
        if self.study:
            store.write_text(self.directory / store.STUDY, self.study)
        data = {name: value for name, value in vars(self).items() if name not in ("directory", "study")}
        store.write_json(self.directory / store.PLAN, {"format": _FORMAT, **data})

    def block(self, number: int) -> tuple[int, int]:
        """First and last run of a part, counted from 1."""
        return (number - 1) * self.runs // self.parts + 1, number * self.runs // self.parts

    def part_config(self, number: int) -> dict[str, Any]:
        """The configuration of a part as JSON."""
        return {**self.config, "block": list(self.block(number))}

    def place(self, number: int) -> Path:
        """The folder of a part's results."""
        return self.directory / store.PARTS / str(number)

    def missing(self) -> list[int]:
        """Unfinished parts."""
        return [n for n in range(1, self.parts + 1) if not (self.place(n) / store.MANIFEST).exists()]


def read_plan(directory: Path) -> StudyPlan:
    """The plan of the study in ``directory``; ValueError if it is missing or damaged."""
    path = directory / store.PLAN
    if not path.exists():
        raise ValueError(f"{directory} holds no study in parts: {store.PLAN} is missing")
    data = store.read_json(path)
    try:
        if data.pop("format") != _FORMAT:
            raise ValueError("it was written by another version")
        return StudyPlan(directory, **data)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from None


class SlurmPart:
    """A job of submitit, which trains one part and, after the last part, joins the study."""

    def __init__(self, directory: Path, number: int):
        self.directory, self.number = directory, number
        self._process: subprocess.Popen | None = None

    def __call__(self) -> None:
        """Train or continue the part; RuntimeError, which SLURM records, if the training fails."""
        plan = read_plan(self.directory)
        place, block = plan.place(self.number), ":".join(map(str, plan.block(self.number)))
        words = ["run", *plan.words, "--devices", "1", "--no-report", "--block", block, "--out", str(place)]
        words += ["--resume"] if (place / store.CONFIG).exists() else []
        print(f"aesjax {shlex.join(words)}", flush=True)
        # Blocked, because SLURM signals all processes of a job and the signal's default action ends them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        self._process = subprocess.Popen([*_AESJAX, *words], stderr=subprocess.STDOUT)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        while (code := self._process.poll()) is None:  # `wait` would hold a lock that `checkpoint` needs
            time.sleep(_POLL)
        missing = plan.missing()
        if self.number in missing:
            if code == _INTERRUPTED:  # wait until SLURM kills the job: a job that exits is not requeued
                time.sleep(_LINGER)
            raise RuntimeError(f"part {self.number} has not ended: exit code {code}")
        if not missing:
            subprocess.run([*_AESJAX, "join", str(self.directory)], check=False)

    def checkpoint(self) -> Any:
        """Checkpoint and requeue (time limit or pre-emption)."""
        from submitit.helpers import DelayedSubmission

        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LAST_CHECKPOINT)
        return DelayedSubmission(SlurmPart(self.directory, self.number))


def check_slurm() -> None:
    """Raise a ValueError if submitit or SLURM is missing."""
    if find_spec("submitit") is None or not (shutil.which("sbatch") and shutil.which("srun")):
        raise ValueError("aesjax submit needs submitit (pip install '.[cluster]' in a clone), sbatch and srun")


def submit(plan: StudyPlan, numbers: Sequence[int]) -> dict[str, str]:
    """Submit parts as one array job; returns part -> job. ValueError with SLURM's message if SLURM rejects it."""
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    python = f"{shlex.quote(sys.executable)} -P"
    executor = submitit.SlurmExecutor(plan.directory / store.SLURM, max_num_timeout=_MOST_TIME_OUTS, python=python)
    executor.update_parameters(signal_delay_s=_NOTICE, array_parallelism=len(numbers), **plan.job)
    try:
        jobs = executor.submit_array([SlurmPart(plan.directory, number) for number in numbers])
    except (FailedJobError, FailedSubmissionError) as error:
        again = f"correct the options: aesjax submit --resume --out {plan.directory}"
        raise ValueError(f"sbatch rejected the job: {store.reason(error)}; {again}") from None
    return {str(number): str(job.job_id) for number, job in zip(numbers, jobs, strict=True)}


class PartStatus(NamedTuple):
    """State of one part, from its folder and SLURM."""

    number: int
    runs: int
    state: str  # "done", "waiting" without a job, else SLURM's own: RUNNING, OUT_OF_MEMORY, TIMEOUT, ...
    job: str  # its newest job, or ""
    diverged: int  # runs
    last: Sequence[str]  # last lines of the job's output and errors, if the part failed

    @property
    def standing(self) -> bool:
        """Whether the part is unfinished and no job trains it."""
        return self.state not in ("done", *_ACTIVE)


def statuses(plan: StudyPlan) -> list[PartStatus]:
    """States of all parts, in order; checksums are only verified by `join`."""
    import submitit

    jobs = {number: submitit.SlurmJob(plan.directory / store.SLURM, job) for number, job in plan.jobs.items()}
    missing, parts = plan.missing(), []
    for number in range(1, plan.parts + 1):
        first, last = plan.block(number)
        job = jobs.get(str(number))
        part = PartStatus(number, last - first + 1, "done", str(job.job_id) if job else "", 0, ())
        if number not in missing:
            runs = store.read_json(plan.place(number) / store.MANIFEST).get("runs", ())
            part = part._replace(diverged=sum(run["status"] == "diverged" for run in runs))
        elif job is None:
            part = part._replace(state="waiting")
        else:
            part = part._replace(state=job.state.split()[0])
            files = (job.paths.stdout, job.paths.stderr) if part.standing else ()
            part = part._replace(last=[line for path in files for line in _last_lines(path)])
        parts.append(part)
    return parts


def _last_lines(log: Path) -> list[str]:
    """Last printable lines of a log; empty without a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return ["".join(filter(str.isprintable, line)) for line in lines if line.strip()][-_LAST_LINES:]


def join(directory: Path) -> tuple[StudyPlan, bool]:
    """Join the parts in ``directory`` into one study; returns the plan and whether the parts were joined now.

    Parts are not changed; agents are linked instead of copied if the file system supports links.

    Raises:
      ValueError: a part is unfinished, damaged or of another study; nothing is written.
    """
    plan = read_plan(directory)
    with Owner(directory):
        if (directory / store.MANIFEST).exists():
            return plan, False
        if left := plan.missing():
            named = ", ".join(map(str, left[:20])) + (", ..." if len(left) > 20 else "")
            raise ValueError(
                f"{directory} cannot be joined: {len(left)} of its {plan.parts} parts have not ended ({named}); "
                f"see aesjax status {directory}"
            )
        parts = [_opened(plan, 1)]
        parts += [_opened(plan, number, parts[0]) for number in range(2, plan.parts + 1)]
        clean(directory)
        command = shlex.join(["aesjax", "run", *plan.words, "--out", "DIR"])
        join_parts(directory, plan.config, parts, command)
    return plan, True


def _opened(plan: StudyPlan, number: int, first: Results | None = None) -> Results:
    """Open a part after verifying its configuration, its checksums, and that its numerics are those of the first."""
    place = plan.place(number)
    try:
        part = open_results(place)
        check_folder(place, place)
        if differing := store.differing_fields(plan.part_config(number), part.config):
            raise ValueError(f"{place} is not part {number} of this study ({'; '.join(differing)})")
        check_numerics(place, part.manifest, (first or part).manifest.get("numerics", {}))
    except ValueError as error:
        remedy = f"remove {place} and train it again: aesjax submit --resume --out {plan.directory}"
        raise ValueError(f"{error}; {remedy}") from None
    return part
