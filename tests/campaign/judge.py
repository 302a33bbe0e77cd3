"""What a command may do under a fault and what it may not: pure judgements of what was seen.

A fault has done no harm if the command refused it in a sentence and touched nothing, or if its results are those of
the undisturbed command, byte for byte.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

WRONG, INTERRUPTED = 2, 130  # exit codes
LONGEST = 2000  # characters of a sentence that a person reads
#: What Python and the libraries below it print when nobody catches.
_TRACES = ("Traceback (most recent call last)", "Exception ignored", "Fatal Python error", "Segmentation fault", "*** ")
#: Names that no command may leave behind.
LEFTOVER = re.compile(r"(^|/)(partial-[^/]*|\.[^/]*\.partial|\.(report|replay)-[^/]*|[^/]*\.(lock|tmp)|lock)($|/)")
_ANNOUNCED = "aesjax: stopping at the next checkpoint; once more to stop at once\n"


class Verdict(StrEnum):
    """What came of a fault."""

    REFUSED = "refused"
    EQUAL = "equal"
    TRACEBACK = "traceback"
    SILENT = "silent"  # another result, or none of the word that was due
    ORPHAN = "orphan"
    LEFTOVER = "leftover"
    WRONG = "wrong"  # exit code, sentence, or a folder that was touched
    HUNG = "hung"


HARMLESS = (Verdict.REFUSED, Verdict.EQUAL)


class Judgement(NamedTuple):
    """A verdict and what it rests on."""

    verdict: Verdict
    detail: str = ""


class Finding(NamedTuple):
    """One fault, tried and judged."""

    kind: str
    fault: str
    judgement: Judgement
    reproduction: str = ""


class Outcome(NamedTuple):
    """What a command did."""

    code: int | None  # exit code, minus the signal that ended it; None: it was stopped because it did not end
    out: str
    err: str
    reached_training: bool = False


def traceback_in(text: str) -> str:
    """The last line of a traceback or of a crash in ``text``; empty where there is none."""
    if not any(trace in text for trace in _TRACES):
        return ""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "aesjax:"))]
    return lines[-1] if lines else "a crash without words"


def _flaw_of_sentence(text: str, mentions: Collection[str]) -> str:
    """Why the text on stderr is not one sentence that a person can act on; empty if it is.

    Args:
      mentions: of which the sentence must name one: options, values, files.
    """
    text = text.strip()
    if text.startswith("╭"):  # the parser's own usage error
        return ""
    if not text.startswith("aesjax: "):
        return f"stderr does not begin with 'aesjax: ': {text[:200]!r}"
    sentence = text.removeprefix("aesjax: ")
    if len(sentence.splitlines()) > 1:
        return f"{len(sentence.splitlines())} lines instead of a sentence: {sentence[:300]!r}"
    if len(sentence) > LONGEST:
        return f"a sentence of {len(sentence)} characters: {sentence[:200]!r}"
    if len(sentence.split()) < 4:
        return f"no sentence: {sentence!r}"
    if mentions and not any(word and word in sentence for word in mentions):
        return f"names nothing of what was typed or read: {sentence!r}"
    return ""


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Names that came, went, or hold something else, with what happened to each."""
    told = [f"{name} appeared" for name in after.keys() - before.keys()]
    told += [f"{name} is gone" for name in before.keys() - after.keys()]
    told += [f"{name} changed" for name in before.keys() & after.keys() if before[name] != after[name]]
    return sorted(told)


def leftovers(names: Collection[str]) -> list[str]:
    """Those among the paths of a folder that a finished command should have removed."""
    return sorted(name for name in names if LEFTOVER.search(name))


def judged_refusal(
    outcome: Outcome, before: Mapping[str, str], after: Mapping[str, str], mentions: Collection[str] = ()
) -> Judgement:
    """Whether a command refused as it should: exit code 2, one sentence, no traceback, nothing touched."""
    if outcome.code is None:
        return Judgement(Verdict.HUNG, f"stderr: {outcome.err[-200:]!r}")
    if trace := traceback_in(outcome.err + outcome.out):
        return Judgement(Verdict.TRACEBACK, trace)
    if outcome.reached_training:
        said = f", though it said {outcome.err.strip()[:200]!r}" if outcome.err.strip() else " without a word"
        return Judgement(Verdict.SILENT, f"accepted{said}")
    if outcome.code == 0:
        return Judgement(Verdict.SILENT, "exit code 0")
    if outcome.code != WRONG:
        return Judgement(Verdict.WRONG, f"exit code {outcome.code}, stderr {outcome.err[-200:]!r}")
    if flaw := _flaw_of_sentence(outcome.err, mentions):
        return Judgement(Verdict.WRONG, flaw)
    if told := changes(before, after):
        return Judgement(Verdict.WRONG, "refused, but " + ", ".join(told[:4]))
    return Judgement(Verdict.REFUSED, outcome.err.strip())


def judged_reading(outcome: Outcome, expected: Mapping[str, str], found: Mapping[str, str]) -> Judgement:
    """Whether a reader of damaged files refused them, or answered what it answers on whole ones.

    Args:
      expected, found: what the reader wrote, as digests, and what it printed; of the whole files and of these.
    """
    if outcome.code == 0 and not traceback_in(outcome.err + outcome.out):
        told = changes(expected, found)
        return Judgement(Verdict.SILENT, ", ".join(told[:4])) if told else Judgement(Verdict.EQUAL)
    return judged_refusal(outcome, {}, {})


def judged_interruption(outcome: Outcome, *, claimed: bool) -> Judgement:
    """Whether a command ended orderly upon a signal: 130, a sentence, the command that goes on. `EQUAL` if so.

    Args:
      claimed: there was something to continue; else the sentence alone will do.
    """
    if outcome.code is None:
        return Judgement(Verdict.HUNG, "it went on after the signal")
    if trace := traceback_in(outcome.err + outcome.out):
        return Judgement(Verdict.TRACEBACK, trace)
    if outcome.code == 0:
        return Judgement(Verdict.EQUAL, "it had ended before")
    if outcome.code != INTERRUPTED:
        return Judgement(Verdict.WRONG, f"exit code {outcome.code}, stderr {outcome.err[-200:]!r}")
    text = outcome.err.strip().removeprefix(_ANNOUNCED)  # told at once where the next checkpoint is awaited
    if not text.startswith("aesjax: ") or text.count("aesjax: ") != 1:
        return Judgement(Verdict.WRONG, f"not one sentence of ours: {text[:200]!r}")
    if claimed and "aesjax run" not in text and "aesjax report" not in text:  # the second where all was trained
        return Judgement(Verdict.WRONG, f"no command to continue: {text[:200]!r}")
    return Judgement(Verdict.EQUAL)
