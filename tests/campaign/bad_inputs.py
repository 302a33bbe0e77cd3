"""Bad input: argument lists that fit nothing, and files of a study that can be read and are wrong."""

import random
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.campaign.arguments import bad_arguments
from tests.campaign.damage import Damage, damages
from tests.campaign.judge import Finding, Judgement, Verdict, judged_refusal, traceback_in
from tests.campaign.listing import listing
from tests.campaign.studies import STUDIES, Bench
from tests.campaign.worker import Worker, command

ARGUMENTS, FILES = "bad arguments", "bad files"
#: Commands that open a study, in turns. `--resume` trains nothing here: see `tests.campaign.worker`.
_READERS = (
    ("report", "{study}"),
    ("replay", "{study}", "--schedules", "aes_d", "--out", "{case}/replay"),
    ("calibrate", "{study}"),
    ("export", "{study}", "--out", "{case}/agents"),
    ("run", "--out", "{study}", "--resume", *STUDIES["read"]),
    ("verify", "{study}"),
)


def arguments(bench: Bench, worker: Worker, seed: int, count: int | None) -> Iterator[Finding]:
    """Every bad argument list, or ``count`` of them, each in a folder of its own."""
    whole = bench.whole("read").folder
    known = listing(whole)
    study = shutil.copytree(whole, bench.case() / "study")
    for bad in bad_arguments(seed, count):
        case = _furnished(bench.case())
        argv = [word.replace("{case}", str(case)).replace("{study}", str(study)) for word in bad.argv]
        before = listing(case)
        outcome = worker.call(command, argv, str(case))
        judgement = judged_refusal(outcome, before, listing(case), bad.mentions)
        if listing(study) != known:
            if judgement.verdict is Verdict.REFUSED:
                judgement = Judgement(Verdict.WRONG, "refused, but the study that was read has changed")
            shutil.rmtree(study)
            shutil.copytree(whole, study)
        yield Finding(ARGUMENTS, bad.name, judgement, _typed(bad.argv))
        bench.drop(case)
    bench.drop(study.parent)


def _furnished(case: Path) -> Path:
    """What the placeholders of argument lists stand for."""
    (case / "file").write_text("years of work")
    (case / "empty").mkdir()
    (case / "broken").symlink_to(case / "nowhere")
    (case / "loop").symlink_to(case / "loop")
    return case


def files(bench: Bench, worker: Worker, seed: int, count: int | None) -> Iterator[Finding]:
    """Every damage done to a study, each read by one of the commands; where it is sealed again, by all of them."""
    whole = bench.whole("read").folder
    found = damages()
    chosen = found if count is None else random.Random(seed).sample(found, min(count, len(found)))
    readers = opened(bench, worker)
    for number, damage in enumerate(chosen):
        fitting = [reader for reader in readers if reader[0] in damage.readers] or readers
        reader = fitting[number % len(fitting)]
        yield _read(bench, worker, whole, damage, reader, sealed=False)
        if ("verify", "{study}") in readers:
            yield _read(bench, worker, whole, damage, reader, sealed=True)


def opened(bench: Bench, worker: Worker) -> list[tuple[str, ...]]:
    """Those of `_READERS` that open an undamaged study; that of a command yet to come does not."""
    study = bench.whole("read").folder
    found = []
    for reader in _READERS:
        case = bench.case()
        copy = shutil.copytree(study, case / "study")
        outcome = worker.call(command, _words(reader, case, copy), str(case))
        if outcome.code == 0:
            found.append(reader)
        elif reader[0] != "verify":
            raise RuntimeError(f"{reader[0]} does not open an undamaged study: {outcome.err or outcome.out}")
        bench.drop(case)
    return found


def _read(
    bench: Bench, worker: Worker, whole: Path, damage: Damage, reader: tuple[str, ...], *, sealed: bool
) -> Finding:
    case = bench.case()
    study = shutil.copytree(whole, case / "study", symlinks=True)
    damage.apply(study)
    name = f"{damage.name}, read by {reader[0]}" + (", sealed again" if sealed else "")
    if sealed:  # on purpose: what is read may be accepted then, but never with a traceback
        outcome = worker.call(command, ["seal", str(study)], str(case))
        if outcome.code != 0:
            judgement = judged_refusal(outcome, {}, {}, damage.mentions)
            bench.drop(case)
            return Finding(FILES, name, judgement, damage.name)
    before = listing(case)
    outcome = worker.call(command, _words(reader, case, study), str(case))
    if sealed and outcome.code == 0 and not traceback_in(outcome.err + outcome.out):
        judgement = Judgement(Verdict.EQUAL, "taken as it is, as it is sealed")
    else:
        # What was sealed again may be refused for what it is no more: the study that its checkpoints belong to.
        judgement = judged_refusal(outcome, before, listing(case), () if sealed else damage.mentions)
    bench.drop(case)
    return Finding(FILES, name, judgement, damage.name)


def _words(reader: tuple[str, ...], case: Path, study: Path) -> list[str]:
    return [word.replace("{case}", str(case)).replace("{study}", str(study)) for word in reader]


def _typed(argv: tuple[str, ...]) -> str:
    text = "aesjax " + shlex.join(word.encode("utf-8", "backslashreplace").decode() for word in argv)
    return text if len(text) <= 300 else text[:297] + "..."
