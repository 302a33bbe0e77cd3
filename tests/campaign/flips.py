"""One flipped bit at a time, in every file of a study: noticed, or of no consequence."""

import random
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.campaign import recovery
from tests.campaign.judge import Finding, Judgement, Outcome, Verdict, judged_reading, traceback_in
from tests.campaign.listing import Listing, listing
from tests.campaign.loads import load_checkpoint
from tests.campaign.studies import Bench
from tests.campaign.worker import Worker, command

RESULTS, CHECKPOINTS = "bit flips, results", "bit flips, checkpoints"
#: What reads a finished study, what it writes below the fault's own folder, and the files that it reads.
_READERS: Mapping[str, tuple[Sequence[str], Sequence[str], Sequence[str]]] = {
    "report": (("report", "{study}"), ("study/report",), ("config", "manifest", "curves", "report")),
    "calibrate": (("calibrate", "{study}"), ("study/calibration",), ("config", "manifest", "curves", "streams")),
    "replay": (
        ("replay", "{study}", "--schedules", "aes_d", "--out", "{case}/replay"),
        ("replay",),
        ("config", "manifest", "curves", "streams"),
    ),
    "export": (("export", "{study}", "--out", "{case}/exported"), ("exported",), ("config", "manifest", "agents")),
}
_VERIFY = ("verify", "{study}")
#: Beginnings of the files whose every bit `verify` knows; of the others it is enough that nobody reads them.
_SEALED = ("config", "manifest", "curves", "streams", "agents", "replays")
#: What an interrupted study does not have yet; agents and replays are written before the last checkpoint.
_LATER = ("manifest*", "curves.parquet", "streams.parquet", "report")


class Flip(NamedTuple):
    """One bit of one file."""

    file: str  # below the study's folder
    byte: int
    bit: int


