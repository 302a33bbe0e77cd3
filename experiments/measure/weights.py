"""Measures of the logged entropy weight: how often it sits at a clip, how fast it rises after a change."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.measure.curves import Metric, nan_mean

_REACTION = 0.02  # share of the horizon within which a weight should have risen
_ENOUGH = 2  # evaluations within it, at least


def saturation(steps: np.ndarray, at_clip: np.ndarray) -> Metric:
    """Share of a run's updates at a clip, from the fractions logged since the previous evaluation.

    Args:
      steps: (m,) evaluation steps; an interval counts in proportion to its length.
      at_clip: (m,) fraction of the updates since the previous evaluation; NaN where there was none.
    """
    length = np.diff(np.asarray(steps, np.float64), prepend=0.0)
    share = np.asarray(at_clip, np.float64)
    seen = np.isfinite(share) & (length > 0)
    if not np.any(seen):
        return Metric(float("nan"), "not_logged")
    return Metric(float(np.sum(share[seen] * length[seen]) / np.sum(length[seen])))


def responsiveness(
    steps: np.ndarray, weight: np.ndarray, changes: Sequence[float] | np.ndarray, horizon: float
) -> Metric:
    """Relative rise of the entropy weight (m,) within 2 % of the horizon after a change, mean over changes (K,).

    Per change c: the largest weight at an evaluation in (c, c + 0.02 T], over the weight at the last
    evaluation at or before c, minus 1. An evaluation at c reports the weight from before. A change with fewer than two
    evaluations in that window is left out: one reading has no largest.
    """
    steps, weight = np.asarray(steps, np.float64), np.asarray(weight, np.float64)
    if not np.any(np.isfinite(weight)):
        return Metric(float("nan"), "not_logged")
    rises = []
    for change in np.asarray(changes, np.float64):
        before = weight[(steps <= change) & np.isfinite(weight)]
        window = (steps > change) & (steps <= change + _REACTION * horizon * (1 + 1e-9)) & np.isfinite(weight)
        if before.size and np.sum(window) >= _ENOUGH and before[-1] > 0:
            rises.append(np.max(weight[window]) / before[-1] - 1.0)
    if not rises:
        return Metric(float("nan"), "too_few_evaluations_after_a_change")
    return Metric(float(np.mean(rises)))


def time_mean(steps: np.ndarray, values: np.ndarray) -> Metric:
    """Mean of a logged column over its evaluations, in the column's own units; NaN entries are left out."""
    value = float(nan_mean(np.asarray(values, np.float64)[: len(steps)]))
    return Metric(value, "" if np.isfinite(value) else "not_logged")


def weight_metrics(
    steps: np.ndarray, logs: Mapping[str, np.ndarray], changes: Sequence[float] | np.ndarray, horizon: float
) -> dict[str, Metric]:
    """All measures of one run's weight by name.

    Args:
      steps: (m,) evaluation steps.
      logs: (m,) each of ``entropy_weight`` (reward per nat), ``at_min`` and ``at_max`` (fractions of the updates since
        the previous evaluation); one that is absent was not logged.
    """
    none = np.full(len(steps), np.nan)
    low, high = (saturation(steps, logs.get(name, none)) for name in ("at_min", "at_max"))
    both = Metric(float(np.nansum([low.value, high.value])), "")
    weight = logs.get("entropy_weight", none)
    return {
        "saturation": low if low.reason and high.reason else both,
        "saturation_min": low,
        "saturation_max": high,
        "responsiveness": responsiveness(steps, weight, changes, horizon),
        "mean_entropy_weight": time_mean(steps, weight),
    }
