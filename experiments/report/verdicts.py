"""The answer of a study: per method, which patterns are better, worse, hints or undecided, after Holm's correction."""

import math
from typing import Any, NamedTuple

from experiments.measure.comparisons import LOWER_IS_BETTER
from experiments.measure.patterns import STEADY
from experiments.report.cells import NONE, Lookup

METRIC_NAMES = {
    "nauc_task_safe": "safe nAUC",
    "nauc_task": "literal nAUC",
    "drop_run_safe": "safe DropRatio",
    "recovery_robust": "robust recovery",
    "deficit_area": "deficit area",
    "mean_return": "mean return",
    "later_return": "mean return after the first change",
    "final_return": "final return",
    "recovery": "literal recovery",
}
_LEVEL = 0.05  # of the adjusted p-value below which a comparison is decided
DECIDING = 5  # pairs of runs below which a comparison is a hint at most
#: The first of these that the study has is what a verdict is about.
MAIN = ("nauc_task_safe", "mean_return")
_LATER = "later_return"  # judged against every opponent, too
#: Against the baseline these stand beside it.
_BESIDE = (_LATER, "drop_run_safe", "recovery_robust", "deficit_area")


SIGNS = {"better": "▲", "worse": "▼", "hint": "◇", "undecided": "○"}


class Verdict(NamedTuple):
    """One method against one opponent in one metric; every pattern compared is in exactly one of the four tuples."""

    method: str
    against: str  # the carrier's baseline by name, or "best constant", "constant at mean", "permuted", "playback"
    metric: str  # as in the tidy frame
    better: tuple[str, ...]  # patterns
    worse: tuple[str, ...]
    hint: tuple[str, ...]  # p is below 5 % but the pairs are fewer than `DECIDING`
    undecided: tuple[str, ...]
    n: int  # pairs of runs in the comparison that has fewest
    sentence: str


def verdicts(look: Lookup) -> list[Verdict]:
    """Verdicts in the order of the study's methods, against the baseline first, the main metric first.

    A comparison is decided where the p-value of the paired t test, adjusted by Holm within its metric and kind of
    opponent over all methods and patterns of the study (constants and controls by themselves), is below 5 %; with
    fewer than `DECIDING` pairs it is a hint. Families are never pooled: in a study of several a pattern stands with its
    family's name.
    """
    main = next((metric for metric in MAIN if _asked(look, metric)), None)
    if main is None:
        return []
    found = []
    # Opponents of this kind are judged only where no other exists.
    for method in [m for m in look.methods if m not in look.asides and _judged(look, m)] or look.methods:
        for metric in (main, *_BESIDE):
            found += [v for v in [_verdict(look, method, metric, "")] if v is not None]
            for kind in look.opponents if metric in (main, _LATER) else ():
                found += [v for v in [_verdict(look, method, metric, kind)] if v is not None]
    return found


def opponent_of(row: dict[str, Any]) -> str:
    """The method that a row of paired differences compares with."""
    return next((part[9:] for part in row["flag"].split(";") if part.startswith("baseline=")), NONE)


def _key(kind: str, metric: str, opponent: str) -> str:
    return f"{kind}:{metric}" + (f":vs={opponent}" if opponent else "")


def _asked(look: Lookup, metric: str) -> bool:
    return any(m == f"paired:{metric}" and math.isfinite(r["value"]) for (*_, m), r in look.cells.items())


def _judged(look: Lookup, method: str) -> bool:
    return any(key[2] == method and key[4].startswith("paired:") for key in look.cells)


def _verdict(look: Lookup, method: str, metric: str, kind: str) -> Verdict | None:
    """One line; None where nothing was compared."""
    groups: dict[str, list[str]] = {"better": [], "worse": [], "hint": [], "undecided": []}
    pairs, against = [], kind.replace("_", " ")
    for family in look.tasks:
        for pattern in look.patterns:
            if pattern == STEADY and metric.startswith("drop"):
                continue  # zero by definition
            scope = (family, None)
            difference = look.get(scope, method, pattern, _key("paired", metric, kind))
            if difference is None or not math.isfinite(difference["value"]):
                continue
            p = look.get(scope, method, pattern, _key("p_holm", metric, kind))
            outcome = outcome_of(difference["value"], p["value"] if p else math.nan, metric, difference["n_valid"])
            groups[outcome].append(pattern if len(look.tasks) == 1 else f"{family} {pattern}")
            pairs.append(difference["n_valid"])
            against = against or opponent_of(difference)
    if not pairs:
        return None
    better, worse, hint, undecided = (tuple(names) for names in groups.values())
    sentence = _sentence(method, against, metric, groups, min(pairs))
    return Verdict(method, against, metric, better, worse, hint, undecided, min(pairs), sentence)


def outcome_of(difference: float, p: float, metric: str, pairs: int) -> str:
    """``undecided`` unless the adjusted p-value is below 5 %, then a ``hint`` of few pairs, ``better`` or ``worse``."""
    if not p < _LEVEL:
        return "undecided"
    if pairs < DECIDING:
        return "hint"
    return "better" if (difference < 0) == (metric in LOWER_IS_BETTER) else "worse"


def _sentence(method: str, against: str, metric: str, groups: dict[str, list[str]], pairs: int) -> str:
    parts = [f"{outcome} on {', '.join(names)}" for outcome, names in groups.items() if names]
    count = f"{pairs} pair{'s' if pairs > 1 else ''} of runs"
    return f"{method} against {against}, {METRIC_NAMES[metric]}: {'; '.join(parts)} ({count}, after Holm)"
