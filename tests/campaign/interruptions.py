"""SIGINT, SIGTERM and SIGHUP at any moment from the first import to the end of the report."""

import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.campaign import processes, recovery
from tests.campaign.judge import Finding, Judgement, Outcome, Verdict, judged_interruption, leftovers
from tests.campaign.listing import listing
from tests.campaign.studies import Bench

_KIND = "signals"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EARLY = 15.0  # seconds within which most of them fall
_AT_ONCE = 5.0  # seconds within which a second signal ends a command


class Interruption(NamedTuple):
    """A signal and its moment."""

    number: signal.Signals
    share: float  # of the time from the interpreter's own start to the end of the early part, or to that of the study
    early: bool
    twice: bool = False  # a second one follows


def planned(seed: int, early: int, later: int) -> list[Interruption]:
    """Spread evenly over either part, at random within each slice; every fifth comes twice."""
    draw = random.Random(seed)
    moments = [((i + draw.random()) / n, first) for n, first in ((early, True), (later, False)) for i in range(n)]
    return [
        Interruption(_SIGNALS[i % len(_SIGNALS)], share, first, twice=i % 5 == 4)
        for i, (share, first) in enumerate(moments)
    ]


def interpreter_seconds() -> float:
    """What Python takes before it reads the first line of anything: until then nobody can answer a signal."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import site"], check=True)
    return 2.0 * (time.monotonic() - began)


def interruptions(bench: Bench, seed: int, early: int, later: int, study: str = "sac") -> Iterator[Finding]:
    """Signal, read what is said, do what it says, compare."""
    whole, first = bench.whole(study), interpreter_seconds()
    for plan in planned(seed, early, later):
        last = min(_EARLY, whole.ended) if plan.early else whole.ended
        begin = first if plan.early else min(_EARLY, whole.training)
        moment = begin + plan.share * max(last - begin, 0.0)
        case = bench.case()
        judgement = _interrupted(bench, study, plan, moment, case)
        told = f"{plan.number.name}{' twice' if plan.twice else ''} after {moment:.2f} s"
        words = shlex.join(bench.argv(study, Path("OUT")))
        yield Finding(_KIND, told, judgement, f"aesjax {words} & sleep {moment:.2f}; kill -{plan.number.name[3:]} $!")
        if judgement.verdict is Verdict.EQUAL:
            bench.drop(case)


def _interrupted(bench: Bench, study: str, plan: Interruption, moment: float, case: Path) -> Judgement:
    out, logs = case / "study", case / "logs"
    started = processes.start(bench.argv(study, out), bench.env, logs)
    time.sleep(max(0.0, started.began + moment - time.monotonic()))
    started.process.send_signal(plan.number)
    if plan.twice:
        time.sleep(0.1)
        started.process.send_signal(plan.number)
        outcome = processes.ended(started, _AT_ONCE)
        orderly = _at_once(outcome, plan.number)
    else:
        # Within the time that compiling takes, with room for a machine that is busy: else the signal was swallowed.
        outcome = processes.ended(started, 60.0 + bench.whole(study).ended)
        orderly = judged_interruption(outcome, claimed=(out / "config.json").exists())
    if left := processes.orphans(started):
        return Judgement(Verdict.ORPHAN, f"{len(left)} processes outlive the study")
    if orderly.verdict is not Verdict.EQUAL:
        return orderly
    if outcome.code == 0 and moment < bench.whole(study).trained / 2:
        return Judgement(Verdict.SILENT, "the signal was swallowed: training went on to its end")
    if not plan.twice and (left := leftovers(listing(out))):
        return Judgement(Verdict.LEFTOVER, ", ".join(left[:4]))
    return recovery.finished(bench, study, out, logs)


def _at_once(outcome: Outcome, number: int) -> Judgement:
    """After two signals there need not be a word, but neither a traceback nor another second of work."""
    if outcome.code in (-number, 128 + number):
        outcome = outcome._replace(code=130)
    if outcome.code == 130 and not outcome.err.strip():
        return Judgement(Verdict.EQUAL)
    return judged_interruption(outcome, claimed=False)
