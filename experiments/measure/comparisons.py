"""Paired comparisons of methods at equal seeds: opponents, Holm's correction, outcomes in words."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.measure import stats
from experiments.measure.catalog import Metric, ordered
from experiments.measure.curves import Value, mean_return, nan_mean
from experiments.measure.metrics import UNCLEAR, UNSAFE, clearly_positive
from experiments.measure.runs import Acted
from experiments.measure.study import NAN, STEADY, RecordedStudy, RunKey

#: Column -> run -> its value.
Cells = dict[str, dict[RunKey, Value]]
#: One number per run (higher is better): method -> pattern -> seed -> score.
Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
#: Kind of opponent -> (task, pattern) -> method.
Opponents = dict[str, dict[tuple[str, str], str]]

BEST_CONSTANT, CONSTANT = "best_constant", "constant"
DETECTABLE = "detectable"  # kind of row
#: Metrics that say how a method set the entropy weight.
ACTED = ("saturation_min", "saturation_max", "mean_entropy_weight")

#: Outcomes, of which `outcome_of` returns one.
OUTCOMES = BETTER, WORSE, EQUIVALENT, EQUAL, UNDECIDED, NO_DATA = (
    "better",
    "worse",
    "equivalent",
    "equal",
    "undecided",
    "no data",
)
DECIDED = (BETTER, WORSE)
ENOUGH = 5  # seeds, the unit of replication
#: A difference is equivalent within this share of the agent's gain over random actions without drift.
MARGIN = 0.05
_LEVEL = 0.05


def outcome_of(
    interval: stats.Interval,
    p: float,
    seeds: int,
    *,
    gain: float = NAN,
    equal: bool = False,
    lower_is_better: bool = False,
) -> str:
    """One of `OUTCOMES`: the first that applies.

    No data: fewer than `ENOUGH` seeds. Equal: all differences are zero. Better, worse: p is below 5 %. Equal: both
    methods are constants of equal weight. Equivalent: the interval lies within `MARGIN` of the gain. Else undecided.

    Args:
      interval: 95 %, of the mean difference.
      p: after Holm's correction.
      seeds: with a pair of runs on every task.
      gain: of the agent without drift over random actions, in the unit of the difference; NaN: no margin.
      equal: whether both methods acted as constants of equal weight.
    """
    if seeds < ENOUGH:
        return NO_DATA
    if interval == (0.0, 0.0, 0.0):
        return EQUAL
    if p < _LEVEL:
        return BETTER if (interval.value < 0) == lower_is_better else WORSE
    if equal:
        return EQUAL
    return EQUIVALENT if -MARGIN * gain < interval.low and interval.high < MARGIN * gain else UNDECIDED


class TidyRow(NamedTuple):
    """A row of the tidy frame."""

    level: str  # "run" or "method"
    family: str
    task: str | None  # None: all tasks of the family
    method: str
    pattern: str
    seed: int | None
    metric: str  # column of a metric, after its kind of aggregate, before its opponent: ``paired:X:vs=KIND``
    value: float
    low: float | None  # 95 % interval
    high: float | None
    n_valid: int
    n_total: int
    reason: str
    flag: str


class Scope(NamedTuple):
    """Scope of an aggregate: one task, or all tasks of a family (``task`` is None)."""

    family: str
    task: str | None
    tasks: tuple[str, ...]

    def keys(self, study: RecordedStudy, method: str, pattern: str) -> list[RunKey]:
        """Keys of the aggregated runs."""
        return [
            k for k in study.runs if k.family == self.family and k.task in self.tasks and k[2:4] == (method, pattern)
        ]


def scopes(study: RecordedStudy) -> Iterator[Scope]:
    """Every family, preceded by its tasks if it has several."""
    for family in dict.fromkeys(k.family for k in study.runs):
        tasks = study.tasks(family)
        if len(tasks) > 1:
            yield from (Scope(family, task, (task,)) for task in tasks)
        yield Scope(family, None, tuple(tasks))


def matrix(
    study: RecordedStudy, column: Mapping[RunKey, Value], scope: Scope, method: str | Mapping[str, str], pattern: str
) -> np.ndarray:
    """(M, n) values, one column per seed of the study; NaN where a run is missing or has no value.

    Args:
      method: one for all tasks, or a map from task to method.
    """
    names = {task: method if isinstance(method, str) else method.get(task, "") for task in scope.tasks}
    seeds = study.seeds()
    values = np.full((len(names), len(seeds)), NAN)
    for i, (task, name) in enumerate(names.items()):
        for j, seed in enumerate(seeds):
            key = RunKey(scope.family, task, name, pattern, seed)
            if key in column:
                values[i, j] = column[key].value
    return values


def draw_interval(arrays: Sequence[np.ndarray], statistic: Callable, *, seed: int, replicates: int) -> stats.Interval:
    """Bootstrap with a new generator, so that an interval does not depend on other intervals of the study."""
    return stats.bootstrap_interval(np.random.default_rng(seed), arrays, statistic, replicates=replicates)


class Paired(NamedTuple):
    """Two methods at equal seeds under one pattern, in one metric."""

    ours: np.ndarray  # (M tasks, n seeds), NaN where a run has no value
    theirs: np.ndarray
    interval: stats.Interval  # of the mean difference
    p: float  # of the paired t test over seeds
    by_t: bool  # whether the interval is Student's: one task and fewer than ten pairs
    flag: str  # of a ratio without a verdict; else empty
    gain: float  # of the agent, as `gain_of`
    equal: bool  # whether both methods acted as constants of equal weight

    @property
    def difference(self) -> np.ndarray:
        """(M, n), NaN without a pair."""
        return self.ours - self.theirs

    @property
    def pairs(self) -> int:
        """Number of pairs of runs."""
        return int(np.sum(np.isfinite(self.difference)))

    @property
    def by_seed(self) -> np.ndarray:
        """(seeds,) mean differences over tasks, at the seeds with a pair on every task."""
        d = self.difference
        return np.mean(d[:, np.all(np.isfinite(d), axis=0)], axis=0)

    @property
    def is_test(self) -> bool:
        """Whether Holm's correction counts the comparison: it has data, and is no ratio without a verdict."""
        return len(self.by_seed) >= ENOUGH and not self.flag

    def outcome(self, p: float, *, lower_is_better: bool = False) -> str:
        """Outcome at a p-value after Holm's correction."""
        about = {"gain": self.gain, "equal": self.equal, "lower_is_better": lower_is_better}
        return outcome_of(self.interval, p, len(self.by_seed), **about)


