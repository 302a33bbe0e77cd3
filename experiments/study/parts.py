"""A study in parts: its plan, how each part is started, and how far it is."""

import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from experiments.study import checkpoint, lock, store
from experiments.study.arms import runs_of, share
from experiments.study.build import check
from experiments.study.cluster import EXIT, INTERRUPTED, LOG, Task, queue_states
from experiments.study.config import StudyConfig, check_stored
from experiments.study.plugins import is_typed

_FORMAT = 2
#: `aesjax`, by this Python, in whatever folder: nothing in there is taken for one of our packages.
AESJAX = (sys.executable, "-P", "-c", "from experiments.cli import entry; entry()")
_ALWAYS = ("--devices", "1", "--no-report")
_LAST_LINES = 5
_LAST_BYTES = 16_384


@dataclasses.dataclass(frozen=True)
class StudyPlan:
    """A study, divided; a `plan.json`."""

    config: Mapping[str, Any]  # of the complete study, as config.json will hold it
    counts: Mapping[str, int]  # carrier -> number of its runs in the complete study
    parts: int
    words: Sequence[str]  # what follows `aesjax run` in every part, besides its number and its folder
    report: bool  # write one when all parts are joined
    cluster: Mapping[str, Any]  # its name and what was asked of it
    jobs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # part -> its newest job

    @property
    def outside(self) -> bool:
        """Whether the study uses objects from outside this repository, which only its complete command brings."""
        return bool(self.config.get("definitions")) or is_typed(self.config["task"])

    def part(self, number: int) -> dict[str, Any]:
        """The configuration of part ``number``, which counts from 1."""
        return {**self.config, "part": {"number": number, "of": self.parts}}

    def runs(self, number: int) -> dict[str, range]:
        """Carrier -> its runs in part ``number``."""
        return share(self.counts, self.config["together"], number, self.parts)

    def task(self, directory: Path, number: int) -> Task:
        """Command that trains part ``number`` of the study in ``directory``."""
        place = self.place(directory, number)
        words = ["run", *self.words, *_ALWAYS, "--part", f"{number}/{self.parts}", "--out", str(place)]
        folder = directory / store.TASKS / str(number)
        return Task(folder, (*AESJAX, *words), begun=place / store.CONFIG, result=place / store.MANIFEST)

    def results(self, directory: Path) -> list[Path]:
        """The files that are there when all parts have ended."""
        return [self.place(directory, number) / store.MANIFEST for number in range(1, self.parts + 1)]

    def place(self, directory: Path, number: int) -> Path:
        """The folder of part ``number``."""
        return directory / store.PARTS / str(number)


def make_plan(
    config: StudyConfig, parts: int, words: Sequence[str], *, report: bool, cluster: Mapping[str, Any]
) -> StudyPlan:
    """A checked plan."""
    if config.part:
        raise ValueError("--part is one part of a study; give --parts, how many there are")
    if config.together is None:
        raise ValueError("a study in parts needs --together, which fixes how many runs train together")
    check(config)
    counts = {carrier: len(runs) for carrier, runs in runs_of(config).items()}
    share(counts, config.together, 1, parts)
    return StudyPlan(config.to_json(), counts, parts, tuple(words), report, dict(cluster))


def begin(directory: Path, plan: StudyPlan) -> None:
    """Write the plan into a folder that is new or empty."""
    if directory.exists() and (not directory.is_dir() or not lock.is_empty(directory)):
        hint = "add --resume to go on with its parts, or " if (directory / store.PLAN).exists() else ""
        raise ValueError(f"--out {directory} is not an empty folder; {hint}choose another one")
    directory.mkdir(parents=True, exist_ok=True)
    write_plan(directory, plan)


def write_plan(directory: Path, plan: StudyPlan) -> None:
    """Write `plan.json`."""
    data = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    store.write_json(directory / store.PLAN, {"format": _FORMAT, **data})


