"""How far the parts of a study are."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from experiments.study import checkpoint, ownership, store
from experiments.study.cluster import EXIT, INTERRUPTED, LOG, queue_states
from experiments.study.plan import StudyPlan

_LAST_LINES = 5
_LAST_BYTES = 16_384


class PartStatus(NamedTuple):
    """What a part's folders and SLURM tell."""

    number: int
    runs: int
    state: str  # waiting, queued, running, done, interrupted, failed or lost: nobody trains it and nothing says why
    done: float  # share of its evaluations, at its newest checkpoint
    diverged: int  # runs
    job: str  # SLURM's number of it and its word for it; empty where it knows none
    last: list[str]  # what it said last, where that matters


def statuses(directory: Path, plan: StudyPlan) -> list[PartStatus]:
    """Of all parts, in order. Files are read without their seals: `join` and `verify` check those."""
    told = queue_states(list(plan.jobs.values()))
    return [_status(directory, plan, number, told) for number in range(1, plan.parts + 1)]


def _status(directory: Path, plan: StudyPlan, number: int, told: Mapping[str, str]) -> PartStatus:
    task, place = plan.task(directory, number), plan.place(directory, number)
    runs = {carrier: len(own) for carrier, own in plan.runs(number).items()}
    total = sum(runs.values())
    job = plan.jobs.get(str(number), "")
    queued = told.get(job, "")
    if task.result.exists():
        diverged = 0
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            diverged = sum(run["status"] == "diverged" for run in store.read_json(task.result)["runs"])
        return PartStatus(number, total, "done", 1.0, diverged, "", [])
    state = "waiting"
    if ownership.in_use(task.folder) or ownership.in_use(place):
        state = "running"
    elif queued:
        state = "queued"
    elif (task.folder / EXIT).exists():
        state = _ending(task.folder / EXIT)
    elif task.begun.exists() or (task.folder / LOG).exists():
        state = "lost"
    last = _last_lines(task.folder / LOG) if state.startswith(("failed", "interrupted", "lost")) else []
    rows = {c: checkpoint.newest_height(place / store.CHECKPOINTS / c) for c in runs}
    later, seen = False, 0
    for carrier in reversed(runs):  # one after another: where the next has begun, one is done
        whole = runs[carrier] * (plan.config.evaluations + 1)
        seen += whole if later else min(rows[carrier], whole)
        later = later or rows[carrier] > 0
    done = seen / (total * (plan.config.evaluations + 1))
    return PartStatus(number, total, state, done, 0, f"{job} {queued}".strip() if queued else "", last)


def _ending(path: Path) -> str:
    """How a task ended that is not done, from its exit code."""
    try:
        code = int(path.read_text())
    except (OSError, ValueError):
        return "failed"
    if code == INTERRUPTED:
        return "interrupted"
    return f"failed (signal {-code})" if code < 0 else f"failed (exit code {code})"


def _last_lines(path: Path) -> list[str]:
    """The last lines of a log, however long it is."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LAST_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    lines = ["".join(c for c in line if c.isprintable()) for line in text.splitlines()]
    return [line for line in lines if line.strip()][-_LAST_LINES:]