def gain_of(study: RecordedStudy, cells: Cells, scope: Scope, method: str, metric: Metric) -> float:
    """Mean over seeds of the gain of a method's baseline over random actions without drift, in the metric's unit.

    NaN unless it is clearly positive (`experiments.measure.metrics.clearly_positive`), and of metrics in other units.
    """
    name = next((name for name in (study.baseline(method), method) if name in study.baselines), None)
    if name is None or metric.gain not in cells:
        return NAN
    floors = np.array([0.0 if metric.corrected else study.floors.get(task, NAN) for task in scope.tasks])
    gains = np.mean(matrix(study, cells[metric.gain], scope, name, STEADY) - floors[:, None], axis=0)
    return float(np.nanmean(gains)) if clearly_positive(gains) else NAN


def acted(study: RecordedStudy, cells: Cells, scope: Scope, method: str, pattern: str) -> Acted:
    """How a method set the entropy weight; `ACTED` are the columns that it needs."""
    means = (float(nan_mean(matrix(study, cells[name], scope, method, pattern).ravel())) for name in ACTED)
    return Acted(study.definitions[method], *means)


def paired(
    study: RecordedStudy,
    cells: Cells,
    scope: Scope,
    method: str,
    opponent: str | Mapping[str, str],
    pattern: str,
    metric: Metric,
    draw: Callable,
) -> Paired:
    """Compare two methods on the values of a metric by run; the interval is clipped to the metric's bounds.

    Args:
      cells: columns of the metric, of `ACTED` and of the metric's gain.
      opponent: one for all tasks, or a map from task to method.
      draw: interval of a statistic of arrays, `draw_interval` with seed and replicates.
    """
    column = cells[metric.name]
    ours, theirs = (matrix(study, column, scope, of, pattern) for of in (method, opponent))
    d = stats.paired_differences(ours, theirs)
    by_t = len(scope.tasks) == 1 and int(np.sum(np.isfinite(d))) < stats.SMALL
    interval = stats.t_interval(d) if by_t else draw([d], stats.mean)
    interval = stats.bounded(interval, *metric.bounds(study.segments_of(pattern), paired=True))
    opponents = {opponent} if isinstance(opponent, str) else {*opponent.values()} - {""}
    names, equal = {method, *opponents}, False
    if len(scope.tasks) == len(opponents) == 1:
        first, second = (acted(study, cells, scope, name, pattern) for name in (method, *opponents))
        equal = first.equals(second)
    runs = (v for k, v in column.items() if k.task in scope.tasks and k.pattern == pattern and k.method in names)
    flag = max((value.flag for value in runs), default="")
    pair = Paired(ours, theirs, interval, NAN, by_t, flag, gain_of(study, cells, scope, method, metric), equal)
    return pair._replace(p=stats.paired_t_p(pair.by_seed))


