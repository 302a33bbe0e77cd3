"""Paired comparisons of methods at equal seeds, Holm's correction over them, and their outcomes in words."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments.measure import stats
from experiments.measure.bounds import bounded
from experiments.measure.curves import Metric
from experiments.measure.opponents import Opponents
from experiments.measure.patterns import STEADY
from experiments.measure.scopes import NAN, Cells, Scope, inside, matrix, numbers
from experiments.measure.study import RecordedStudy, RunKey, baseline_of

_LOWER = ("drop_run", "drop_run_safe", "loss_rate", "recovery", "recovery_robust", "recovery_vs_steady", "deficit_area")
LOWER_IS_BETTER = frozenset(_LOWER)
PAIRED = ("mean_return", "later_return", "final_return", "nauc_task", "nauc_task_safe", *_LOWER)
VERSUS = ("mean_return", "later_return", "nauc_task_safe")  # compared with constants and controls, too
#: Not compared without drift: the first are zero by definition there, and nothing changes that the last could follow.
_UNDER_DRIFT = ("drop_run", "drop_run_safe", "loss_rate", "later_return")

#: Of a comparison: the method is better or worse at a Holm-adjusted p-value below 5 % with at least `ENOUGH` pairs.
OUTCOMES = BETTER, WORSE, NOT_SIGNIFICANT = "better", "worse", "not significant"
ENOUGH = 5  # pairs of runs
_LEVEL = 0.05


def outcome_of(difference: float, p: float, metric: str, pairs: int) -> str:
    """One of `OUTCOMES` for a mean difference and its p-value after Holm's correction."""
    if not p < _LEVEL or pairs < ENOUGH:
        return NOT_SIGNIFICANT
    return BETTER if (difference < 0) == (metric in LOWER_IS_BETTER) else WORSE


class Paired(NamedTuple):
    """Two methods at equal seeds under one pattern, in one metric."""

    ours: np.ndarray  # (M tasks, n seeds), NaN where a run has no value
    theirs: np.ndarray
    interval: stats.Interval  # of the mean difference
    p: float  # of the paired t test over seeds
    by_t: bool  # whether the interval is Student's: one task and fewer than ten pairs

    @property
    def difference(self) -> np.ndarray:
        """(M, n), NaN where there is no pair."""
        return self.ours - self.theirs

    @property
    def pairs(self) -> int:
        """How many pairs of runs there are."""
        return int(np.sum(np.isfinite(self.difference)))


def paired(
    study: RecordedStudy,
    column: Mapping[RunKey, Metric],
    scope: Scope,
    method: str,
    opponent: str | Mapping[str, str],
    pattern: str,
    metric: str,
    draw: Callable,
) -> Paired:
    """Compare two methods on the values of a metric by run; the interval ends at the metric's bounds.

    Args:
      opponent: one method, or the one of every task.
      draw: interval of a statistic of arrays, `experiments.measure.scopes.draw_interval` with seed and replicates.
    """
    ours, theirs = (matrix(study, column, scope, of, pattern) for of in (method, opponent))
    d = stats.paired_differences(ours, theirs)
    by_t = len(scope.tasks) == 1 and int(np.sum(np.isfinite(d))) < stats.SMALL
    interval = stats.t_interval(d) if by_t else draw([d], stats.mean)
    by_seed = np.where(np.all(np.isfinite(d), axis=0), np.mean(d, axis=0), np.nan)
    interval = bounded(interval, f"paired:{metric}", study.segments)
    return Paired(ours, theirs, interval, stats.paired_t_p(by_seed), by_t)


def comparable(metric: str, pattern: str) -> bool:
    """Whether two methods can differ in a metric under a pattern by its definition."""
    return pattern != STEADY or metric not in _UNDER_DRIFT


def comparisons(
    study: RecordedStudy, cells: Cells, scope: Scope, method: str, pattern: str, opponents: Opponents, draw: Callable
) -> Iterator[tuple]:
    """Rows of the tidy frame without Holm's correction; ``X:vs=KIND`` where it is not the baseline."""
    baseline = baseline_of(method, study.methods())
    asked: list[tuple[str, Any, tuple[str, ...]]] = [] if baseline is None else [("", baseline, PAIRED)]
    for kind, cell in opponents.items():
        asked.append((f":vs={kind}", {task: cell.get((task, pattern), "") for task in scope.tasks}, VERSUS))
    total = sum(inside(k, scope, method, pattern) for k in study.runs)
    for suffix, opponent, metrics in asked:
        for name in metrics:
            if not comparable(name, pattern):
                continue
            pair = paired(study, cells[name], scope, method, opponent, pattern, name, draw)
            if pair.pairs:
                reason = "" if pair.pairs == total else "unpaired_runs_left_out"
            elif suffix:
                continue
            else:
                reasons = {m.reason for k, m in cells[name].items() if inside(k, scope, method, pattern) and m.reason}
                reason = ", ".join(sorted(reasons)) or "no_common_seed"
            names = (
                opponent if isinstance(opponent, str) else " / ".join(dict.fromkeys(filter(None, opponent.values())))
            )
            flag = f"baseline={names}" + (";lower_is_better" if name in LOWER_IS_BETTER else "")
            for kind, interval in _statistics(pair, name, study.segments, draw, brief=bool(suffix)).items():
                note = flag + (";t_interval" if kind == "paired" and pair.by_t else "")
                head = ("method", scope.family, scope.task, method, pattern, None, f"{kind}:{name}{suffix}")
                yield (*head, *numbers(interval), pair.pairs, total, reason, note)


def _statistics(pair: Paired, metric: str, segments: int, draw: Callable, *, brief: bool) -> dict[str, stats.Interval]:
    """Kind of comparison -> its value and interval; ``brief``: mean difference and p-value alone."""
    results = {"paired": pair.interval, "p": stats.Interval(pair.p, NAN, NAN)}
    if brief:
        return results
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    improved = stats.Interval(NAN, NAN, NAN)
    if pair.pairs:
        rng = np.random.default_rng(draw.keywords["seed"])
        improved = stats.probability_of_improvement_interval(rng, sign * pair.ours, sign * pair.theirs)
    share = stats.paired_probability_of_improvement(sign * pair.difference)
    others = {"paired_iqm": draw([pair.difference], stats.iqm), "poi": improved}
    others["poi_paired"] = stats.Interval(share, NAN, NAN)
    return results | {kind: bounded(value, f"{kind}:{metric}", segments) for kind, value in others.items()}


def with_holm(rows: list[tuple], asides: Collection[str] = ()) -> list[tuple]:
    """Append ``p_holm`` rows, adjusted within one metric and kind of opponent over all tasks (family rows: all
    families).

    Args:
      rows: of `comparisons`.
      asides: methods that others are compared with. They are adjusted apart, so that a control that joins a study
        takes nothing away from what is asked of its methods.
    """
    groups: dict[tuple, list[tuple]] = {}
    for row in rows:
        if row[6].startswith("p:"):
            groups.setdefault((row[6], row[2] is None, row[3] in asides), []).append(row)
    adjusted = []
    for (name, *_), group in groups.items():
        for row, p in zip(group, stats.holm([r[7] for r in group]), strict=True):
            adjusted.append((*row[:6], name.replace("p:", "p_holm:", 1), float(p), *row[8:]))
    return rows + adjusted
