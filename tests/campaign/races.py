"""Two processes that want one folder at the same time: one of them has it, and loses nothing by the other."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.campaign import processes, recovery
from tests.campaign.judge import Finding, Judgement, Outcome, Verdict, judged_refusal, traceback_in
from tests.campaign.studies import Bench

_KIND = "races"


class Race(NamedTuple):
    """When the second process starts."""

    resume: bool  # it continues what the first is training; else it begins the same study
    delay: float  # seconds after the first started, or after the folder was claimed


def planned(seed: int, count: int) -> list[Race]:
    """Two thirds of them new studies, closely behind each other; the rest `--resume` beside a running one."""
    draw = random.Random(seed)
    return [
        Race(resume=i % 3 == 2, delay=draw.choice((0.0, draw.uniform(0.0, 0.1), draw.uniform(0.0, 2.0))))
        for i in range(count)
    ]


def races(bench: Bench, seed: int, count: int, study: str = "sac") -> Iterator[Finding]:
    """Start both, wait for both, compare."""
    bench.whole(study)
    for race in planned(seed, count):
        case = bench.case()
        judgement = _raced(bench, study, race, case)
        told = f"{'--resume beside it' if race.resume else 'the same command'} {race.delay:.2f} s later"
        yield Finding(_KIND, told, judgement, f"python -m tests.campaign --only races --seed {seed}: {told}")
        if judgement.verdict is Verdict.EQUAL:
            bench.drop(case)


def _raced(bench: Bench, study: str, race: Race, case: Path) -> Judgement:
    out = case / "study"
    first = processes.start(bench.argv(study, out), bench.env, case / "first")
    if race.resume:
        processes.wait_for(first, (out / "config.json").exists)
    time.sleep(race.delay)
    more = ("--resume",) if race.resume else ()
    second = processes.start(bench.argv(study, out, *more), bench.env, case / "second")
    outcomes = [processes.ended(started) for started in (first, second)]
    for started in (first, second):
        if left := processes.orphans(started):
            return Judgement(Verdict.ORPHAN, f"{len(left)} processes outlive the race")
    return _judged(outcomes, race) or recovery.unlike(bench.whole(study), out)


def _judged(outcomes: list[Outcome], race: Race) -> Judgement | None:
    """What is wrong with how the two ended; None if one finished and the other was refused."""
    for outcome in outcomes:
        if outcome.code is None:
            return Judgement(Verdict.HUNG, "one of the two does not end")
        if trace := traceback_in(outcome.err):
            return Judgement(Verdict.TRACEBACK, trace)
    codes = [outcome.code for outcome in outcomes]
    if sorted(map(str, codes)) != ["0", "2"] or (race.resume and codes[0] != 0):
        return Judgement(Verdict.WRONG, f"exit codes {codes} instead of 0 for one and 2 for the other")
    refused = judged_refusal(outcomes[codes.index(2)], {}, {}, ("study", "--out"))
    return None if refused.verdict is Verdict.REFUSED else refused