def comparisons(
    study: RecordedStudy,
    rows: Mapping[str, Metric],
    cells: Cells,
    scope: Scope,
    method: str,
    pattern: str,
    opponents: Opponents,
    draw: Callable,
) -> Iterator[TidyRow]:
    """Rows of the tidy frame without Holm's correction; ``X:vs=KIND`` for opponents other than the baseline.

    Args:
      rows: metrics by name.
    """
    baseline, compared = study.baseline(method), [row for row in ordered(rows) if row.comparable(pattern)]
    requested: list[tuple[str, Any, list[Metric]]] = [] if baseline is None else [("", baseline, compared)]
    for kind, cell in opponents.items():
        by_task = {task: cell.get((task, pattern), "") for task in scope.tasks}
        requested.append((f":vs={kind}", by_task, [row for row in compared if row.versus]))
    total, segments = len(scope.keys(study, method, pattern)), study.segments_of(pattern)
    for suffix, opponent, metrics in requested:
        names = opponent if isinstance(opponent, str) else " / ".join(dict.fromkeys(filter(None, opponent.values())))
        for metric in (metric for metric in metrics if metric.name in cells):
            pair = paired(study, cells, scope, method, opponent, pattern, metric, draw)
            if suffix and not pair.pairs:
                continue
            column = cells[metric.name]
            reason = _left_out(pair, [column.get(key) for key in scope.keys(study, method, pattern)])
            flag = f"baseline={names}" + (";lower_is_better" if metric.lower_is_better else "")
            for kind, interval in _statistics(pair, metric, segments, draw, brief=bool(suffix)).items():
                note = flag + (";t_interval" if kind == "paired" and pair.by_t else "")
                note += f";{pair.flag}" if pair.flag else ""
                note += f";{EQUAL}" if kind == "paired" and pair.equal else ""
                name, ends = f"{kind}:{metric.name}{suffix}", stats.numbers(interval)
                count = len(pair.by_seed) if kind in ("p", DETECTABLE) else pair.pairs
                head = ("method", scope.family, scope.task, method, pattern, None, name)
                yield TidyRow(*head, *ends, count, total, reason, note)


def _left_out(pair: Paired, values: Sequence[Value | None]) -> str:
    """Reason why not all runs of a method, with these values, are in a pair."""
    if pair.pairs:
        return "" if pair.pairs == len(values) else "unpaired_runs_left_out"
    reasons = {value.reason for value in values if value and value.reason}
    return ", ".join(sorted(reasons)) or "no_common_seed"


