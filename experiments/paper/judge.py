"""From a claim and the evidence to a verdict, on all cells of the claim and family by family."""

from dataclasses import dataclass, replace

import polars as pl

from experiments.measure.comparisons import BETTER, ENOUGH, UNDECIDED, WORSE
from experiments.paper.claims import Claim
from experiments.paper.design import TASKS
from experiments.paper.evidence import (
    CARRIERS,
    FEWEST,
    MARGIN,
    Evidence,
    Measured,
    Place,
    contrast,
    expected,
    measure,
    missing,
)

REPRODUCED, NOT_REPRODUCED, NOT_TESTABLE = "reproduced", "not reproduced", "not testable here"
#: Carriers for which the authors' code has a family.
RELEASED = {"toy": ("MEow",), "mujoco": ("SAC", "PPO", "MEow"), "isaac": ("SAC", "MEow")}
CODE = "released code"
_WITH_CODE = pl.DataFrame(
    [(task, carrier) for family, carriers in RELEASED.items() for task in TASKS[family] for carrier in carriers],
    ["task", "carrier"],
    orient="row",
)
ABSENT, IDLE = "no runs of", "no agents that learned for"  # begin a reason


@dataclass(frozen=True)
class Part:
    """A verdict on what there is of one family, or of all of them."""

    scope: str  # "all" families, or one of them with how many of its tasks and which carriers
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
    released: Part | None = None  # on the tasks and carriers of the authors' code


def judge(claim: Claim, evidence: Evidence) -> Finding:
    """The verdict on a claim.

    On all its cells together it needs runs of all of them, and is judged on those where agents learned; only a claim
    about every cell falls with a single one. A claim without `everywhere`, a family, and the tasks and carriers with
    released code are judged on the runs that exist. Nothing with fewer than `FEWEST` pairs of runs counts,
    and fewer than `ENOUGH` settle no claim.
    """
    if claim.untestable:
        return Finding(claim, Part("all", NOT_TESTABLE, claim.untestable), ())
    places = expected(claim.patterns, claim.carriers, claim.tasks)
    found = _found(claim, evidence, claim.metric, places)
    ran = _found(claim, evidence, "mean_return", places, learned=False)  # of every run
    lacking = missing(places, _seen(claim, ran, places)) if claim.everywhere else ""
    idle = missing(places, _seen(claim, found, places))
    families = tuple(
        _part(claim, evidence, own, places, family)
        for family, tasks in TASKS.items()
        if not (own := found.filter(pl.col("task").is_in(tasks))).is_empty() and not claim.against
    )
    absent = f"{ABSENT} {lacking}" if lacking else f"{IDLE} {idle}"
    sides = {task in claim.against for task in found["task"]}
    if found.is_empty() or (claim.against and sides != {True, False}):
        return Finding(claim, Part("all", NOT_TESTABLE, absent), ())
    coded = found.join(_WITH_CODE, on=["task", "carrier"], how="semi")
    released = None if coded.is_empty() or claim.against else _part(claim, evidence, coded, places, CODE)
    alone = len(families) == 1  # on the results of one family both verdicts are the same
    whole = families[0] if alone else _part(claim, evidence, found, places, "all")
    if claim.kind == "question":
        whole = replace(whole, why=f"{whole.why}; {IDLE} {idle}") if idle else whole
    elif lacking and whole.measured and _settled(claim, whole.measured):
        whole = replace(whole, verdict=NOT_REPRODUCED, why=f"{whole.why}, which settles it")
    elif lacking:
        whole = replace(whole, verdict=NOT_TESTABLE, why=absent)
    elif idle and claim.everywhere:
        asked, learned = len({place[:2] for place in places}), found.n_unique(["task", "carrier"])
        whole = replace(whole, why=f"{whole.why}; counted on {learned} of {asked} pairs of task and carrier")
    return Finding(claim, whole, families, released)


def _settled(claim: Claim, m: Measured) -> bool:
    """Whether a claim about every cell falls with one of those that there are."""
    return m.worse > 0 and (claim.kind == "every" or (claim.kind == "never_worse" and m.within < m.units))


def _found(claim: Claim, evidence: Evidence, metric: str, places: set[Place], learned: bool = True) -> pl.DataFrame:
    found = evidence.pairs(claim.first, claim.second, metric, places, learned)
    return contrast(found, *claim.contrast) if claim.contrast else found


def _seen(claim: Claim, found: pl.DataFrame, places: set[Place]) -> set[Place]:
    """The cells that were found; of a contrast, which is of all patterns together, every pattern of a carrier."""
    seen = set(found.select("task", "carrier", "pattern").iter_rows())
    carriers = {place[:2] for place in seen}
    return {place for place in places if place[:2] in carriers} if claim.contrast else seen


def _measure(claim: Claim, found: pl.DataFrame) -> Measured:
    return measure(found, sign=claim.sign, unit=claim.unit, weigh=claim.weigh, against=claim.against)


def _part(claim: Claim, evidence: Evidence, found: pl.DataFrame, places: set[Place], scope: str) -> Part:
    measured = _measure(claim, found)
    there = set(found.select("task", "carrier").iter_rows())
    mine = {place for place in places if place[:2] in there}
    others = {label: _found(claim, evidence, metric, mine) for label, metric in _companions(claim.metric).items()}
    beside = tuple((label, _measure(claim, other)) for label, other in others.items() if len(other))
    verdict, why = _verdict(claim, measured)
    return Part(
        scope if scope in ("all", CODE) else _scope(scope, evidence.runs, found, claim), verdict, why, measured, beside
    )


def _companions(metric: str) -> dict[str, str]:
    """Companions of a metric: label -> metric."""
    if metric == "recovery":
        return {"robust": "recovery_robust", "noise floor": "recovery_null"}
    return {"raw": metric.replace("_safe", "")} if "_safe" in metric else {}


def _scope(family: str, runs: pl.DataFrame, found: pl.DataFrame, claim: Claim) -> str:
    """A family, with how much of it there is where it is not all, and how its runs differ from the paper's."""
    tasks, carriers = set(found["task"]), [carrier for carrier in CARRIERS if carrier in set(found["carrier"])]
    asked, behind = [t for t in TASKS[family] if t in claim.tasks], runs.join(found, on=["rank", "task"], how="semi")
    parts = [f"{len(tasks)} of {len(asked)} tasks"] if len(tasks) < len(asked) else []
    parts += [", ".join(carriers)] if len(carriers) < len(claim.carriers) else []
    other = {"trained agents": pl.col("trained"), "other drift ranges": pl.col("channels").str.contains("=")}
    for words, test in other.items():
        marked = set(behind.filter(test)["task"])
        parts += [f"{words} on {', '.join(task for task in asked if task in marked)}"] if marked else []
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
        return {"claimed": BETTER, "other": WORSE}.get("" if few else side, UNDECIDED), cells
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
