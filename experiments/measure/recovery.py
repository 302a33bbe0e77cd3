"""How long a run needs to regain its level after an abrupt change, and the same when nothing changed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.measure.curves import Curve, nan_mean

_CONFIRMING = 3  # evaluations, all inside the window, whose median must confirm a crossing
_TOLERATED = 0.05  # share of the level above the floor


@dataclass(frozen=True)
class Recovery:
    """Recovery of one run, one entry per change; all NaN/False for a diverged run."""

    horizon: float  # T, environment steps
    level: np.ndarray  # (K,) return to regain
    threshold: np.ndarray  # (K,) return that counts as regained
    duration: np.ndarray  # (K,) environment steps: time to recovery, or the whole window if censored
    recovered: np.ndarray  # (K,) bool; False: censored at the next change
    applicable: np.ndarray  # (K,) bool; False: nothing had been learned before the change

    @property
    def total(self) -> float:
        """Sum of the applicable durations over T: the paper's formula, restricted, hence a lower bound."""
        if not np.any(self.applicable):
            return float("nan")
        return float(np.sum(self.duration[self.applicable])) / self.horizon

    @property
    def recovered_fraction(self) -> float:
        """Share of the applicable changes that recovered before the next one; print it beside ``total``."""
        return float(nan_mean(np.where(self.applicable, self.recovered, np.nan)))

    @property
    def n_not_applicable(self) -> int:
        """Number of changes left out because the level was not above the floor."""
        return int(np.sum(~self.applicable))


@dataclass(frozen=True)
class Companions:
    """Complements of recovery times, per change; NaN where the level is not above the floor."""

    immediate_drop: np.ndarray  # (K,) share of the level above the floor lost at the first evaluation
    deficit_area: np.ndarray  # (K,) mean shortfall over the window, as a share of the level above the floor
    no_drop: np.ndarray  # (K,) 1.0 if the first evaluation is at least the level, else 0.0


