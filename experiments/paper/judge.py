"""From a claim and the evidence to a verdict, on all cells of the claim and family by family."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.measure.comparisons import BETTER, ENOUGH, NOT_SIGNIFICANT, WORSE
from experiments.paper.claims import Claim
from experiments.paper.evidence import (
    CARRIERS,
    FAMILY_OF,
    FEWEST,
    MARGIN,
    TASKS,
    Atom,
    Group,
    Measured,
    Place,
    atoms,
    contrast,
    expected,
    measure,
    missing,
)

REPRODUCED, NOT_REPRODUCED, NOT_TESTABLE = "reproduced", "not reproduced", "not testable here"
ABSENT = "no pairs of runs for"  # begins the reason where nothing was run


@dataclass(frozen=True)
class Part:
    """A verdict on what there is of one family, or of all of them."""

    scope: str  # "all", or a family with how many of its tasks and which carriers
    verdict: str
    why: str
    measured: Measured | None = None
    beside: tuple[tuple[str, Measured], ...] = ()  # the same in other metrics: raw, robust, the noise floor


@dataclass(frozen=True)
class Finding:
    """Verdict on a claim."""

    claim: Claim
    whole: Part
    families: tuple[Part, ...]


def judge(claim: Claim, evidence: Sequence[Group]) -> Finding:
    """The verdict on a claim.

    On all its cells together it needs all of them; only a claim about every cell falls with a single one. A family is
    judged on what there is of it. Nothing with fewer than `FEWEST` pairs of runs counts, and fewer than `ENOUGH`
    settle no claim.
    """
    if claim.untestable:
        return Finding(claim, Part("all", NOT_TESTABLE, claim.untestable), ())
    places = expected(claim.patterns, claim.carriers, claim.tasks)
    found = _found(claim, evidence, claim.metric, places)
    seen = {(a.task, a.carrier, a.pattern) for a in found}
    if claim.contrast:  # an atom of all patterns
        seen = {p for p in places if p[:2] in {(a.task, a.carrier) for a in found}}
    lacking = missing(places, seen)
    families = tuple(
        _part(claim, evidence, [a for a in found if FAMILY_OF[a.task] == family], places, family)
        for family in TASKS
        if any(FAMILY_OF[a.task] == family for a in found) and not claim.against
    )
    absent = f"{ABSENT} {lacking}"
    if not found or (claim.against and {a.task in claim.against for a in found} != {True, False}):
        return Finding(claim, Part("all", NOT_TESTABLE, absent), ())
    alone = len(families) == 1  # on the results of one family both verdicts are the same
    whole = replace(families[0], scope="all") if alone else _part(claim, evidence, found, places, "all")
    if lacking and claim.kind == "question":
        whole = replace(whole, why=f"{whole.why}; {absent}")
    elif lacking and whole.measured and _settled(claim, whole.measured):
        whole = replace(whole, verdict=NOT_REPRODUCED, why=f"{whole.why}, which settles it")
    elif lacking:
        whole = replace(whole, verdict=NOT_TESTABLE, why=absent)
    return Finding(claim, whole, families)


def _settled(claim: Claim, m: Measured) -> bool:
    """Whether a claim about every cell falls with one of those that there are."""
    return m.worse > 0 and (claim.kind == "every" or (claim.kind == "never_worse" and m.within < m.units))


def _found(claim: Claim, evidence: Sequence[Group], metric: str, places: set[Place]) -> list[Atom]:
    found = atoms(evidence, claim.first, claim.second, metric, places)
    return contrast(found, *claim.contrast) if claim.contrast else found


def _measure(claim: Claim, found: list[Atom]) -> Measured:
    return measure(found, sign=claim.sign, unit=claim.unit, weigh=claim.weigh, against=claim.against)


def _part(claim: Claim, evidence: Sequence[Group], found: list[Atom], places: set[Place], scope: str) -> Part:
    measured = _measure(claim, found)
    mine = {p for p in places if p[:2] in {(a.task, a.carrier) for a in found}}
    others = {label: _found(claim, evidence, metric, mine) for label, metric in _companions(claim.metric).items()}
    beside = tuple((label, _measure(claim, other)) for label, other in others.items() if other)
    verdict, why = _verdict(claim, measured)
    return Part(scope if scope == "all" else _scope(scope, found, claim), verdict, why, measured, beside)


def _companions(metric: str) -> dict[str, str]:
    """Companions of a metric: label -> metric."""
    if metric == "recovery":
        return {"robust": "recovery_robust", "noise floor": "recovery_null"}
    return {"raw": metric.replace("_safe", "")} if "_safe" in metric else {}


def _scope(family: str, found: list[Atom], claim: Claim) -> str:
    """A family, with how much of it there is where it is not all."""
    tasks = {a.task for a in found}
    carriers = [carrier for carrier in CARRIERS if carrier in {a.carrier for a in found}]
    asked = [task for task in TASKS[family] if task in claim.tasks]
    parts = [f"{len(tasks)} of {len(asked)} tasks"] if len(tasks) < len(asked) else []
    parts += [", ".join(carriers)] if len(carriers) < len(claim.carriers) else []
    for name, words in (("trained", "trained agents"), ("ranges", "other drift ranges")):
        marked = [task for task in asked if any(a.task == task and getattr(a.group, name) for a in found)]
        parts += [f"{words} on {', '.join(marked)}"] if marked else []
    return f"{family} ({'; '.join(parts)})" if parts else family


def _verdict(claim: Claim, m: Measured) -> tuple[str, str]:
    """The verdict on what was measured, and the reason in words."""
    ends = [claim.sign * end for end in (m.low, m.high) if end is not None]
    side = "" if len(ends) < 2 else "claimed" if min(ends) > 0 else "other" if max(ends) < 0 else ""
    cells = f"{m.better} better, {m.worse} worse, {m.not_significant} not significant of {m.units}"
    words = {"claimed": "the difference is on the claimed side", "other": "the difference goes the other way"}
    pooled = words.get(side, "the interval holds zero" if len(ends) == 2 else f"fewer than {FEWEST} common seeds")
    few = m.fewest < ENOUGH
    if claim.kind == "question":
        return {"claimed": BETTER, "other": WORSE}.get("" if few else side, NOT_SIGNIFICANT), cells
    holds = {
        "mean": side == "claimed",
        "every": m.better == m.units,
        "most": side == "claimed" and 2 * m.better > m.units,
        "never_worse": m.within == m.units,
    }[claim.kind]
    margin = f"{m.within} of {m.units} above the margin of -{MARGIN:.0%}"
    own = {"mean": pooled, "most": f"{cells}; {pooled}", "never_worse": f"{margin}; {cells}"}
    why = own.get(claim.kind, cells)
    if few:
        return NOT_TESTABLE, f"{why}; fewer than {ENOUGH} pairs of runs"
    return (REPRODUCED if holds else NOT_REPRODUCED), why
