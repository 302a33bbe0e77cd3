"""Paired differences between what two methods earned, pooled over the paper's cells as `docs/metrics.md` prescribes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from experiments.measure import stats
from experiments.measure.comparisons import OUTCOMES, outcome_of
from experiments.measure.curves import nan_mean
from experiments.paper.evidence import CARRIERS, FAMILY_OF, PATTERNS, TASKS, Evidence, Group, Spec, Values

FEWEST = 3  # pairs of runs below which a cell says nothing
NAN = float("nan")
#: (task, carrier, pattern)
Place = tuple[str, str, str]


class Side(NamedTuple):
    """One side of a comparison: the mean over methods, or zero where there is none."""

    methods: tuple[Spec, ...] = ()
    pattern: str = ""  # under which they are measured; empty: the cell's own
    hindsight: bool = False  # instead of methods the best constant weight of the cell, chosen in hindsight

    def members(self, group: Group, carrier: str, own: str) -> list[tuple[str, str]]:
        """(method, pattern) whose mean it is in a cell; empty where the group lacks one of them."""
        if self.hindsight:
            names = [group.best_constant(carrier, own)]
        else:
            names = [group.named(carrier, spec) for spec in self.methods]
        return [(name, self.pattern or own) for name in names if name is not None] if None not in names else []


NOTHING = Side()  # zero, for the level of the other side


class Atom(NamedTuple):
    """One task, carrier and pattern: both sides and their difference, by seed."""

    task: str
    carrier: str
    pattern: str
    first: Values
    second: Values
    group: Group | None = None

    @property
    def difference(self) -> Values:
        """First minus second, over the seeds at which both have a value."""
        apart = {seed: value - self.second[seed] for seed, value in self.first.items() if seed in self.second}
        return {seed: value for seed, value in apart.items() if math.isfinite(value)}


@dataclass(frozen=True)
class Measured:
    """First minus second, pooled; in units of the metric."""

    value: float
    low: float | None  # 95 % interval, None where there is none
    high: float | None
    levels: tuple[float, float]  # mean of the second side, of the first
    better: int  # units in which the claimed direction is significant after Holm's correction
    worse: int
    not_significant: int
    fewest: int  # pairs of runs in the atom that has fewest

    @property
    def units(self) -> int:
        """Cells that were tested."""
        return self.better + self.worse + self.not_significant


def expected(
    patterns: Sequence[str] = PATTERNS, carriers: Sequence[str] = CARRIERS, tasks: Iterable[str] = FAMILY_OF
) -> set[Place]:
    """All cells that a claim is about."""
    return {(task, carrier, pattern) for task in tasks for carrier in carriers for pattern in patterns}


def atoms(evidence: Evidence, first: Side, second: Side, metric: str, places: Iterable[Place]) -> list[Atom]:
    """The settings among these with at least `FEWEST` pairs of runs.

    Of several groups of a task the one counts in which most patterns of a carrier can be compared; of equals the one
    with the longest horizon.

    Args:
      metric: a name of `docs/metrics.md`, or several whose values are added, joined by ``+``.
    """
    asked: dict[tuple[str, str], list[str]] = {}
    for task, carrier, pattern in sorted(places):
        asked.setdefault((task, carrier), []).append(pattern)
    found: list[Atom] = []
    for (task, carrier), patterns in asked.items():
        best: list[Atom] = []
        for group in evidence.of_task(task):
            own = [_atom(group, carrier, pattern, first, second, metric) for pattern in patterns]
            own = [atom for atom in own if len(atom.difference) >= FEWEST]
            best = own if len(own) > len(best) else best
        found += best
    return found


def _atom(group: Group, carrier: str, pattern: str, first: Side, second: Side, metric: str) -> Atom:
    ours = _mean(group, first.members(group, carrier, pattern), metric)
    zero = dict.fromkeys(ours, 0.0)
    theirs = zero if second == NOTHING else _mean(group, second.members(group, carrier, pattern), metric)
    return Atom(group.task, carrier, pattern, ours, theirs, group)


def _mean(group: Group, of: Sequence[tuple[str, str]], metric: str) -> Values:
    """The mean over methods, by seed, over the seeds that all of them have."""
    columns = []
    for method, pattern in of:
        summed = [group.values(name, method, pattern) for name in metric.split("+")]
        common = set(summed[0]).intersection(*summed)
        columns.append({seed: sum(values[seed] for values in summed) for seed in common})
    return _by_seed(columns) if columns else {}


def contrast(found: Sequence[Atom], high: Sequence[str], low: Sequence[str]) -> list[Atom]:
    """Of every task and carrier how much larger the difference is under the patterns ``high`` than under ``low``."""
    cells = {(a.task, a.carrier, a.pattern): a for a in found}
    made = []
    for task, carrier in dict.fromkeys((a.task, a.carrier) for a in found):
        if all((task, carrier, p) in cells for p in (*high, *low)):
            first, second = (_by_seed([cells[task, carrier, p].difference for p in side]) for side in (high, low))
            atom = cells[task, carrier, high[0]]
            made.append(atom._replace(pattern="+".join(high), first=first, second=second))
    return [atom for atom in made if len(atom.difference) >= FEWEST]


def measure(
    found: Sequence[Atom],
    *,
    sign: int = 1,
    unit: Sequence[str] = ("family", "carrier", "pattern"),
    weigh: str = "family",
    against: Sequence[str] = (),
) -> Measured:
    """Pool atoms: one difference with its interval, and a Holm-corrected test per unit.

    Within a seed of a task differences are averaged first, over carriers and patterns, which share its drift; seeds are
    resampled task by task. On one task with fewer than ten seeds the interval is Student's.

    Args:
      found: at least one.
      sign: 1 where the claim says that the first is higher, -1 where lower.
      unit: what makes one test: some of family, task, carrier, pattern.
      weigh: ``family`` or ``task``: what weighs equally in the mean.
      against: tasks whose mean is subtracted from that of all others, instead of one mean over all.
    """
    tasks = list(dict.fromkeys(atom.task for atom in found))
    own = {task: [atom for atom in found if atom.task == task] for task in tasks}
    columns = [_by_seed([a.difference for a in own[task]]) for task in tasks]
    seeds = sorted(set().union(*columns))
    rows = np.array([[column.get(seed, NAN) for seed in seeds] for column in columns])
    weights = _weights(tasks, weigh, against)
    small = len(tasks) == 1 and len(seeds) < stats.SMALL
    statistic = partial(_weighted, weights=weights)
    interval = (
        stats.t_interval(rows) if small else stats.bootstrap_interval(np.random.default_rng(0), [rows], statistic)
    )
    levels = [
        float(np.sum(weights * [np.mean([_at(side(a), a) for a in own[task]]) for task in tasks]))
        for side in (lambda a: a.second, lambda a: a.first)
    ]
    outcomes = _outcomes(found, unit, sign)
    low, high = (end if math.isfinite(end) else None for end in interval[1:])
    better, worse, rest = (outcomes.count(outcome) for outcome in OUTCOMES)
    fewest = min(len(atom.difference) for atom in found)
    return Measured(interval.value, low, high, (levels[0], levels[1]), better, worse, rest, fewest)


def _at(values: Values, atom: Atom) -> float:
    """Mean over the seeds that are compared."""
    return float(np.mean([values[seed] for seed in atom.difference]))


def _weights(tasks: Sequence[str], weigh: str, against: Sequence[str]) -> np.ndarray:
    if against:
        down = sum(task in against for task in tasks)
        return np.array([-1 / down if task in against else 1 / (len(tasks) - down) for task in tasks])
    families = [FAMILY_OF[task] for task in tasks]
    weights = np.array([1 / families.count(f) if weigh == "family" else 1.0 for f in families])
    return weights / weights.sum()


def _weighted(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(..., M, n) -> (...): weighted mean over tasks of the means over seeds."""
    return np.sum(nan_mean(rows, axis=-1) * weights, axis=-1)