def _checked(curve: Curve, changes: Sequence[float] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Changes (K,) and the window ends (K,)."""
    changes = np.asarray(changes, np.float64)
    if changes.ndim != 1 or not changes.size or np.any(np.diff(changes) <= 0):
        raise ValueError(f"change steps must be a non-empty increasing list; got {changes.tolist()}")
    if changes[0] <= 0 or changes[-1] >= curve.horizon:
        raise ValueError(f"change steps must lie inside (0, {curve.horizon:g}); got {changes.tolist()}")
    return changes, np.append(changes[1:], curve.horizon)


def _window(curve: Curve, start: float, end: float) -> np.ndarray:
    """Indices of the evaluations in [start, end), or up to and including T for the last window."""
    until = curve.steps <= end if end == curve.horizon else curve.steps < end
    return np.flatnonzero((curve.steps >= start) & until)


def _undefined(curve: Curve, count: int) -> Recovery:
    nan, no = np.full(count, np.nan), np.zeros(count, bool)
    return Recovery(curve.horizon, nan, nan, nan, no, no)


def recovery(curve: Curve, changes: Sequence[float] | np.ndarray) -> Recovery:
    """The AES paper's recovery: first evaluation that reaches the last one before the change.

    A level of one noisy evaluation takes time to reach again even if nothing changed: publish ``null_recovery``
    beside it.

    Args:
      changes: (K,) change steps, increasing, inside (0, T); the drift is constant between them.

    Raises:
      ValueError: bad change steps, or no evaluation before the first of them.
    """
    changes, ends = _checked(curve, changes)
    if curve.diverged:
        return _undefined(curve, len(changes))
    if curve.steps[0] >= changes[0]:
        raise ValueError(f"recovery needs an evaluation before the first change at step {changes[0]:g}")
    level = curve.returns[np.searchsorted(curve.steps, changes, side="left") - 1]
    return _timed(curve, changes, ends, level, level.tolist(), np.ones(len(changes), bool), 1)


def _timed(
    curve: Curve,
    changes: np.ndarray,
    ends: np.ndarray,
    level: np.ndarray,
    thresholds: Sequence[float | np.ndarray],
    applicable: np.ndarray,
    k: int,
) -> Recovery:
    """Times to the first crossing of each change's threshold that the median of ``k`` evaluations confirms.

    ``thresholds``: per change one return, or one for every evaluation of its window.
    """
    duration, recovered = ends - changes, np.zeros(len(changes), bool)
    for i, own in enumerate(thresholds):
        window = _window(curve, changes[i], ends[i])
        last = max(len(window) - k + 1, 0) if applicable[i] else 0
        for j, theta in zip(window[:last], np.broadcast_to(own, len(window))[:last], strict=True):
            if curve.returns[j] >= theta and np.median(curve.returns[j : j + k]) >= theta:
                duration[i], recovered[i] = curve.steps[j] - changes[i], True
                break
    threshold = np.array([np.ravel(theta)[0] for theta in thresholds])
    return Recovery(curve.horizon, level, threshold, np.where(applicable, duration, np.nan), recovered, applicable)


def _levels(curve: Curve, changes: np.ndarray, w: int) -> np.ndarray:
    """(K,) mean of the regime's last ``w`` evaluations before each change; NaN if it has none."""
    starts = np.concatenate([[0.0], changes[:-1]])
    levels = np.full(len(changes), np.nan)
    for i, (start, change) in enumerate(zip(starts, changes, strict=True)):
        past = np.flatnonzero((curve.steps >= start) & (curve.steps < change))[-w:]
        if past.size:
            levels[i] = np.mean(curve.returns[past])
    return levels


def recovery_robust(curve: Curve, changes: Sequence[float] | np.ndarray, floor: float, *, w: int = 5) -> Recovery:
    """Recovery to within 5 % of a level averaged over ``w`` evaluations, confirmed by the median of three.

    Args:
      floor: return of a uniformly random policy on the steady task; a level not above it is not applicable.
      w: evaluations averaged before the change, within the regime.
    """
    changes, ends = _checked(curve, changes)
    if curve.diverged:
        return _undefined(curve, len(changes))
    level = _levels(curve, changes, w)
    threshold = level - _TOLERATED * (level - floor)
    with np.errstate(invalid="ignore"):
        return _timed(curve, changes, ends, level, threshold.tolist(), level > floor, _CONFIRMING)


def recovery_vs_steady(curve: Curve, steady: Curve, changes: Sequence[float] | np.ndarray, floor: float) -> Recovery:
    """Time to reach what the same method and seed has at the same step without drift.

    The threshold at evaluation j comes from the mean of the steady run over the same three evaluations that
    confirm the crossing. A change is not applicable where the steady run's mean over the window is not above
    the floor.

    Raises:
      ValueError: the two curves are not on one grid.
    """
    changes, ends = _checked(curve, changes)
    if curve.diverged or steady.diverged:
        return _undefined(curve, len(changes))
    if not np.array_equal(curve.steps, steady.steps):
        raise ValueError("recovery_vs_steady needs both runs on the same evaluation steps")
    windows = [_window(curve, start, end) for start, end in zip(changes, ends, strict=True)]
    level = np.array([nan_mean(steady.returns[window]) for window in windows])
    smooth = [
        np.array([np.mean(steady.returns[j : j + _CONFIRMING]) for j in window] or [np.nan]) for window in windows
    ]
    with np.errstate(invalid="ignore"):
        applicable = level > floor
    thresholds = [
        x - _TOLERATED * (x - floor) if applies else np.nan for x, applies in zip(smooth, applicable, strict=True)
    ]
    return _timed(curve, changes, ends, level, thresholds, applicable, _CONFIRMING)


def companions(curve: Curve, changes: Sequence[float] | np.ndarray, floor: float, *, w: int = 5) -> Companions:
    """Immediate drop, deficit area and no-drop indicator per change, on the robust level."""
    changes, ends = _checked(curve, changes)
    drop, area, no_drop = (np.full(len(changes), np.nan) for _ in range(3))
    level = np.full(len(changes), np.nan) if curve.diverged else _levels(curve, changes, w)
    for i, (start, end) in enumerate(zip(changes, ends, strict=True)):
        window = _window(curve, start, end)
        if not np.isfinite(level[i]) or not window.size:
            continue
        no_drop[i] = float(curve.returns[window[0]] >= level[i])
        if level[i] <= floor:
            continue
        height = level[i] - floor
        drop[i] = (level[i] - curve.returns[window[0]]) / height
        if window.size > 1:
            t, short = curve.steps[window], np.maximum(0.0, level[i] - curve.returns[window])
            area[i] = np.sum(np.diff(t) * (short[1:] + short[:-1])) / 2.0 / ((t[-1] - t[0]) * height)
    return Companions(drop, area, no_drop)


def expected_null_wait(window: int) -> float:
    """Expected literal wait, in evaluations, if a change changes nothing: ``H_{W+1} - 1`` with harmonic numbers H.

    Readings before and after are then exchangeable: none of the first r after it reaches the one before it with
    probability ``1 / (r + 1)``, and the wait is cut off after the W evaluations of the window.
    """
    return float(sum(1.0 / (r + 1) for r in range(1, window + 1)))


def null_recovery(curve: Curve, changes: Sequence[float] | np.ndarray) -> float:
    """Expected literal ``recovery`` (share of T, all changes) if no change did anything.

    From the formula on this curve's grid; ``recovery`` of a Steady curve is the measured counterpart, which
    also contains the trend of learning.
    """
    changes, ends = _checked(curve, changes)
    waits = [expected_null_wait(_window(curve, start, end).size) for start, end in zip(changes, ends, strict=True)]
    return float(sum(waits)) * float(np.median(np.diff(curve.steps))) / curve.horizon
