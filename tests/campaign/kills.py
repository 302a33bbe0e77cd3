"""kill -9 at random moments, then `--resume` until the study is done."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.campaign import processes, recovery
from tests.campaign.judge import Finding, Judgement, Verdict
from tests.campaign.studies import STUDIES, Bench, Whole

__all__ = ["PHASES", "Kill", "kills", "planned"]

KIND = "kill -9"
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
        yield Finding(KIND, told, judgement, f"python -m tests.campaign --only kills --seed {seed}: {told}")
        if judgement.verdict is Verdict.EQUAL:
            bench.drop(case)


def _killed(bench: Bench, whole: Whole, kill: Kill, case: Path) -> Judgement:
    out, logs = case / "study", case / "logs"
    landmark, lasts = _moment(kill.phase, whole, out)
    more: tuple[str, ...] = ()
    for last in (lasts * kill.share, None if kill.again is None else whole.ended * kill.again):
        if last is None:
            break
        started = processes.start(bench.argv(kill.study, out, *more), bench.env, logs)
        if not more:
            processes.wait_for(started, landmark)
        time.sleep(last)
        if started.process.poll() is None:
            os.kill(started.process.pid, signal.SIGKILL)
        processes.ended(started)
        if left := processes.orphans(started):
            return Judgement(Verdict.ORPHAN, f"{len(left)} processes outlive the one that was killed")
        more = ("--resume",) if (out / "config.json").exists() else ()
    return recovery.finished(bench, kill.study, out, logs)


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
