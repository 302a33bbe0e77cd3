"""A run in its study, of which every metric is a function, and measures of its logged entropy weight."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from experiments.measure import metrics
from experiments.measure.curves import Curve, Value, mean_return
from experiments.measure.recovery import (
    Companions,
    Recovery,
    companions,
    levels,
    recovery,
    recovery_robust,
    recovery_vs_steady,
)
from experiments.measure.study import NAN, REFERENCE, STEADY, RecordedRun, RecordedStudy, RunKey

_REACTION = 0.02  # share of the horizon in which a weight should rise
_ENOUGH = 2  # evaluations within it, at least
NO_CHANGES = "no_change_points"  # reason: the drift pattern does not state where it changes
_PINNED = 0.95  # share of the updates


@dataclass(frozen=True, eq=False)
class StudyRun:
    """A run with the parts of its study that metrics read."""

    study: RecordedStudy
    key: RunKey  # family, task, method, pattern, seed

    @property
    def record(self) -> RecordedRun:
        return self.study.runs[self.key]

    @property
    def curve(self) -> Curve:
        """Evaluation returns of the run, which is valid."""
        curve = self.record.curve
        assert curve is not None
        return curve

    @property
    def steady(self) -> Any:  # metrics name it in their needs, which a type checker does not see
        """`Curve` of the same method and seed without drift; None without a valid run."""
        run = self.study.runs.get(self.key._replace(pattern=STEADY))
        return run.curve if run else None

    @cached_property
    def changes(self) -> np.ndarray:
        """(K,) environment steps at which the drift changes; empty if the pattern does not state them."""
        return self.study.changes(self.key)

    @property
    def floor(self) -> Any:  # as above
        """Mean return () of the random policy; None if not measured."""
        return self.study.floors.get(self.key.task)

    def log(self, name: str) -> np.ndarray:
        """(m,) values of a logged column at the evaluations; NaN if the study has no such column."""
        return self.record.logs.get(name, np.full(len(self.record.steps), NAN))

    def log_of_drift(self, name: str, *, before: bool) -> np.ndarray:
        """`log` from the onset of the drift on, complete without an onset.

        Args:
          before: a value is of the interval before its evaluation, so that the one at the onset does not count.
        """
        side = "right" if before and self.curve.start else "left"
        return self.log(name)[np.searchsorted(self.record.steps, self.curve.start, side) :]

    @cached_property
    def mean(self) -> float:
        """Mean return from the onset of the drift on."""
        return mean_return(self.curve)

    @cached_property
    def steady_mean(self) -> np.ndarray:
        """(1,) `mean` of the same method and seed without drift."""
        return np.array([mean_return(self.steady) if self.steady else NAN])

    @cached_property
    def references(self) -> np.ndarray:
        """(n,) `mean` of SAC without drift, the normaliser of nAUC; NaN where a run is not valid."""
        steady = self.key._replace(method=REFERENCE, pattern=STEADY)
        runs = [run for key, run in self.study.runs.items() if key[:4] == steady[:4]]
        return np.array([mean_return(run.curve) if run.curve else NAN for run in runs])

    @cached_property
    def raw(self) -> Recovery:
        return recovery(self.curve, self.changes)

    @cached_property
    def robust(self) -> Recovery:
        return recovery_robust(self.curve, self.changes, self._floor)

    @cached_property
    def versus_steady(self) -> Recovery:
        assert self.steady is not None
        return recovery_vs_steady(self.curve, self.steady, self.changes, self._floor)

    @cached_property
    def companions(self) -> Companions:
        return companions(self.curve, self.changes, self._floor)

    @property
    def _floor(self) -> float:
        return self.study.floors.get(self.key.task, NAN)

    @cached_property
    def lacking(self) -> dict[str, str]:
        """Need of a metric -> reason why the run does not meet it; empty if it does."""
        steady = self.study.runs.get(self.key._replace(pattern=STEADY))
        no_steady = f"steady_run_{steady.problem}" if steady and steady.problem else ""
        no_changes = "" if len(self.changes) else NO_CHANGES
        return {
            "floor": "no_floor" if self.floor is None else "",
            "steady": no_steady if steady else "no_steady_run",
            "reference": "" if np.any(np.isfinite(self.references)) else "no_steady_sac_runs",
            "changes": no_changes,
            "recovery": no_changes if self.study.patterns[self.key.pattern].recovery else "only_abrupt",
        }

    def ratio(self, ratio: Callable, below: np.ndarray, *, corrected: bool) -> Value:
        """Ratio of the mean return to those (n,) of its normaliser, less the floor if ``corrected``."""
        runs, floors = (np.array([[self.mean]]), below[None]), np.array([self._floor]) if corrected else None
        value = float(ratio(*runs, floors=floors).ravel()[0])
        negative = not corrected and any(np.any(np.nan_to_num(x) < 0.0) for x in runs)
        return Value(value, metrics.reason_of(value, *runs, floors), metrics.UNSAFE if negative else "")

    def nauc(self, *, corrected: bool) -> Value:
        return self.ratio(metrics.nauc_task, self.references, corrected=corrected)

    def drop(self, *, corrected: bool) -> Value:
        reference = self.steady_mean if self.lacking["reference"] else self.references

        def ratio(drifting: np.ndarray, steady: np.ndarray, floors: np.ndarray | None) -> np.ndarray:
            return metrics.drop_run(drifting, steady, floors, reference[None])

        return self.ratio(ratio, self.steady_mean, corrected=corrected)

    def is_clear(self, denominator: str, *, corrected: bool) -> bool:
        """Whether the denominator of a ratio is clearly positive over the seeds.

        Args:
          denominator: mean returns of the "reference", mean returns of the "own" method without drift, or the
            "level" before every change, of which all must be clearly positive.
          corrected: less the floor.
        """
        steady, floor = self.key._replace(pattern=STEADY), self._floor if corrected else 0.0
        wanted = {"reference": steady._replace(method=REFERENCE), "own": steady, "level": self.key}[denominator]
        curves = {key: run.curve for key, run in self.study.runs.items() if key[:4] == wanted[:4] and run.curve}
        if denominator != "level":
            return metrics.clearly_positive([mean_return(curve) - floor for curve in curves.values()])
        heights = [levels(curve, self.study.changes(key)) - floor for key, curve in curves.items()]
        return all(map(metrics.clearly_positive, zip_longest(*heights, fillvalue=NAN)))  # change by change

    def saturation(self, *names: str) -> Value:
        """Share of the updates at the clips of these logged columns."""
        shares = [saturation(self.record.steps, self.log(name)) for name in names]
        if all(share.reason for share in shares):
            return shares[0]
        return Value(float(np.nansum([share.value for share in shares])))

    def responsiveness(self) -> Value:
        horizon = self.study.horizons[self.key.task]
        return responsiveness(self.record.steps, self.log("entropy_weight"), self.changes, horizon)


def saturation(steps: np.ndarray, at_clip: np.ndarray) -> Value:
    """Share of a run's updates at a clip, from the fractions logged since the previous evaluation.

    Args:
      steps: (m,) evaluation steps; an interval counts in proportion to its length.
      at_clip: (m,) fraction of the updates since the previous evaluation; NaN without updates.
    """
    length, share = np.diff(np.asarray(steps, np.float64), prepend=0.0), np.asarray(at_clip, np.float64)
    logged = np.isfinite(share) & (length > 0)
    if not np.any(logged):
        return Value(NAN, "not_logged")
    return Value(float(np.sum(share[logged] * length[logged]) / np.sum(length[logged])))


def pinned(at_min: float, at_max: float) -> str:
    """Bound at which a schedule is clipped in at least 95 % of the updates: "lower", "upper", or empty.

    Args:
      at_min, at_max: `saturation` at the bounds; NaN if not logged, zero for a constant, which has no clip.
    """
    return "upper" if at_max >= _PINNED else "lower" if at_min >= _PINNED else ""


class Acted(NamedTuple):
    """How a method set the entropy weight under a pattern: means over its runs."""

    method: Any  # `experiments.study.method.Method`
    at_min: float  # `saturation` at the bounds
    at_max: float
    weight: float

    def equals(self, other: "Acted") -> bool:
        """Whether both acted as constants of equal weight, up to the share of updates that `pinned` ignores.

        A control acts as a constant against the method whose record it plays, if that method is pinned.
        """
        for ours, theirs in ((self, other), (other, self)):
            if ours.method.control is not None and ours.method.control.of == theirs.method:
                return theirs.pinned
        constant = [
            each.method.follows("fixed") or (each.pinned and not each.method.adaptations) for each in (self, other)
        ]
        alike = (self.method.carrier, self.method.hyper) == (other.method.carrier, other.method.hyper)
        low, high = sorted((self.weight, other.weight))
        return alike and all(constant) and low >= _PINNED * high

    @property
    def pinned(self) -> bool:
        """Whether the weight was `pinned` at a bound."""
        return bool(pinned(self.at_min, self.at_max))


def responsiveness(
    steps: np.ndarray, weight: np.ndarray, changes: Sequence[float] | np.ndarray, horizon: float
) -> Value:
    """Relative rise of the entropy weight (m,) within 2 % of the horizon after a change, mean over changes (K,).

    Per change c: the largest weight at an evaluation in (c, c + 0.02 T], over the weight at the last
    evaluation at or before c, minus 1. An evaluation at c reports the weight from before. A change with fewer than two
    evaluations in that window is excluded.
    """
    steps, weight = np.asarray(steps, np.float64), np.asarray(weight, np.float64)
    logged = np.isfinite(weight)
    if not np.any(logged) or not len(changes):
        return Value(NAN, NO_CHANGES if np.any(logged) else "not_logged")
    rises = []
    for change in np.asarray(changes, np.float64):
        before = weight[(steps <= change) & logged]
        window = (steps > change) & (steps <= change + _REACTION * horizon * (1 + 1e-9)) & logged
        if before.size and np.sum(window) >= _ENOUGH and before[-1] > 0:
            rises.append(np.max(weight[window]) / before[-1] - 1.0)
    return Value(float(np.mean(rises))) if rises else Value(NAN, "too_few_evaluations_after_a_change")


def can_respond(evaluations: int) -> bool:
    """Whether this many evaluations of a run are dense enough for `responsiveness`."""
    return _REACTION * evaluations >= _ENOUGH