def planned(seed: int, sizes: Mapping[str, int], aims: Mapping[str, Sequence[int]], count: int) -> list[Flip]:
    """``count`` flips: by turns anywhere in a file, of one file after the other however small, and in one of the bytes
    that ``aims`` names, see `numbers_in`."""
    draw = random.Random(seed)
    files, aimed = sorted(name for name, size in sizes.items() if size), sorted(name for name in aims if aims[name])
    found = []
    for i in range(count):
        names = aimed if aimed and i % 2 else files
        name = names[i // 2 % len(names)]
        byte = draw.choice(aims[name]) if names is aimed else draw.randrange(sizes[name])
        found.append(Flip(name, byte, draw.randrange(8)))
    return found


def numbers_in(study: Path) -> dict[str, list[int]]:
    """JSON file -> bytes of the numbers in it: few of all that it holds, and those that mean something else at once."""
    found = {}
    for path in study.rglob("*.json"):
        numbers = re.finditer(rb'": (\d+)', path.read_bytes())
        found[str(path.relative_to(study))] = [at for number in numbers for at in range(*number.span(1))]
    return found


def flipped(study: Path, flip: Flip) -> None:
    """Flip it; done twice, nothing has happened."""
    path = study / flip.file
    content = bytearray(path.read_bytes())
    content[flip.byte] ^= 1 << flip.bit
    path.write_bytes(content)


def flips_of_results(bench: Bench, worker: Worker, seed: int, count: int, share: float) -> Iterator[Finding]:
    """Flips in a finished study: `verify` must notice, or every reader of the file answers as before.

    Args:
      share: of the flips that are shown to all readers of the file whatever `verify` says.
    """
    whole, draw = bench.whole("read").folder, random.Random(seed)
    case = bench.case()
    study = shutil.copytree(whole, case / "study")
    expected = {name: _read(worker, name, case, study) for name in _READERS}
    for name, (outcome, _) in expected.items():
        if outcome.code != 0:
            raise RuntimeError(f"{name} does not read an undamaged study: {outcome.err or outcome.out}")
    verified = worker.call(command, _words(_VERIFY, case), str(case)).code == 0  # there is such a command
    for flip in planned(seed, _sizes(study), numbers_in(study), count):
        flipped(study, flip)
        judgement = Judgement(Verdict.SILENT, "verify has nothing to say")
        if verified:
            judgement = judged_reading(worker.call(command, _words(_VERIFY, case), str(case)), {"": ""}, {})
        unnoticed = judgement.verdict is Verdict.SILENT and not (verified and flip.file.startswith(_SEALED))
        if unnoticed or (judgement.verdict is Verdict.REFUSED and draw.random() < share):
            judgement = _by_all(worker, flip, case, study, expected)
        flipped(study, flip)
        told = f"{flip.file} byte {flip.byte} bit {flip.bit}"
        yield Finding(RESULTS, told, judgement, f"python -m tests.campaign --only flips --seed {seed}: {told}")
    bench.drop(case)


def _by_all(
    worker: Worker, flip: Flip, case: Path, study: Path, expected: Mapping[str, tuple[Outcome, Listing]]
) -> Judgement:
    """The worst that a reader of the flipped file makes of it."""
    worst = Judgement(Verdict.REFUSED)
    found = [name for name, (_, _, files) in _READERS.items() if flip.file.startswith(tuple(files))]
    for name in found or ["export"]:
        (whole, before), (outcome, after) = expected[name], _read(worker, name, case, study)
        told = judged_reading(outcome, {**before, "stdout": whole.out}, {**after, "stdout": outcome.out})
        if told.verdict not in (Verdict.REFUSED, Verdict.EQUAL):
            return told._replace(detail=f"{name}: {told.detail}")
        worst = told if told.verdict is Verdict.EQUAL else worst
    return worst


def _read(worker: Worker, name: str, case: Path, study: Path) -> tuple[Outcome, Listing]:
    """What a reader did, and what it wrote, which is taken away."""
    words, places, _ = _READERS[name]
    kept = case / "kept"
    if (study / "report").is_dir():
        shutil.copytree(study / "report", kept)
    outcome = worker.call(command, _words(words, case), str(case), longest=300.0)
    written = {k: v for k, v in listing(case).items() if k.startswith(tuple(places))}
    for path in [case / "replay", case / "exported", *study.glob("calibration*"), study / "report"]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    if kept.is_dir():
        kept.rename(study / "report")
    return outcome, written


def flips_of_checkpoints(bench: Bench, worker: Worker, seed: int, count: int, resumed: int) -> Iterator[Finding]:
    """Flips in the checkpoints of an interrupted study: what is loaded is the newest, the one before, or nothing.

    Args:
      resumed: flips after which the study is really continued.
    """
    case = bench.case()
    study = _unfinished(bench.whole("read").folder, case / "study")
    place = study / "checkpoints" / "sac"
    known = [_loaded(worker, study)]  # the newest, then the one before
    newest = max(path for path in place.iterdir())
    newest.rename(case / "aside")
    known.append(_loaded(worker, study))
    (case / "aside").rename(newest)
    if any(outcome.code != 0 for outcome in known):
        raise RuntimeError(f"undamaged checkpoints cannot be loaded: {known[0].err or known[1].err}")
    sizes = {name: size for name, size in _sizes(study).items() if name.startswith("checkpoints/")}
    aims = {name: numbers for name, numbers in numbers_in(study).items() if name in sizes}
    for number, flip in enumerate(planned(seed, sizes, aims, count)):
        flipped(study, flip)
        judgement = _judged_load(_loaded(worker, study), [outcome.out for outcome in known])
        if number < resumed and judgement.verdict is Verdict.EQUAL:
            judgement = _resumed(bench, study, bench.case())
        flipped(study, flip)
        told = f"{flip.file} byte {flip.byte} bit {flip.bit}"
        yield Finding(CHECKPOINTS, told, judgement, f"python -m tests.campaign --only flips --seed {seed}: {told}")
    bench.drop(case)


def _unfinished(whole: Path, study: Path) -> Path:
    """A copy of a study as it was between its last checkpoint and its end."""
    shutil.copytree(whole, study)
    for path in [path for pattern in _LATER for path in study.glob(pattern)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return study


def _resumed(bench: Bench, study: Path, case: Path) -> Judgement:
    out = shutil.copytree(study, case / "study")
    judgement = recovery.finished(bench, "read", out, case / "logs")
    if judgement.verdict is Verdict.EQUAL:
        bench.drop(case)
    return judgement


def _loaded(worker: Worker, study: Path) -> Outcome:
    return worker.call(load_checkpoint, str(study), "sac")


def _judged_load(outcome: Outcome, known: Sequence[str]) -> Judgement:
    if outcome.code is None:
        return Judgement(Verdict.HUNG, "it does not end")
    if trace := traceback_in(outcome.err):
        return Judgement(Verdict.TRACEBACK, trace)
    if outcome.code == 2:
        return Judgement(Verdict.REFUSED, outcome.err.strip())
    return Judgement(Verdict.EQUAL) if outcome.out in known else Judgement(Verdict.SILENT, "another state is loaded")


def _sizes(study: Path) -> dict[str, int]:
    return {str(p.relative_to(study)): p.stat().st_size for p in study.rglob("*") if p.is_file()}


def _words(words: Sequence[str], case: Path) -> list[str]:
    return [word.replace("{case}", str(case)).replace("{study}", str(case / "study")) for word in words]
