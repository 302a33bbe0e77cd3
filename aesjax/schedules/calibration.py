"""Calibrated drift bounds: isotonic fit, conformal quantiles, the run-level scale, and their coverage.

AES paper, appendix "Calibrating an Observable Drift Proxy". It runs in NumPy on the host, in double precision,
once, on recorded runs, before a schedule is deployed.

`split_conformal` bounds one drift at a time, for a new pair exchangeable with those of the fit, not all rounds
together. `run_level_scale` bounds the accumulated drift of a complete new run at every round, as the regret of the
schedules requires; its unit is the run.
"""

import math
from typing import NamedTuple

import numpy as np

_INDEX_ROUNDING = 1e-9  # (n + 1)(1 - delta) is often an integer up to rounding, as 10 * 0.9


class Isotonic(NamedTuple):
    """A nondecreasing function, given at the signals of its fit."""

    signal: np.ndarray  # (n,) float64, increasing
    level: np.ndarray  # (n,) float64, nondecreasing


class Envelope(NamedTuple):
    """An upper bound on drift: a fitted level plus a margin."""

    fit: Isotonic
    margin: float  # inf with too few residuals


def isotonic_fit(signal: np.ndarray, drift: np.ndarray) -> Isotonic:
    """Least squares over the nondecreasing functions of signals (N,), to drifts (N,).

    AES paper Eq. (calib-monotone). Equal signals are one point with the mean of their drifts, weighted by their number.

    Raises:
      ValueError: shapes that differ, no points, a value that is not finite.
    """
    from scipy.optimize import isotonic_regression

    signal, drift = _paired(signal, drift)
    points, group, count = np.unique(signal, return_inverse=True, return_counts=True)
    return Isotonic(points, isotonic_regression(np.bincount(group, drift) / count, weights=count).x)


def predict(fit: Isotonic, signal: np.ndarray) -> np.ndarray:
    """(M,) float64: the fitted function at signals (M,).

    Between two fitted signals the function has the level of the lower signal.
    """
    return fit.level[np.maximum(np.searchsorted(fit.signal, signal, side="right") - 1, 0)]


def conformal_index(n: int, delta: float) -> int:
    """``ceil((n + 1)(1 - delta))``: the order statistic of n residuals that bounds a new one; may be ``n + 1``.

    >>> conformal_index(9, 0.1), conformal_index(5, 0.1)
    (9, 6)
    """
    _check_delta(delta)
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n}")
    return math.ceil((n + 1) * (1.0 - delta) - _INDEX_ROUNDING)


def conformal_quantile(values: np.ndarray, delta: float) -> np.ndarray:
    """(...,): the `conformal_index`-th smallest of values (..., n), inf where the index exceeds n."""
    values = np.asarray(values, np.float64)
    n = values.shape[-1]
    index = conformal_index(n, delta)
    if index > n:
        return np.full(values.shape[:-1], np.inf)
    return np.partition(values, index - 1, axis=-1)[..., index - 1]


def split_conformal(
    fit_signal: np.ndarray, fit_drift: np.ndarray, signal: np.ndarray, drift: np.ndarray, delta: float
) -> Envelope:
    """Bound that holds for a new drift with probability at least ``1 - delta``: fitted on one half, shifted on another.

    AES paper Eq. (conformal-upper), with the split that its Lemma (conformal-upper) needs. For n exchangeable pairs in
    the second half, without ties, the probability is ``index / (n + 1)``; fewer than ``1/delta - 1`` pairs give an
    infinite margin. With equal halves it is the paper's recipe, Eq. (calib-monotone), which fails.

    Args:
      fit_signal, fit_drift: (M,) pairs for the fit.
      signal, drift: (n,) pairs for the margin; disjoint from the others.
      delta: share of fresh drifts that may exceed the bound, in (0, 1).
    """
    signal, drift = _paired(signal, drift)
    fit = isotonic_fit(fit_signal, fit_drift)
    return Envelope(fit, float(conformal_quantile(drift - predict(fit, signal), delta)))


def upper_bound(envelope: Envelope, signal: np.ndarray) -> np.ndarray:
    """(M,): level plus margin at signals (M,)."""
    return predict(envelope.fit, signal) + envelope.margin


def run_ratios(drift: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """(...,): smallest factor at which the accumulated signal of a run bounds its accumulated drift in every round.

    ``max_t A_t / V_t`` with ``A_t``, ``V_t`` the sums of (..., T) drifts and signals >= 0 up to round t; inf for a run
    that drifts before its first signal, 0 for a run without drift. Not in the paper.

    Raises:
      ValueError: shapes that differ, no rounds, a value that is negative or not finite.
    """
    drift, signal = _paired(drift, signal)
    if np.any(drift < 0.0) or np.any(signal < 0.0):
        raise ValueError("drift and signal must be >= 0; a negative value was given")
    total, seen = np.cumsum(drift, axis=-1), np.cumsum(signal, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(total > 0.0, total / seen, 0.0)
    return np.max(ratio, axis=-1)


def run_level_scale(ratios: np.ndarray, delta: float) -> np.ndarray:
    """(...,): the factor rho at which ``rho * signal`` bounds a fresh run's accumulated drift in every round.

    The `conformal_quantile` of the `run_ratios` (..., n) of n runs. The bound holds with probability at least
    ``1 - delta`` for a run exchangeable with them, trained with the same schedule (docs/proofs/calibration.md). Fewer
    than ``1/delta - 1`` runs give inf; the bound is then infinite in every round.
    """
    return conformal_quantile(ratios, delta)


def runs_needed(delta: float) -> int:
    """Fewest runs from which `run_level_scale` can be finite, ``1/delta - 1``.

    >>> runs_needed(0.1)
    9
    """
    _check_delta(delta)
    return max(1, math.ceil(1.0 / delta - 1.0 - _INDEX_ROUNDING))


def slack(drift: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """(...,): final accumulated bound over accumulated drift; regret grows with its root; inf without drift."""
    total, allowed = (np.sum(np.asarray(x, np.float64), axis=-1) for x in (drift, bound))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0.0, allowed / total, np.inf)


def _paired(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.shape != y.shape or x.ndim < 1 or x.shape[-1] < 1:
        raise ValueError(f"signal and drift must have the same shape (..., N) with N >= 1; got {x.shape} and {y.shape}")
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
        raise ValueError("signal and drift must be finite; leave out rounds without a signal")
    return x, y


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie in (0, 1); got {delta}")
