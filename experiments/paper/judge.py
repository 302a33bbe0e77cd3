"""From a claim and the evidence to a verdict, on all settings of the claim and family by family."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from experiments.measure.comparisons import BETTER, ENOUGH, MARGIN, NO_DATA, UNDECIDED, WORSE, contrasts
from experiments.paper.claims import Claim
from experiments.paper.conditions import HORIZON, POWER, counted
from experiments.paper.design import TASKS
from experiments.paper.evidence import CARRIERS, CELL, FEWEST, Evidence, Measured, Place, contrast, expected, measure

REPRODUCED, CONTRADICTED = "reproduced", "contradicted"
VERDICTS = REPRODUCED, CONTRADICTED, UNDECIDED
#: Carriers for which the authors' code has a family.
RELEASED = {"toy": ("MEow",), "mujoco": ("SAC", "PPO", "MEow"), "isaac": ("SAC", "MEow")}
CODE = "released code"
#: A task and a carrier.
Pair = tuple[str, str]
_WITH_CODE = {pair for family, carriers in RELEASED.items() for pair in product(TASKS[family], carriers)}
#: Share of its pairs of task and carrier on which a claim has to be judged.
SHARE = 0.5


@dataclass(frozen=True)
class Part:
    """A verdict on what there is of one family, or of all of them."""

    scope: str  # "all" families, or one of them with how many of its tasks and which carriers
    verdict: str
    why: str
    reason: str = ""  # of an undecided verdict: the condition that most settings miss, or `POWER`
    left_out: Mapping[str, int] = field(default_factory=dict)  # reason -> settings that do not count
    measured: Measured | None = None
    beside: tuple[tuple[str, Measured], ...] = ()  # the same in other metrics, and on the runs of other records


@dataclass(frozen=True)
class Finding:
    """Verdict on a claim."""

    claim: Claim
    whole: Part
    families: tuple[Part, ...]
    released: Part | None = None  # on the tasks and carriers of the authors' code


@dataclass(frozen=True)
class _Runs:
    """The settings of a claim in one record: methods of those that count, and reasons why the others do not."""

    record: str
    compared: pl.DataFrame
    reasons: Mapping[Place, str]

    def values(self, claim: Claim, evidence: Evidence, metric: str, pairs: set[Pair]) -> pl.DataFrame:
        rows = pl.DataFrame(sorted(pairs), {"task": pl.String, "carrier": pl.String}, orient="row")
        found = evidence.values(self.compared.join(rows, on=rows.columns, how="semi"), metric)
        return contrast(found, *claim.contrast) if claim.contrast else found


def judge(claim: Claim, evidence: Evidence) -> Finding:
    """The verdict on a claim, by the runs of one record.

    It is judged on the settings that count (`experiments.paper.conditions`), which need to be of at least half of its
    pairs of task and carrier; a claim about every task falls with a single one. A claim with neither `everywhere` nor a
    premise is judged on the settings that count, however few they are. A family, and the tasks and carriers with
    released code, are judged on their pairs with runs. Nothing with fewer than `FEWEST` pairs of runs counts, and fewer
    than `ENOUGH` settle no claim.
    """
    if claim.untestable:
        return Finding(claim, Part("all", UNDECIDED, claim.untestable, NO_DATA), ())
    places = expected(claim.patterns, claim.carriers, claim.tasks)
    records = evidence.compared(claim.first, claim.second, places)
    runs = [_Runs(str(frame["record"].first() or ""), *counted(claim, evidence, frame, places)) for frame in records]
    ran = set(records[0].select("task", "carrier").iter_rows())
    families = {family: {pair for pair in ran if pair[0] in tasks} for family, tasks in TASKS.items()}
    scopes = {} if claim.against else {scope: pairs for scope, pairs in families.items() if pairs}
    parts = tuple(_part(claim, evidence, runs, pairs, scope) for scope, pairs in scopes.items())
    if len(parts) == 1 and not claim.everywhere:  # on the results of one family both verdicts are the same
        whole = parts[0]
    else:
        whole = _part(claim, evidence, runs, {place[:2] for place in places}, "all")
    coded = set() if claim.against else ran & _WITH_CODE
    return Finding(claim, whole, parts, _part(claim, evidence, runs, coded, CODE) if coded else None)


def settings(claim: Claim, evidence: Evidence) -> list[dict[str, Any]]:
    """The settings of a claim, first those that count; empty if no study can decide the claim.

    Keys: task, carrier, pattern, and the reason why the setting does not count; else outcome (better: on the claimed
    side, after Holm over the settings that count), second and first (means), difference and its 95 % interval.
    """
    if claim.untestable:
        return []
    places = expected(claim.patterns, claim.carriers, claim.tasks)
    frame = evidence.compared(claim.first, claim.second, places)[0]
    compared, reasons = counted(claim, evidence, frame, places)
    parts = evidence.values(compared, claim.metric).partition_by(CELL[:3], as_dict=True)
    tests = contrasts({place: claim.sign * part["difference"].to_numpy() for place, part in sorted(parts.items())})
    rows: list[dict[str, Any]] = []
    for place, test in tests.items():
        means = parts[place].select(pl.col("second", "first", "difference").mean()).row(0, named=True)
        ends = sorted((claim.sign * test.interval.low, claim.sign * test.interval.high))
        rows.append(dict(zip(CELL, place, strict=False)) | {"outcome": test.outcome, **means, "interval": ends})
    return rows + [dict(zip(CELL, place, strict=False), reason=why) for place, why in sorted(reasons.items()) if why]


def _part(claim: Claim, evidence: Evidence, runs: Sequence[_Runs], pairs: set[Pair], scope: str) -> Part:
    first, *others = runs
    left_out = Counter(reason for place, reason in sorted(first.reasons.items()) if reason and place[:2] in pairs)
    words = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
    untrained = [place for place, reason in first.reasons.items() if reason == HORIZON and place[:2] in pairs]
    if hours := evidence.hours(untrained):
        words += f"; about {hours:,.0f} h on the machines of the record would train the agents that have not learned"
    lead = next(iter(left_out.most_common(1)), (POWER,))[0]
    found = first.values(claim, evidence, claim.metric, pairs)
    if found.is_empty() or (claim.against and found["task"].is_in(claim.against).n_unique() < 2):
        return Part(scope, UNDECIDED, f"nothing to judge it by; settings that do not count: {words}", lead, left_out)
    companions = _companions(claim.metric).items()
    beside = [(label, first.values(claim, evidence, metric, pairs)) for label, metric in companions]
    names = Counter(Path(other.record).name for other in others)
    for other in others:
        name = Path(other.record).name
        label = name if names[name] == 1 else other.record
        beside.append((label or "studies", other.values(claim, evidence, claim.metric, pairs)))
    compared = tuple((label, _measure(claim, rows)) for label, rows in beside if len(rows))
    measured, judged = _measure(claim, found), found.n_unique(["task", "carrier"])
    complete = judged >= SHARE * len(pairs) or not (claim.everywhere or claim.premise)
    verdict, why = verdict_on(claim, measured, complete)
    if left_out:
        why += f"; judged on {judged} of {len(pairs)} pairs of task and carrier; settings that do not count: {words}"
    reason = "" if verdict != UNDECIDED else POWER if complete else lead
    scope = scope if scope in ("all", CODE) else _scope(scope, evidence.runs, found, claim)
    return Part(scope, verdict, why, reason, left_out, measured, compared)


def _measure(claim: Claim, found: pl.DataFrame) -> Measured:
    return measure(found, sign=claim.sign, unit=claim.unit, weigh=claim.weigh, against=claim.against)


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


def verdict_on(claim: Claim, m: Measured, complete: bool) -> tuple[str, str]:
    """The verdict on the settings that were measured, and its ground in words.

    Args:
      complete: whether they are enough of the claim for a verdict on all of it.
    """
    ends = [claim.sign * end for end in (m.low, m.high) if end is not None]
    side = "" if len(ends) < 2 else "claimed" if min(ends) > 0 else "other" if max(ends) < 0 else ""
    effect = claim.effect
    short = len(ends) == 2 and effect is not None and max(ends) < claim.sign * effect - claim.rounding
    cells = f"{m.better} better, {m.worse} worse, {m.undecided} undecided of {m.units}"
    words = {"claimed": "the difference is on the claimed side", "other": "the difference goes the other way"}
    zero = "the interval contains zero" + (", but not the paper's difference" if short else "")
    pooled = words.get(side, zero if len(ends) == 2 else f"fewer than {FEWEST} common seeds")
    few = m.fewest < ENOUGH
    if claim.kind == "question":
        return {"claimed": BETTER, "other": WORSE}.get("" if few else side, UNDECIDED), cells
    holds = {
        "mean": side == "claimed",
        "every": m.better == m.units,
        "most": side == "claimed" and 2 * m.better > m.units,
        "never_worse": m.within == m.units,
    }[claim.kind]
    one = {"every": m.worse > 0, "never_worse": m.beyond > 0}.get(claim.kind, False)
    refuted = claim.kind != "never_worse" and (side == "other" or (short and side != "claimed"))
    margin = f"{m.within} of {m.units} above the margin of -{MARGIN:.0%}"
    grounds = {"mean": pooled, "never_worse": f"{margin}; {cells}"}
    why = grounds.get(claim.kind, f"{cells}; {pooled}")
    if few:
        return UNDECIDED, f"{why}; fewer than {ENOUGH} pairs of runs"
    if complete and holds:
        return REPRODUCED, why
    falls = (one and ("task" in claim.unit or complete)) or (complete and refuted)
    return (CONTRADICTED if falls else UNDECIDED), why
