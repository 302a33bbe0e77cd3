"""kill -9 at random moments, then `--resume` until the study is done."""

import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.campaign import processes, recovery
from tests.campaign.judge import Finding, Judgement, Verdict
from tests.campaign.studies import STUDIES, Bench, Whole

_KIND = "kill -9"
_TRIES = 6  # starts of a study until one of them is killed before it ends
PHASES = ("start", "compiling", "training", "checkpoint", "agents", "report")


class Kill(NamedTuple):
    """Where a study is killed."""

    study: str
    phase: str  # of `PHASES`: begun when its landmark is seen in the folder
    share: float  # of the time that the phase takes
    again: float | None = None  # share of the whole after which the continued study is killed, too


def planned(seed: int, count: int, studies: Sequence[str]) -> list[Kill]:
    """``count`` kills, over all phases of all studies in turns, at random moments within."""
    draw = random.Random(seed)
    turns = [(study, phase) for phase in PHASES for study in studies]
    draw.shuffle(turns)
    return [
        Kill(*turns[i % len(turns)], draw.random(), draw.random() if draw.random() < 0.25 else None)
        for i in range(count)
    ]


def kills(bench: Bench, seed: int, count: int, studies: Sequence[str] = tuple(STUDIES)) -> Iterator[Finding]:
    """Kill, continue, compare."""
    for kill in planned(seed, count, [name for name in studies if name != "read"]):
        whole = bench.whole(kill.study)
        case = bench.case()
        judgement = _killed(bench, whole, kill, case)
        again = "" if kill.again is None else f", and again after {kill.again:.0%} of what was left"
        told = f"{kill.study}: {kill.phase}, {kill.share:.0%} into it{again}"
        yield Finding(_KIND, told, judgement, f"python -m tests.campaign --only kills --seed {seed}: {told}")
        if judgement.verdict is Verdict.EQUAL:
            bench.drop(case)


def _killed(bench: Bench, whole: Whole, kill: Kill, case: Path) -> Judgement:
    out, logs = case / "study", case / "logs"
    started = _first(bench, whole, kill, out, logs)
    if left := processes.orphans(started):
        return Judgement(Verdict.ORPHAN, f"{len(left)} processes outlive the one that was killed")
    if kill.again is not None:
        more = ("--resume",) if (out / "config.json").exists() else ()
        started = processes.start(bench.argv(kill.study, out, *more), bench.env, logs)
        _kill(started, whole.ended * kill.again)
        if left := processes.orphans(started):
            return Judgement(Verdict.ORPHAN, f"{len(left)} processes outlive the second one that was killed")
    return recovery.finished(bench, kill.study, out, logs)


def _first(bench: Bench, whole: Whole, kill: Kill, out: Path, logs: Path) -> processes.Started:
    """The study, killed at its moment. One that ended before is begun anew, to die sooner."""
    landmark, lasts = _moment(kill.phase, whole, out)
    last = lasts * kill.share
    for late in range(_TRIES):
        if late == _TRIES // 2:  # what shows the phase is gone too quickly to be seen: any moment
            landmark, last = (lambda: True), whole.ended * kill.share
        started = processes.start(bench.argv(kill.study, out), bench.env, logs)
        processes.wait_for(started, landmark)
        if _kill(started, last):
            return started
        shutil.rmtree(out)
        last /= 2
    raise RuntimeError(f"the study '{kill.study}' ended {_TRIES} times before it was killed")


def _kill(started: processes.Started, last: float) -> bool:
    """Kill the command after so many seconds; False if it ended by itself before."""
    try:
        started.process.wait(last)
    except subprocess.TimeoutExpired:
        started.process.kill()
    return processes.ended(started).code == -signal.SIGKILL


def _moment(phase: str, whole: Whole, out: Path) -> tuple[Callable[[], bool], float]:
    """What shows in the folder when the phase begins, and the seconds that it takes."""

    def seen(*patterns: str) -> Callable[[], bool]:
        return lambda: any(any(out.glob(pattern)) for pattern in patterns)

    return {
        "start": (lambda: True, whole.claimed),
        "compiling": (seen("config.json"), whole.training - whole.claimed),
        "training": (seen("checkpoints/*/*/seal.json"), whole.trained - whole.training),
        "checkpoint": (seen("checkpoints/*/partial-*"), 0.05),
        "agents": (seen("agents/*/*"), 0.2),
        "report": (seen("manifest.json"), whole.ended - whole.trained),
    }[phase]
