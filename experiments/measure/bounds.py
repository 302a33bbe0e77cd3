"""Bounds of metrics, with which their intervals are intersected."""

import math
import re

from experiments.measure.stats import Interval

_SHARES = re.compile(r".*_fraction|(robust_)?recovered@\d+|saturation(_min|_max)?|mean_window_share|poi(_paired)?:.*")
#: Of all changes together.
_SUMS = ("recovery", "recovery_robust", "recovery_vs_steady", "recovery_null", "recovery_robust_null")
_POSITIVE = re.compile(r"deficit_area|mean_entropy_weight|refreshes|gradient_steps|mean_rate_factor")


def possible(metric: str, segments: int) -> tuple[float, float]:
    """The least and the largest value of an aggregate by its name, both infinite where nothing is known.

    >>> possible("recovery", 5), possible("paired:recovery", 5)
    ((0.0, 0.8), (-0.8, 0.8))

    Args:
      metric: as in the tidy frame, ``iqm:``, ``paired:`` and ``paired_iqm:`` included.
      segments: of the horizon, of equal length; the drift changes between them.
    """
    kind, _, rest = metric.rpartition(":") if not metric.startswith("poi") else ("", "", metric)
    if kind.startswith("paired"):
        low, high = possible(rest, segments)
        return (low - high, high - low) if math.isfinite(high - low) else (-math.inf, math.inf)
    if kind in ("p", "p_holm"):
        return 0.0, 1.0
    if rest in _SUMS:
        return 0.0, (segments - 1) / segments
    if rest == "n_not_applicable":
        return 0.0, float(segments - 1)
    if _SHARES.fullmatch(rest):
        return 0.0, 1.0
    return (0.0 if _POSITIVE.fullmatch(rest) else -math.inf), math.inf


def bounded(interval: Interval, metric: str, segments: int) -> Interval:
    """The interval without what the metric cannot be; its value stays."""
    low, high = possible(metric, segments)
    ends = (min(max(end, low), high) if math.isfinite(end) else end for end in interval[1:])
    return Interval(interval.value, *ends)
