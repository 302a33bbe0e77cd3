"""Time to regain the level after an abrupt change, and its null value without a change."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.measure.curves import Curve, nan_mean

_CONFIRMING = 3  # evaluations, all inside the window, whose median must confirm a crossing
_TOLERATED = 0.05  # share of the level above the floor
Changes = Sequence[float] | np.ndarray  # (K,) change steps, increasing, inside (0, T); the drift is constant in between


@dataclass(frozen=True)
class Recovery:
    """Recovery of one run, one entry per change; all NaN/False for a diverged run."""

    drifting: float  # environment steps from the onset of the drift on, T without an onset
    level: np.ndarray  # (K,) return to regain
    threshold: np.ndarray  # (K,) return that counts as regained
    duration: np.ndarray  # (K,) environment steps: time to recovery, or the complete window if censored
    recovered: np.ndarray  # (K,) bool; False: censored at the next change
    applicable: np.ndarray  # (K,) bool; False: nothing had been learned before the change

    @property
    def total(self) -> float:
        """Sum of the applicable durations over the time with drift, a lower bound: the paper's formula."""
        applies = self.applicable
        return float(np.sum(self.duration[applies])) / self.drifting if np.any(applies) else float("nan")

    @property
    def recovered_fraction(self) -> float:
        """Share of the applicable changes that recovered before the next change; report it with ``total``."""
        return float(nan_mean(np.where(self.applicable, self.recovered, np.nan)))

    @property
    def n_not_applicable(self) -> int:
        """Number of changes excluded because the level was not above the floor."""
        return int(np.sum(~self.applicable))


@dataclass(frozen=True)
class Companions:
    """Complements of recovery times, per change.

    NaN without a level or an evaluation after the change; drop and area also where the level is not above the floor.
    """

    immediate_drop: np.ndarray  # (K,) share of the level above the floor lost at the first evaluation
    deficit_area: np.ndarray  # (K,) mean shortfall over the window, as a share of the level above the floor
    no_drop: np.ndarray  # (K,) 1.0 if the first evaluation is at least the level, else 0.0


