"""A disk that is full, at sizes from nothing to almost enough; then there is room again."""

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.campaign import processes, recovery
from tests.campaign.judge import Finding, Judgement, Verdict, judged_refusal, leftovers, traceback_in
from tests.campaign.listing import listing
from tests.campaign.studies import Bench

_KIND = "full disk"
SMALLEST = 4096
_BESIDE = 2.2  # what a study takes while it trains, as a multiple of what is left of it: a checkpoint being written
_ROOM = 256 * 2**20


class _Place(NamedTuple):
    """Where a study meets its limit, and how that is lifted."""

    folder: Path
    how: str
    options: dict[str, Any]  # of the process


def planned(count: int, needed: int) -> list[int]:
    """``count`` sizes, each the same multiple of the one before, the last just what a study needs."""
    if count == 1:
        return [needed // 2]
    return [round(SMALLEST * (needed / SMALLEST) ** (i / (count - 1))) for i in range(count)]


def full_disks(bench: Bench, count: int, study: str = "sac") -> Iterator[Finding]:
    """Fill, read what is said, make room, continue, compare."""
    whole = bench.whole(study)
    needed = sum(path.stat().st_size + SMALLEST for path in whole.folder.rglob("*"))
    for size in planned(count, round(_BESIDE * needed)):
        case = bench.case()
        with _limited(case, size, whole.folder) as place:
            judgement = _filled(bench, study, place, case)
        told = f"{size // 1024} KiB, {place.how}"
        yield Finding(_KIND, told, judgement, f"python -m tests.campaign --only disk: {told}")
        if judgement.verdict is Verdict.EQUAL:
            bench.drop(case)


def _filled(bench: Bench, study: str, place: _Place, case: Path) -> Judgement:
    out, logs = place.folder / "study", case / "logs"
    outcome = processes.run(bench.argv(study, out), bench.env, logs, **place.options)
    if trace := traceback_in(outcome.err):
        return Judgement(Verdict.TRACEBACK, trace)
    if outcome.code not in (0, 130):
        told = judged_refusal(outcome._replace(err=_last(outcome.err)), {}, {}, (str(out), "--out"))
        if told.verdict is not Verdict.REFUSED:
            return told
    for name, digest in processes.results(out).items():
        if digest != bench.whole(study).results[name]:
            return Judgement(Verdict.SILENT, f"{name} is there, but not whole")
    if left := leftovers(listing(out)):
        return Judgement(Verdict.LEFTOVER, ", ".join(left[:4]))
    if not place.options:
        subprocess.run(["mount", "-o", f"remount,size={_ROOM}", str(place.folder)], check=True)
    return recovery.finished(bench, study, out, logs)


def _last(text: str) -> str:
    """The sentence that a command ended with; warnings of checkpoints may stand before, the way to go on behind."""
    start = text.rfind("aesjax: ")
    return text[start:].split("\n")[0] if start >= 0 else text


@contextmanager
def _limited(case: Path, size: int, whole: Path) -> Iterator[_Place]:
    """A file system of ``size`` bytes where it may be mounted; else files as long as that and no longer."""
    folder = case / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "aesjax-campaign", str(folder)], capture_output=True
    )
    if mounted.returncode == 0:
        try:
            yield _Place(folder, "tmpfs", {})
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    # The kernel answers EFBIG where a disk would answer ENOSPC: Python ignores SIGXFSZ.
    longest = max(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    each = min(size, longest - 1)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (each, each))

    yield _Place(folder, f"RLIMIT_FSIZE ({os.strerror(errno.EFBIG)})", {"preexec_fn": limit})
