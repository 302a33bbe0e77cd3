"""A study of many steps: its memory grows no more once it has warmed up."""

import re
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.campaign import processes
from tests.campaign.judge import Finding, Judgement, Verdict, traceback_in
from tests.campaign.studies import Bench

_KIND = "soak"
_EVERY = 1.0  # seconds between two looks
_WARM = 0.3  # share of a run after which everything has been allocated
_ALLOWED = 0.05  # growth of what is resident, relative, from the first third behind that to the last


def soak(bench: Bench, steps: int) -> Iterator[Finding]:
    """Train, and look at the resident memory all the while."""
    case = bench.case()
    words = ["run", "--out", str(case / "study"), "--schedules", "aes", "--patterns", "abrupt", "--seeds", "1:2"]
    words += ["--steps", str(steps), "--devices", "1", "--checkpoint-seconds", "5", "--no-report"]
    started = processes.start(words, bench.env, case / "logs")
    processes.wait_for(started, lambda: any((case / "study").glob("checkpoints/*/*/seal.json")))
    sizes = []
    while started.process.poll() is None:
        sizes.append(_resident(started.process.pid))
        time.sleep(_EVERY)
    outcome = processes.ended(started)
    if trace := traceback_in(outcome.err):
        judgement = Judgement(Verdict.TRACEBACK, trace)
    elif outcome.code != 0:
        judgement = Judgement(Verdict.WRONG, f"exit code {outcome.code}")
    elif left := processes.orphans(started):
        judgement = Judgement(Verdict.ORPHAN, f"{len(left)} processes outlive the study")
    else:
        judgement = flat([size for size in sizes if size])
    yield Finding(_KIND, f"{steps} steps, {len(sizes)} looks", judgement, f"aesjax {' '.join(words)}")
    if judgement.verdict is Verdict.EQUAL:
        bench.drop(case)


def flat(sizes: Sequence[int]) -> Judgement:
    """Whether resident bytes, looked at in equal intervals, stay where they are after the warm-up."""
    warm = sizes[round(_WARM * len(sizes)) :]
    if len(warm) < 9:
        return Judgement(Verdict.WRONG, f"only {len(sizes)} looks at its memory; more steps are needed")
    third = len(warm) // 3
    first, last = statistics.median(warm[:third]), statistics.median(warm[-third:])
    told = f"{first / 2**20:.0f} MiB resident, {last / 2**20:.0f} MiB in the end"
    return Judgement(Verdict.EQUAL if last <= (1 + _ALLOWED) * first else Verdict.WRONG, told)


def _resident(process: int) -> int:
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