def _windows(curve: Curve, changes: Changes) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Changes (K,), the window ends (K,), and the indices of the evaluations in each; the last window contains T."""
    changes = np.asarray(changes, np.float64)
    if changes.ndim != 1 or not changes.size or np.any(np.diff(changes) <= 0):
        raise ValueError(f"change steps must be a non-empty increasing list; got {changes.tolist()}")
    if changes[0] <= 0 or changes[-1] >= curve.horizon:
        raise ValueError(f"change steps must lie inside (0, {curve.horizon:g}); got {changes.tolist()}")
    ends = np.append(changes[1:], curve.horizon)
    until = [curve.steps <= end if end == curve.horizon else curve.steps < end for end in ends]
    windows = [np.flatnonzero((curve.steps >= start) & u) for start, u in zip(changes, until, strict=True)]
    return changes, ends, windows


def recovery(curve: Curve, changes: Changes) -> Recovery:
    """The AES paper's recovery: time to the first evaluation that reaches the last evaluation before the change.

    Regaining a single noisy evaluation takes time even without a change, so report ``null_recovery`` with it.

    Raises:
      ValueError: bad change steps, or no evaluation before the first of them.
    """
    changes, *_ = _windows(curve, changes)
    if curve.steps[0] >= changes[0] and not curve.diverged:
        raise ValueError(f"recovery needs an evaluation before the first change at step {changes[0]:g}")
    level = curve.returns[np.searchsorted(curve.steps, changes, side="left") - 1]
    return _timed(curve, changes, level, level, np.ones(len(changes), bool), 1)


def _timed(
    curve: Curve, changes: Changes, level: np.ndarray, thresholds: Sequence | np.ndarray, applies: np.ndarray, k: int
) -> Recovery:
    """Times to the first crossing of each change's threshold that is confirmed by the median of ``k`` evaluations.

    ``thresholds``: per change one return, or one for every evaluation of its window.
    """
    changes, ends, windows = _windows(curve, changes)
    drifting = curve.horizon - curve.onset
    if curve.diverged:
        nan, no = np.full(len(changes), np.nan), np.zeros(len(changes), bool)
        return Recovery(drifting, nan, nan, nan, no, no)
    duration, recovered = ends - changes, np.zeros(len(changes), bool)
    for i, window in enumerate(windows):
        last = max(len(window) - k + 1, 0) if applies[i] else 0
        for j, theta in zip(window[:last], np.broadcast_to(thresholds[i], len(window))[:last], strict=True):
            if curve.returns[j] >= theta and np.median(curve.returns[j : j + k]) >= theta:
                duration[i], recovered[i] = curve.steps[j] - changes[i], True
                break
    first = np.array([np.ravel(theta)[0] for theta in thresholds])
    return Recovery(drifting, level, first, np.where(applies, duration, np.nan), recovered, applies)


def levels(curve: Curve, changes: Changes, w: int = 5) -> np.ndarray:
    """(K,) mean of the last ``w`` evaluations before each change within its regime; NaN without evaluations."""
    changes = np.asarray(changes, np.float64)
    starts, levels = np.concatenate([[0.0], changes])[: len(changes)], np.full(len(changes), np.nan)
    for i, (start, change) in enumerate(zip(starts, changes, strict=True)):
        past = np.flatnonzero((curve.steps >= start) & (curve.steps < change))[-w:]
        levels[i] = np.mean(curve.returns[past]) if past.size else np.nan
    return levels


def recovery_robust(curve: Curve, changes: Changes, floor: float, *, w: int = 5) -> Recovery:
    """Recovery to within 5 % of a level averaged over ``w`` evaluations, confirmed by the median of three.

    Args:
      floor: return of a uniformly random policy on the steady task; a level not above it is not applicable.
      w: evaluations averaged before the change, within the regime.
    """
    level = levels(curve, changes, w)
    with np.errstate(invalid="ignore"):
        return _timed(curve, changes, level, level - _TOLERATED * (level - floor), level > floor, _CONFIRMING)


def recovery_vs_steady(curve: Curve, steady: Curve, changes: Changes, floor: float) -> Recovery:
    """Time to reach the return of the same method and seed at the same step without drift.

    The threshold at evaluation j comes from the mean of the steady run over the same three evaluations that
    confirm the crossing. A change is not applicable where the steady run's mean over the window is not above
    the floor.

    Raises:
      ValueError: the two curves are not on one grid.
    """
    if not curve.diverged and not steady.diverged and not np.array_equal(curve.steps, steady.steps):
        raise ValueError("recovery_vs_steady needs both runs on the same evaluation steps")
    windows, r = _windows(steady, changes)[2], steady.returns
    level = np.array([nan_mean(r[window]) for window in windows])
    smooth = [np.array([np.mean(r[j : j + _CONFIRMING]) for j in window] or [np.nan]) for window in windows]
    with np.errstate(invalid="ignore"):
        applies = level > floor
    thresholds = [x - _TOLERATED * (x - floor) if ok else np.nan for x, ok in zip(smooth, applies, strict=True)]
    return _timed(steady if steady.diverged else curve, changes, level, thresholds, applies, _CONFIRMING)


def companions(curve: Curve, changes: Changes, floor: float, *, w: int = 5) -> Companions:
    """Immediate drop, mean shortfall and no-drop indicator per change, relative to the robust level."""
    windows, level = _windows(curve, changes)[2], levels(curve, changes, w)
    drop, area, no_drop = np.full((3, len(level)), np.nan)
    for i, window in enumerate(windows):
        if not np.isfinite(level[i]) or not window.size or curve.diverged:
            continue
        no_drop[i] = float(curve.returns[window[0]] >= level[i])
        if (height := level[i] - floor) > 0:
            drop[i] = (level[i] - curve.returns[window[0]]) / height
            if window.size > 1:
                t, short = curve.steps[window], np.maximum(0.0, level[i] - curve.returns[window])
                area[i] = np.sum(np.diff(t) * (short[1:] + short[:-1])) / 2.0 / ((t[-1] - t[0]) * height)
    return Companions(drop, area, no_drop)


def expected_null_wait(window: int) -> float:
    """Expected wait of the raw recovery, in evaluations, if a change has no effect: ``H_{W+1} - 1``, H harmonic.

    Evaluations before and after are then exchangeable: with probability ``1 / (r + 1)`` none of the first r after the
    change reaches the last before it. The wait is censored after the W evaluations of the window.
    """
    return float(sum(1.0 / (r + 1) for r in range(1, window + 1)))


def null_recovery(curve: Curve, changes: Changes) -> float:
    """Expected raw ``recovery`` (share of the time with drift, all changes) if no change had an effect.

    From the formula on this curve's grid; ``recovery`` of a Steady curve is the measured counterpart, which
    also contains the trend of learning.
    """
    waits = [expected_null_wait(window.size) for window in _windows(curve, changes)[2]]
    return float(sum(waits)) * float(np.median(np.diff(curve.steps))) / (curve.horizon - curve.onset)