def _statistics(
    pair: Paired, metric: Metric, segments: float, draw: Callable, *, brief: bool
) -> dict[str, stats.Interval]:
    """Kind of comparison -> value and interval; ``brief``: without IQM and probabilities of improvement."""
    numbers = {"p": pair.p, DETECTABLE: detectable(pair.by_seed), "gain": pair.gain}
    shown = {kind: number for kind, number in numbers.items() if kind != "gain" or np.isfinite(number)}
    results = {"paired": pair.interval} | {kind: stats.Interval(x, NAN, NAN) for kind, x in shown.items()}
    if brief:
        return results
    sign = -1.0 if metric.lower_is_better else 1.0
    iqm = stats.bounded(draw([pair.difference], stats.iqm), *metric.bounds(segments, paired=True))
    shares = {
        "poi": stats.probability_of_improvement(sign * pair.ours, sign * pair.theirs),
        "poi_paired": stats.paired_probability_of_improvement(sign * pair.difference),
    }
    return results | {"paired_iqm": iqm} | {kind: stats.Interval(share, NAN, NAN) for kind, share in shares.items()}


def without_verdict(flag: str) -> bool:
    """Whether the flag of a row is that of a ratio without a verdict."""
    return UNSAFE in flag or UNCLEAR in flag


def with_holm(rows: list[TidyRow], asides: Collection[str] = ()) -> list[TidyRow]:
    """Append ``p_holm`` rows, adjusted within one metric and kind of opponent over all tasks (family rows: all
    families); ``detectable`` becomes that of Holm's first step. A ratio without a verdict and a comparison without
    data (fewer than `ENOUGH` seeds) are no tests of their group, and their ``p_holm`` is NaN.

    Args:
      rows: of `comparisons`.
      asides: constants and controls. They are adjusted separately, so that adding a control to a study changes no
        p-value of its methods.
    """
    groups: dict[tuple, list[TidyRow]] = {}
    for row in rows:
        kind, _, name = row.metric.partition(":")
        if kind in ("p", DETECTABLE):
            groups.setdefault((kind, name, row.task is None, row.method in asides), []).append(row)
    adjusted = [row for row in rows if not row.metric.startswith(f"{DETECTABLE}:")]
    for (kind, name, *_), group in groups.items():
        if kind == "p":
            values = [row.value if _is_test(row) else NAN for row in group]
            for row, p in zip(group, stats.holm(values), strict=True):
                adjusted.append(row._replace(metric=f"p_holm:{name}", value=float(p)))
        else:
            tests = sum(np.isfinite(row.value) and _is_test(row) for row in group)
            adjusted += [row._replace(value=_corrected(row.value, row.n_valid, tests)) for row in group]
    return adjusted


def _is_test(row: TidyRow) -> bool:
    return row.n_valid >= ENOUGH and not without_verdict(row.flag)


def detectable(differences: np.ndarray, tests: int = 1) -> float:
    """Smallest mean difference that the paired t test of these (n,) detects with probability 0.8 at Holm's first step.

    In the unit of the differences, whose standard deviation it uses; NaN for fewer than two.
    """
    d = differences[np.isfinite(differences)]
    return float(np.std(d, ddof=1)) * stats.detectable(len(d), tests) if len(d) > 1 else NAN


def _corrected(value: float, seeds: int, tests: int) -> float:
    """A detectable difference of one test as that of the first of several."""
    return value * stats.detectable(seeds, tests) / stats.detectable(seeds) if np.isfinite(value) else NAN


def constants_of(study: RecordedStudy) -> list[str]:
    """Methods with a constant entropy weight that adjust nothing else."""
    names = set(study.methods())
    return [name for name, method in study.definitions.items() if method.follows("fixed") and name in names]


def asides_of(study: RecordedStudy) -> set[str]:
    """Constants and controls, which serve as opponents of other methods."""
    return {*constants_of(study), *(name for name, method in study.definitions.items() if method.control is not None)}


