"""Learning curves: validation, and the area under them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


class IncompleteRunError(ValueError):
    """A curve that ends more than one evaluation interval before its horizon."""


class Value(NamedTuple):
    """A metric of one run: a number, or the reason for its absence."""

    value: float  # NaN when undefined
    reason: str = ""  # why the value is NaN, e.g. "normaliser_not_above_floor"; empty otherwise
    flag: str = ""  # reason why a ratio has no verdict, e.g. "literal_unsafe"; empty otherwise


@dataclass(frozen=True)
class Curve:
    """Evaluation returns of one run on its grid of environment steps.

    A non-finite return marks the run as diverged: its metrics are NaN, and it may end early.

    Raises:
      ValueError: shapes differ, no evaluation, steps not increasing or outside [0, horizon].
      IncompleteRunError: the last evaluation is more than the widest gap between two of them before the horizon.
    """

    steps: np.ndarray  # (m,) float64, environment steps
    returns: np.ndarray  # (m,) float64, mean undiscounted evaluation return
    horizon: float  # T, environment steps
    onset: float = 0.0  # environment step at which the drift begins
    diverged: bool = field(init=False, default=False)

    def __post_init__(self):
        steps, returns = np.asarray(self.steps, np.float64), np.asarray(self.returns, np.float64)
        if steps.ndim != 1 or steps.shape != returns.shape or not steps.size:
            raise ValueError(f"steps and returns must have an equal shape (m,); got {steps.shape}, {returns.shape}")
        if not (np.isfinite(self.horizon) and self.horizon > 0):
            raise ValueError(f"the horizon of a curve must be positive; got {self.horizon}")
        if not np.all(np.isfinite(steps)) or np.any(np.diff(steps) <= 0):
            raise ValueError("evaluation steps must increase strictly; is a run stored twice?")
        if steps[0] < 0 or steps[-1] > self.horizon:
            raise ValueError(f"evaluation steps {steps[0]:g} to {steps[-1]:g} leave [0, {self.horizon:g}]")
        gap = float(np.max(np.diff(steps))) if steps.size > 1 else float(steps[0])
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "returns", returns)
        object.__setattr__(self, "diverged", not bool(np.all(np.isfinite(returns))))
        if self.horizon - steps[-1] > gap * (1 + 1e-9) and not self.diverged:
            text = f"the last evaluation is at step {steps[-1]:g} of {self.horizon:g}, more than one interval"
            raise IncompleteRunError(f"{text} ({gap:g}) early")

    @property
    def start(self) -> float:
        """Step from which returns are averaged: the onset, or 0 if the training ended before it, as trials do."""
        return self.onset if self.onset < self.horizon else 0.0


def auc(curve: Curve, start: float = 0.0) -> float:
    """Area under the curve over exactly [start, T], reward * environment steps; NaN for a diverged run.

    Trapezoid; constant to the left of the first and to the right of the last evaluation.
    """
    if curve.diverged:
        return float("nan")
    t, r = curve.steps, curve.returns
    if start > t[0]:
        later = t > start
        t, r = np.append(start, t[later]), np.append(np.interp(start, t, r), r[later])
    inside = np.sum(np.diff(t) * (r[1:] + r[:-1])) / 2.0
    return float(inside + (t[0] - start) * r[0] + (curve.horizon - t[-1]) * r[-1])


def mean_return(curve: Curve) -> float:
    """Return averaged over the training from the onset of the drift on, in units of return.

    Without an onset, and if the training ended before it, over all of the training (`Curve.start`).
    """
    return auc(curve, curve.start) / (curve.horizon - curve.start)


def final_return(curve: Curve, share: float = 0.1) -> float:
    """Mean of the evaluations in the last ``share`` of the horizon (at least one), in units of return."""
    if curve.diverged:
        return float("nan")
    late = curve.steps >= (1.0 - share) * curve.horizon
    return float(np.mean(curve.returns[late])) if np.any(late) else float(curve.returns[-1])


def later_return(curve: Curve, changes: np.ndarray) -> float:
    """Mean of the evaluations after the first change, in units of return; NaN if there are none.

    Unlike `mean_return`, it excludes learning before the first change.
    """
    later = curve.returns[curve.steps > changes[0]] if len(changes) else np.empty(0)
    return float(np.mean(later)) if later.size and not curve.diverged else float("nan")


def nan_mean(values: np.ndarray | Sequence[float], axis: int | None = None) -> np.ndarray:
    """Mean over the finite entries along ``axis``; NaN, without a warning, if there are none."""
    values = np.asarray(values, np.float64)
    valid = np.isfinite(values)
    count = np.sum(valid, axis=axis)
    total = np.sum(np.where(valid, values, 0.0), axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
