"""What a person does after a fault, and what must be there then: the same bytes, and nothing else."""

from pathlib import Path

from tests.campaign import processes
from tests.campaign.judge import Judgement, Outcome, Verdict, changes, leftovers, traceback_in
from tests.campaign.listing import listing
from tests.campaign.studies import Bench, Whole

TRIES = 2


def finished(bench: Bench, name: str, out: Path, logs: Path) -> Judgement:
    """Continue the study in ``out`` to its end, as its owner would, and compare it with the undisturbed one."""
    for _ in range(TRIES):
        more = ("--resume",) if (out / "config.json").exists() else ()
        started = processes.start(bench.argv(name, out, *more), bench.env, logs)
        outcome = processes.ended(started)
        if left := processes.orphans(started):
            return Judgement(Verdict.ORPHAN, f"{len(left)} processes outlive the study that continued")
        if trace := traceback_in(outcome.err):
            return Judgement(Verdict.TRACEBACK, f"{' '.join(more) or 'started again'}: {trace}")
        if outcome.code == 0:
            return unlike(bench.whole(name), out)
    return _stuck(outcome, more)


def _stuck(outcome: Outcome, more: tuple[str, ...]) -> Judgement:
    if outcome.code is None:
        return Judgement(Verdict.HUNG, "it does not end when it is continued")
    how = " ".join(more) or "started again"
    return Judgement(Verdict.WRONG, f"{how}: exit code {outcome.code}, {outcome.err.strip()[-300:]!r}")


def unlike(whole: Whole, out: Path) -> Judgement:
    """Whether the finished study in ``out`` differs from the undisturbed one, or holds what nobody needs."""
    if told := changes(whole.results, processes.results(out)):
        return Judgement(Verdict.SILENT, ", ".join(told))
    left = leftovers(listing(out))
    odd = sorted({path.name for path in out.iterdir()} ^ whole.names)
    if left or odd:
        return Judgement(Verdict.LEFTOVER, ", ".join([*left, *odd][:4]))
    return Judgement(Verdict.EQUAL)
