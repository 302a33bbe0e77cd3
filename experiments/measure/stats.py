"""Statistics over seeds and tasks: IQM, stratified bootstrap, paired differences, Holm.

Scores are arrays (M tasks, n seeds); the seed is the replication unit, NaN a missing run.
Statistics accept leading axes, so that one call evaluates all bootstrap replicates.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from experiments.measure.curves import nan_mean

SMALL = 10  # below this many seeds the percentile interval is stretched
_LEVEL = 0.95  # of intervals
_POWER = 0.8  # probability with which a detectable difference is detected
_MOST = 10**6  # pairs
_MAX_UNDEFINED = 0.05  # largest share of undefined replicates of an interval


class Interval(NamedTuple):
    """A point estimate with its 95 % interval, in the units of the statistic."""

    value: float
    low: float
    high: float


def mean(scores: np.ndarray) -> np.ndarray:
    """(..., M, n) -> (...): mean over seeds, then over tasks with valid runs."""
    return nan_mean(nan_mean(scores, axis=-1), axis=-1)


def iqm(scores: np.ndarray) -> np.ndarray:
    """(..., M, n) -> (...): mean of the sorted cells less ``floor(0.25 * cells)`` at either end.

    >>> float(iqm(np.arange(1, 5)[:, None] ** 2))
    6.5
    """
    scores = np.asarray(scores, np.float64)
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)  # NaN sorts last
    count = np.sum(np.isfinite(flat), axis=-1, keepdims=True)
    cut = count // 4
    rank = np.arange(flat.shape[-1])
    return nan_mean(np.where((rank >= cut) & (rank < count - cut), flat, np.nan), axis=-1)


def draw_resamples(rng: np.random.Generator, sizes: Sequence[int], replicates: int = 10_000) -> np.ndarray:
    """(B, M, n) int: per task, ``sizes[m]`` seed positions with replacement; -1 pads short tasks."""
    index = np.full((replicates, len(sizes), max(sizes, default=0)), -1)
    for m, size in enumerate(sizes):
        if size:
            index[:, m, :size] = rng.integers(size, size=(replicates, size))
    return index


def bootstrap(arrays: Sequence[np.ndarray], statistic: Callable[..., np.ndarray], index: np.ndarray) -> np.ndarray:
    """(B,) replicates of ``statistic(*arrays)``: one index vector per task picks the seeds of *every* array.

    The joint draw preserves the uncertainty of a shared normaliser in a ratio.

    Args:
      arrays: each (M, n), the same seeds in the same columns.
      statistic: maps arrays (B, M, n) to (B,).
      index: (B, M, n) seed positions, as `draw_resamples` returns them.
    """
    task = np.arange(index.shape[1])[None, :, None]
    picked = [np.where(index >= 0, np.asarray(a, np.float64)[task, index], np.nan) for a in arrays]
    return np.asarray(statistic(*picked))


def percentile_interval(value: float, replicates: np.ndarray, n: int) -> Interval:
    """Percentile interval of bootstrap replicates, stretched by ``sqrt(n / (n - 1))`` where n < 10.

    Args:
      value: the statistic on the study itself.
      replicates: (B,); undefined replicates are excluded, and there is no interval if they exceed 5 %.
      n: runs of the task and method with fewest, at least 1; with one run the interval is not stretched.
    """
    valid = replicates[np.isfinite(replicates)]
    if not np.isfinite(value) or n < 1 or valid.size < (1 - _MAX_UNDEFINED) * replicates.size:
        return Interval(float(value), float("nan"), float("nan"))
    low, high = np.percentile(valid, [50 * (1 - _LEVEL), 50 * (1 + _LEVEL)])
    factor = np.sqrt(n / (n - 1)) if 1 < n < SMALL else 1.0
    return Interval(float(value), float(value - (value - low) * factor), float(value + (high - value) * factor))


def bootstrap_interval(
    rng: np.random.Generator,
    arrays: Sequence[np.ndarray],
    statistic: Callable[..., np.ndarray] = mean,
    *,
    replicates: int = 10_000,
) -> Interval:
    """Stratified bootstrap interval of ``statistic(*arrays)``; equal generator states, equal intervals."""
    stack = np.stack([np.asarray(a, np.float64) for a in arrays])
    present = np.any(np.isfinite(stack), axis=0)  # seeds present in any array come first, per task
    order, sizes = np.argsort(~present, axis=-1, kind="stable"), np.sum(present, axis=-1).tolist()
    arrays = [np.take_along_axis(a, order, axis=-1) for a in stack]
    finite = np.sum(np.isfinite(stack), axis=-1)  # runs of every array and task
    value = float(statistic(*arrays))
    if not finite.any() or not np.isfinite(value):
        return Interval(value, float("nan"), float("nan"))
    values = bootstrap(arrays, statistic, draw_resamples(rng, sizes, replicates))
    return percentile_interval(value, values, int(finite[finite > 0].min()))


def paired_differences(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(M, n): ``x - y`` with equal tasks and seeds; NaN if either run is missing."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.shape != y.shape:
        raise ValueError(f"paired differences need equal tasks and seeds; got {x.shape} and {y.shape}")
    return x - y


def _units(differences: np.ndarray) -> np.ndarray:
    d = np.asarray(differences, np.float64).ravel()
    return d[np.isfinite(d)]


def t_interval(differences: np.ndarray) -> Interval:
    """Student's t interval of the mean of paired differences (n,), for n < 10 on a single task."""
    from scipy.special import stdtrit  # here, because importing scipy would slow down `import aesjax`

    d = _units(differences)
    if d.size < 2:
        return Interval(float(d[0]) if d.size else float("nan"), float("nan"), float("nan"))
    half = float(stdtrit(d.size - 1, 0.5 * (1 + _LEVEL))) * float(np.std(d, ddof=1)) / np.sqrt(d.size)
    return Interval(float(np.mean(d)), float(np.mean(d) - half), float(np.mean(d) + half))