def best_of(scores: Scores, methods: Sequence[str], pattern: str) -> str | None:
    """Method with the highest mean score under ``pattern``; None without scores.

    Only common seeds are used, if there are any. The choice uses the runs of the comparison itself, so the mean of the
    chosen method is biased upwards.
    """
    present = {m: runs for m in methods if (runs := scores.get(m, {}).get(pattern))}
    common = set.intersection(*map(set, present.values())) if present else set()
    means = {m: float(np.mean([runs[seed] for seed in sorted(common or runs)])) for m, runs in present.items()}
    return max(means, key=means.__getitem__, default=None)


def scores_of(study: RecordedStudy, task: str) -> Scores:
    """Mean return of every valid run on a task: method -> pattern -> seed -> score."""
    scores: dict[str, dict[str, dict[int, float]]] = {}
    for key, run in study.runs.items():
        if key.task == task and run.curve is not None and np.isfinite(value := mean_return(run.curve)):
            scores.setdefault(key.method, {}).setdefault(key.pattern, {})[key.seed] = value
    return scores


def opponents_of(study: RecordedStudy, method: str) -> Opponents:
    """Opponents of a method besides its baseline; empty for a constant or a control.

    The best constant, chosen in hindsight, is the carrier's constant with the highest mean return on the task under the
    pattern, of at least two. A single constant is an opponent itself. A control is an opponent of its own method.
    """
    definition = study.definitions.get(method)
    if definition is None or method in asides_of(study):
        return {}
    mine = {name: each for name, each in study.definitions.items() if each.carrier == definition.carrier}
    constants = [name for name in constants_of(study) if name in mine]
    cells = dict.fromkeys((key.task, key.pattern) for key in study.runs)
    chosen: Opponents = {}
    if len(constants) > 1:
        scores = {task: scores_of(study, task) for task in dict.fromkeys(task for task, _ in cells)}
        best = {cell: best_of(scores[cell[0]], constants, cell[1]) for cell in cells}
        chosen[BEST_CONSTANT] = {cell: name for cell, name in best.items() if name is not None}
    # The only constant of a carrier is compared with the baseline once.
    elif constants and not (definition.is_baseline or mine[constants[0]].is_baseline):
        chosen[CONSTANT] = dict.fromkeys(cells, constants[0])
    for name, other in mine.items():
        if other.control is not None and other.control.of == definition:
            chosen[other.control.name] = dict.fromkeys(cells, name)
    return {kind: cell for kind, cell in chosen.items() if cell}


class Contrast(NamedTuple):
    """A paired difference of a table."""

    interval: stats.Interval  # 95 %, of the mean difference, by t over seeds
    p: float  # of the paired t test, after Holm over the table; NaN for fewer than `ENOUGH` seeds
    outcome: str  # one of `OUTCOMES`
    detectable: float  # smallest difference that is detected with probability 0.8, in the same unit
    gain: float  # of the agent without drift, in the same unit; NaN without one

    @property
    def detectable_share(self) -> float:
        """The detectable difference as a share of the agent's gain."""
        return self.detectable / self.gain


def contrasts(
    differences: Mapping[Any, np.ndarray],
    *,
    gain: Mapping[Any, float] | float = NAN,
    equal: Collection[Any] = (),
) -> dict[Any, Contrast]:
    """Contrasts of a table of paired differences (higher is better), with Holm's correction over those with data.

    Args:
      differences: cell -> (n,) over seeds, NaN where a run is missing.
      gain: of the agent without drift, in the unit of the differences.
      equal: cells of two methods that acted as constants of equal weight.
    """
    tested = (d if np.isfinite(d).sum() >= ENOUGH else np.zeros(0) for d in differences.values())
    adjusted = stats.holm([stats.paired_t_p(d) for d in tested])
    tests, results = int(np.isfinite(adjusted).sum()), dict[Any, Contrast]()
    for (key, d), p in zip(differences.items(), adjusted, strict=True):
        interval, seeds = stats.t_interval(d), int(np.isfinite(d).sum())
        unit = gain[key] if isinstance(gain, Mapping) else gain
        outcome = outcome_of(interval, p, seeds, gain=unit, equal=key in equal)
        results[key] = Contrast(interval, float(p), outcome, detectable(d, tests), unit)
    return results