def read_plan(directory: Path) -> StudyPlan:
    """The plan of the study in ``directory`` (ValueError where there is none, or it is damaged)."""
    path = directory / store.PLAN
    if not path.exists():
        raise ValueError(f"{directory} holds no study in parts: there is no {store.PLAN}")
    data = store.read_json(path)
    try:
        if data["format"] != _FORMAT:
            raise ValueError(f"its format is {data['format']}, this version reads {_FORMAT}")
        plan = StudyPlan(**{name: value for name, value in data.items() if name != "format"})
        check_stored(plan.config)
        plan.runs(1)
    except ValueError as error:
        raise ValueError(f"{path} cannot be used: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{path} cannot be used: {type(error).__name__}: {error}") from None
    return plan


class PartStatus(NamedTuple):
    """State of one part, from its folder and SLURM."""

    number: int
    runs: int
    state: str  # waiting, queued, running, done, interrupted, failed or lost: nobody trains it and nothing says why
    done: float  # share of its evaluations, at its newest checkpoint
    diverged: int  # runs
    job: str  # SLURM's number of it and its word for it; empty where it knows none
    log: Path  # its own, or the scheduler's of a job that ended early
    last: list[str]  # the log's last lines, where they matter


def statuses(directory: Path, plan: StudyPlan) -> list[PartStatus]:
    """Of all parts, in order. Checksums are not checked here but by `join` and `verify`."""
    queue = queue_states(list(plan.jobs.values()))
    return [_status(directory, plan, number, queue) for number in range(1, plan.parts + 1)]


def _status(directory: Path, plan: StudyPlan, number: int, queue: Mapping[str, str]) -> PartStatus:
    task, place = plan.task(directory, number), plan.place(directory, number)
    runs = {carrier: len(own) for carrier, own in plan.runs(number).items()}
    total = sum(runs.values())
    job = plan.jobs.get(str(number), "")
    queued = queue.get(job, "")
    if task.result.exists():
        diverged = 0
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            diverged = sum(run["status"] == "diverged" for run in store.read_json(task.result)["runs"])
        return PartStatus(number, total, "done", 1.0, diverged, "", task.folder / LOG, [])
    state = "waiting"
    if lock.in_use(place):
        state = "running"
    elif queued:
        state = "queued"
    elif (task.folder / EXIT).exists():
        state = _ending(task.folder / EXIT)
    elif task.begun.exists() or (task.folder / LOG).exists():
        state = "lost"
    log = task.folder / LOG
    if queue.get(job) == "" and state not in ("running", "interrupted"):
        state, log = _early_end(directory, plan, job, state, log)
    last = _last_lines(log) if state.startswith(("failed", "interrupted", "lost")) else []
    rows = {c: checkpoint.newest_height(place / store.CHECKPOINTS / c) for c in runs}
    later, seen = False, 0
    for carrier in reversed(runs):  # one after another: where the next has begun, one is done
        whole = runs[carrier] * (plan.config["evaluations"] + 1)
        seen += whole if later else min(rows[carrier], whole)
        later = later or rows[carrier] > 0
    done = seen / (total * (plan.config["evaluations"] + 1))
    return PartStatus(number, total, state, done, 0, f"{job} {queued}".strip() if queued else "", log, last)


def _early_end(directory: Path, plan: StudyPlan, job: str, state: str, log: Path) -> tuple[str, Path]:
    """State and log of a part that is not done and whose job has left the queue: the scheduler's, if they say more."""
    errors = [path for path in (directory / store.SLURM).glob(f"{job}_*_log.err") if path.stat().st_size]
    newest = max(errors, key=lambda path: path.stat().st_mtime, default=log)
    if re.search(r"out of memory|oom.kill", "\n".join(_last_lines(newest, _LAST_BYTES)), re.IGNORECASE):
        memory = plan.cluster.get("mem") or "the partition's default"
        return f"failed (out of memory; --mem was {memory})", newest
    return (state, log) if state.startswith("failed") else (f"failed (the queue no longer has job {job})", newest)


def _ending(path: Path) -> str:
    """How a task ended that is not done, from its exit code."""
    try:
        code = int(path.read_text())
    except (OSError, ValueError):
        return "failed"
    if code == INTERRUPTED:
        return "interrupted"
    return f"failed (signal {-code})" if code < 0 else f"failed (exit code {code})"


def _last_lines(path: Path, count: int = _LAST_LINES) -> list[str]:
    """The last lines of a log, however long it is."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LAST_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    lines = ["".join(c for c in line if c.isprintable()) for line in text.splitlines()]
    return [line for line in lines if line.strip()][-count:]