def _by_seed(columns: Sequence[Mapping[int, float]]) -> Values:
    """Mean over columns by seed, over the seeds that all of them have."""
    seeds = set(columns[0]).intersection(*columns)
    return {seed: float(np.mean([column[seed] for column in columns])) for seed in sorted(seeds)}


def _outcomes(found: Sequence[Atom], unit: Sequence[str], sign: int) -> list[str]:
    """Per unit an outcome of `outcome_of`: a paired t test over seeds, corrected over all units."""
    units: dict[tuple[str, ...], list[Values]] = {}
    for atom in found:
        names = {"family": FAMILY_OF[atom.task], **atom._asdict()}
        units.setdefault(tuple(names[name] for name in unit), []).append(atom.difference)
    means = [np.array(list(_by_seed(columns).values())) for columns in units.values()]
    adjusted = stats.holm([stats.paired_t_p(apart) for apart in means])
    return [
        outcome_of(sign * float(np.mean(apart)), p, "", len(apart)) for apart, p in zip(means, adjusted, strict=True)
    ]


def missing(places: set[Place], found: Iterable[Atom | Place]) -> str:
    """Which cells of a claim there are no results for, in words; empty if none is missing."""
    there = {each[:3] for each in found}
    absent = places - there
    if not absent:
        return ""
    gone: list[str] = []
    for family, tasks in TASKS.items():
        asked = [task for task in tasks if any(place[0] == task for place in places)]
        without = [task for task in asked if not any(place[0] == task for place in there)]
        if asked and without == asked:
            gone.append(family)
            continue
        gone += without
        for task in (task for task in asked if task not in without):
            carriers = {c for t, c, _ in places if t == task} - {c for t, c, _ in there if t == task}
            names = "/".join(carrier for carrier in CARRIERS if carrier in carriers)
            gone += [f"{names} on {task}"] if names else []
            rest = sorted({p for t, c, p in absent if t == task and c not in carriers})
            gone += [f"{'/'.join(rest)} of some carriers on {task}"] if rest else []
    return ", ".join(gone)