def paired_t_p(differences: np.ndarray) -> float:
    """Two-sided p-value of Student's paired t test on differences (n,); NaN for n < 2, 1 if all are zero."""
    from scipy.special import stdtr

    d = _units(differences)
    if d.size < 2:
        return float("nan")
    error = float(np.std(d, ddof=1)) / np.sqrt(d.size)
    if error == 0.0:
        return 1.0 if np.mean(d) == 0.0 else 0.0
    return float(2.0 * stdtr(d.size - 1, -abs(float(np.mean(d))) / error))


@cache
def detectable(pairs: int, tests: int = 1) -> float:
    """Smallest mean difference, in standard deviations, that a paired t test detects with probability 0.8.

    Two-sided at 5 % over the number of tests, which is the first step of Holm's correction: the noncentrality at which
    Student's t of ``pairs - 1`` degrees of freedom exceeds its critical value with probability 0.8, over
    ``sqrt(pairs)``. NaN for one pair.

    >>> round(detectable(5), 2), round(detectable(5, 6), 2), round(detectable(10, 6), 2)
    (1.68, 2.76, 1.37)
    """
    from scipy.special import nctdtrinc, stdtrit

    if pairs < 2:
        return float("nan")
    critical = stdtrit(pairs - 1, 1.0 - 0.5 * (1.0 - _LEVEL) / max(tests, 1))
    return float(nctdtrinc(pairs - 1, 1.0 - _POWER, critical) / np.sqrt(pairs))


def pairs_for(difference: float, tests: int = 1) -> int:
    """Smallest number of pairs with which a difference, in standard deviations, is `detectable`.

    >>> pairs_for(1.68), pairs_for(0.5, 6)
    (6, 52)
    """
    return bisect_left(range(_MOST), True, lo=2, key=lambda pairs: detectable(pairs, tests) <= difference)


def probability_of_improvement(x: np.ndarray, y: np.ndarray) -> float:
    """Mean over tasks of ``P(x > y) + P(x = y) / 2`` over all pairs of seeds; x, y of shape (M, n)."""
    a, b = np.asarray(x, np.float64)[:, :, None], np.asarray(y, np.float64)[:, None, :]
    return float(np.mean(known)) if (known := [v for v in map(_share_above, a - b) if np.isfinite(v)]) else float("nan")


def paired_probability_of_improvement(differences: np.ndarray) -> float:
    """Share of (task, seed) cells with a positive difference, ties counting one half."""
    return _share_above(differences)


def _share_above(differences: np.ndarray) -> float:
    d = _units(differences)
    return float(nan_mean(np.where(d > 0, 1.0, np.where(d == 0, 0.5, 0.0))))


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm-adjusted p-values in the order given; NaN stays NaN and does not count as a test."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p)[: int(np.sum(np.isfinite(p)))]
    adjusted = np.full(p.shape, np.nan)
    scaled = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled)) if len(order) else scaled
    return adjusted


def bounded(interval: Interval, low: float, high: float) -> Interval:
    """The interval clipped to the bounds of its metric; its value is unchanged.

    >>> bounded(Interval(0.75, 0.6, 0.9), 0.0, 0.8)
    Interval(value=0.75, low=0.6, high=0.8)
    """
    ends = (min(max(end, low), high) if math.isfinite(end) else end for end in (interval.low, interval.high))
    return Interval(interval.value, *ends)


def numbers(interval: Interval) -> tuple[float, float | None, float | None]:
    """Value and ends in the form of the tidy frame: None for a missing end."""
    low, high = (end if np.isfinite(end) else None for end in interval[1:])
    return interval.value, low, high
