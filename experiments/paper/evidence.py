"""Runs as evidence: methods found by what they are, and paired differences pooled as `docs/metrics.md` prescribes."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from aesjax.schedules import SCHEDULES
from experiments.measure import stats
from experiments.measure.comparisons import OUTCOMES, Contrast, best_of, contrasts
from experiments.measure.curves import nan_mean
from experiments.measure.study import STEADY, carrier_of

CARRIERS = ("SAC", "PPO", "SQL", "MEow")
PATTERNS = ("abrupt", "linear", "periodic", "mixed")  # without the steady one
#: The paper's families and their tasks, by our names.
TASKS: Mapping[str, tuple[str, ...]] = {
    "toy": ("toy",),
    "mujoco": ("hopper", "halfcheetah", "walker2d", "ant", "humanoid"),
    "isaac": (
        *("isaac_ant", "isaac_humanoid", "isaac_ingenuity"),
        *("isaac_anymal", "isaac_allegro_hand", "isaac_franka_cabinet"),
    ),
}
FAMILY_OF = {task: family for family, tasks in TASKS.items() for task in tasks}
#: A claim of no cost needs an interval within this share of the baseline's gain over the random policy without drift.
MARGIN = 0.05
FEWEST = 3  # pairs of runs below which a cell says nothing
NAN = float("nan")
#: Seed -> value of one run, NaN where it has none.
Values = dict[int, float]
#: (task, carrier, pattern)
Place = tuple[str, str, str]


class Spec(NamedTuple):
    """Identity of a method apart from its label: its parts, and the options that differ from the defaults."""

    rule: str  # as in `--schedules`, without options; "" is the carrier's own weight
    options: tuple[tuple[str, str], ...] = ()


def of(rule: str, **options: str | float) -> Spec:
    """A method by its rule and the options that it must have."""
    return Spec(rule, tuple((name, str(value)) for name, value in options.items()))


BASELINE = Spec("")


def _parts_of(rule: str) -> tuple[str, ...]:
    """A rule with its adaptations in alphabetical order: ``aes_c+recent+refresh`` is ``aes_c+refresh+recent``.

    >>> _parts_of("permuted:of=aes_c+recent+refresh")
    ('permuted:of=aes_c', 'recent', 'refresh')
    """
    first, *adaptations = rule.split("+")
    return (first, *sorted(adaptations))


def _same(ours: str, theirs: str) -> bool:
    """Whether two options have the same value: 1e-5 is 0.00001."""
    try:
        return float(ours) == float(theirs)
    except ValueError:
        return ours == theirs


class Group:
    """Runs of one task that may be compared: equal horizon, sizes and settings, from one study or several."""

    def __init__(self, runs: pl.DataFrame) -> None:
        self.runs = runs
        first = runs.row(0, named=True)
        self.task, self.preset, self.steps = first["task"], first["preset"], first["steps"]
        self.trained, self.ranges = first["trained"], "=" in first["channels"]  # of the drift: others than the task's
        self._methods = runs.unique("method", maintain_order=True).rows(named=True)
        self._parts = runs.partition_by("method", "pattern", as_dict=True)

    def named(self, carrier: str, spec: Spec) -> str | None:
        """The method of this carrier that ``spec`` describes, or None."""
        own = [row for row in self._methods if carrier_of(row["method"]) == carrier]
        if spec == BASELINE:
            return carrier if any(row["method"] == carrier for row in own) else None
        same = (row for row in own if _parts_of(row["schedule"]) == _parts_of(spec.rule) and _has(row, spec))
        return next((row["method"] for row in same), None)

    def values(self, metric: str, method: str, pattern: str) -> Values:
        """One metric of all seeds of a method under a pattern."""
        part = self._parts.get((method, pattern))
        return {} if part is None else dict(part.select("seed", metric).iter_rows())

    def best_constant(self, carrier: str, pattern: str) -> str | None:
        """The constant weight of highest mean return here, chosen in hindsight; None where there are not two."""
        own = [row["method"] for row in self._methods if row["constant"] and carrier_of(row["method"]) == carrier]
        scores = {name: {pattern: _finite(self.values("mean_return", name, pattern))} for name in own}
        present = [name for name in own if scores[name][pattern]]
        return best_of(scores, present, pattern) if len(present) > 1 else None


def _finite(values: Values) -> Values:
    return {seed: value for seed, value in values.items() if math.isfinite(value)}


def _has(row: Mapping[str, str], spec: Spec) -> bool:
    """Whether a method has the options asked for and no others; one that its variant does not tell is the default."""
    options = dict(part.split("=", 1) for part in row["variant"].split(",") if "=" in part)
    known = SCHEDULES.get(spec.rule.partition("+")[0])  # none: a baseline or a control
    defaults = {"q": 0.9, "base": 0.2, **(known.signature.defaults if known else {}), **json.loads(row["defaults"])}
    wanted = dict(spec.options)
    return set(options) <= set(wanted) and all(
        _same(options.get(name, str(defaults.get(name, ""))), value) for name, value in wanted.items()
    )


def groups_of(runs: pl.DataFrame) -> list[Group]:
    """All groups, those with the longest horizon first, then those with the most runs."""
    parts = runs.partition_by("group", "task", "steps", maintain_order=True)
    return sorted(map(Group, parts), key=lambda group: (-group.steps, -group.runs.height))


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
    within: int  # units whose interval excludes a loss beyond `MARGIN`; of floor-corrected nAUC only
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


def atoms(groups: Sequence[Group], first: Side, second: Side, metric: str, places: Iterable[Place]) -> list[Atom]:
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
        for group in (each for each in groups if each.task == task):
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
        float(np.sum(weights * [np.mean([at_level(side(a), a) for a in own[task]]) for task in tasks]))
        for side in (lambda a: a.second, lambda a: a.first)
    ]
    tested, margins = _tested(found, unit, sign)
    outcomes = [contrast.outcome for contrast in tested.values()]
    within = sum(contrast.interval.low > -margins[key] for key, contrast in tested.items())
    low, high = (end if math.isfinite(end) else None for end in interval[1:])
    better, worse, rest = (outcomes.count(outcome) for outcome in OUTCOMES)
    fewest = min(len(atom.difference) for atom in found)
    return Measured(interval.value, low, high, (levels[0], levels[1]), better, worse, rest, within, fewest)


def at_level(values: Values, atom: Atom) -> float:
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


_Unit = tuple[str, ...]


def _tested(found: Sequence[Atom], unit: Sequence[str], sign: int) -> tuple[dict[_Unit, Contrast], dict[_Unit, float]]:
    """Per unit the contrast by the claimed direction, corrected over all units of the claim, and its margin."""
    units: dict[_Unit, list[Atom]] = {}
    for atom in found:
        names = {"family": FAMILY_OF[atom.task], **atom._asdict()}
        units.setdefault(tuple(names[name] for name in unit), []).append(atom)
    means = {u: sign * np.array(list(_by_seed([a.difference for a in own]).values())) for u, own in units.items()}
    margins = {u: MARGIN * float(np.mean([_gain(atom) for atom in own])) for u, own in units.items()}
    return contrasts(means), margins


def _gain(atom: Atom) -> float:
    """The carrier's gain over the random policy without drift, in floor-corrected nAUC; NaN where it has none."""
    values = atom.group.values("nauc_task_safe", atom.carrier, STEADY) if atom.group else {}
    return float(np.mean(list(values.values()) or [NAN]))


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
