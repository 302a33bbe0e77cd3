"""nAUC and DropRatio: literal, per task, and safe under negative returns; NaN with a reason where undefined.

Every function takes mean returns ``AUC / T`` (they weigh tasks of different horizons alike; with equal
horizons the ratios equal those of the areas) with axes (..., M tasks, n seeds). A missing or diverged run is
NaN and leaves the mean over seeds. ``floors`` of shape (M,), the mean returns of the random policy, selects the
offset-safe variant, which measures returns above them; ``None`` the literal one. The ``*_values`` functions are
the arithmetic, broadcast over leading axes (bootstrap replicates); the others wrap them for one study and say why
a value is missing.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.measure.curves import Metric, nan_mean

GUARD = 1e-3
NOT_ABOVE_FLOOR = "normaliser_not_above_floor"
_NO_RUNS = "no_valid_runs"
_ZERO = "normaliser_is_zero"


class Scores(NamedTuple):
    """A metric for every task, or every (task, seed), with one reason per task."""

    values: np.ndarray  # (M, n) or (M,) float64, NaN where undefined
    reasons: tuple[str, ...]  # M texts, empty where the task's normaliser is usable
    literal_unsafe: bool = False


def guarded(denominator: np.ndarray, reference: np.ndarray, floor: np.ndarray | None) -> np.ndarray:
    """The denominator, or NaN where it is too small to divide by; never clipped, never made positive.

    Safe (``floor`` given): at most 1e-3 of ``max(|reference|, |floor|, 1e-8)``. Literal: exactly zero.
    ``reference`` is the mean return of SAC on Steady, in the same units.
    """
    if floor is None:
        return np.where(denominator == 0.0, np.nan, denominator)
    size = np.maximum(np.maximum(np.abs(np.nan_to_num(reference)), np.abs(floor)), 1e-8)
    with np.errstate(invalid="ignore"):
        return np.where(denominator <= GUARD * size, np.nan, denominator)


def is_unsafe(*runs: np.ndarray) -> bool:
    """True if any run in a literal ratio's numerator or denominator has a negative area."""
    return any(bool(np.any(np.nan_to_num(np.asarray(r, np.float64)) < 0.0)) for r in runs)


def _family(runs: np.ndarray) -> np.ndarray:
    """(..., M, n) -> (...): mean over seeds, then over tasks; NaN if a task has no valid run."""
    return np.mean(_task(runs), axis=-1)


def _task(runs: np.ndarray) -> np.ndarray:
    """(..., M, n) -> (..., M): mean over seeds."""
    return nan_mean(runs, axis=-1)


def _above(runs: np.ndarray, floors: np.ndarray | None) -> np.ndarray:
    return runs if floors is None else runs - np.asarray(floors, np.float64)[:, None]


def _normaliser(
    average: Callable[[np.ndarray], np.ndarray],
    runs: np.ndarray,
    floors: np.ndarray | None,
    reference: np.ndarray | None = None,
) -> np.ndarray:
    """The average above the floor; the reference (by default the runs) gives the scale of the guard."""
    floor = None if floors is None else average(np.asarray(floors, np.float64)[:, None])
    return guarded(average(_above(runs, floors)), average(runs if reference is None else reference), floor)


def nauc_family_values(method: np.ndarray, sac_steady: np.ndarray, floors: np.ndarray | None = None) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (...): ratio of family means, the AES paper's nAUC."""
    return _family(_above(method, floors)) / _normaliser(_family, sac_steady, floors)


def nauc_task_values(method: np.ndarray, sac_steady: np.ndarray, floors: np.ndarray | None = None) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (..., M, n): each run over its task's normaliser."""
    return _above(method, floors) / _normaliser(_task, sac_steady, floors)[..., None]


def drop_family_values(
    drifting: np.ndarray, steady: np.ndarray, floors: np.ndarray | None = None, reference: np.ndarray | None = None
) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (...): ``1 - family mean / own steady family mean``, the AES paper's DropRatio.

    ``reference``: SAC on Steady, the same axes, for the scale of the guard; ``None`` takes ``steady``.
    """
    return 1.0 - _family(_above(drifting, floors)) / _normaliser(_family, steady, floors, reference)


def drop_task_values(
    drifting: np.ndarray, steady: np.ndarray, floors: np.ndarray | None = None, reference: np.ndarray | None = None
) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (..., M): the same per task, from means over seeds."""
    return 1.0 - _task(_above(drifting, floors)) / _normaliser(_task, steady, floors, reference)


def drop_run_values(
    drifting: np.ndarray, steady: np.ndarray, floors: np.ndarray | None = None, reference: np.ndarray | None = None
) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (..., M, n): per run, against its own seed's steady run."""
    floor = None if floors is None else np.asarray(floors, np.float64)[:, None]
    scale = _task(steady if reference is None else reference)[..., None]
    return 1.0 - _above(drifting, floors) / guarded(_above(steady, floors), scale, floor)


def loss_rate(drifting: np.ndarray, steady: np.ndarray) -> np.ndarray:
    """(M, n): mean return lost to drift, same seed, in units of return; always defined."""
    return np.asarray(steady, np.float64) - np.asarray(drifting, np.float64)


def nauc_family(method, sac_steady, floors=None) -> Metric:
    """Paper-literal nAUC of a family, one normaliser for all tasks; with ``floors``, ``nauc_family_safe``.

    >>> round(nauc_family([[300, 300], [1000, 1000]], [[100, 300], [1000, 3000]]).value, 6)
    0.590909
    """
    return _metric(nauc_family_values, method, sac_steady, floors)


def nauc_task(method, sac_steady, floors=None) -> Scores:
    """nAUC of every run over its task's normaliser, (M, n); with ``floors``, ``nauc_task_safe``."""
    return _scores(nauc_task_values, method, sac_steady, floors)


def drop_family(drifting, steady, floors=None, reference=None) -> Metric:
    """Paper-literal DropRatio of a family, smaller is better; with ``floors``, ``drop_family_safe``."""
    return _metric(drop_family_values, drifting, steady, floors, reference)


def drop_task(drifting, steady, floors=None, reference=None) -> Scores:
    """DropRatio per task, (M,); its mean over tasks is *not* the family's DropRatio."""
    return _scores(drop_task_values, drifting, steady, floors, reference)


def drop_run(drifting, steady, floors=None, reference=None) -> Scores:
    """DropRatio of every run against the steady run of its seed, (M, n), for paired statistics."""
    return _scores(drop_run_values, drifting, steady, floors, reference)


def _metric(ratio: Callable[..., np.ndarray], *arguments) -> Metric:
    x, s, b, *reference = _arrays(*arguments)
    value = float(ratio(x, s, b, *reference))
    return Metric(value, _explain(value, x, s, b), b is None and is_unsafe(x, s))


def _scores(ratio: Callable[..., np.ndarray], *arguments) -> Scores:
    x, s, b, *reference = _arrays(*arguments)
    values = ratio(x, s, b, *reference)
    reasons = []
    for m, row in enumerate(values.reshape(len(values), -1)):
        best = next((float(value) for value in row if np.isfinite(value)), np.nan)
        reasons.append(_explain(best, x[[m]], s[[m]], b))
    return Scores(values, tuple(reasons), b is None and is_unsafe(x, s))


def _arrays(top, bottom, floors, *reference) -> list:
    """Runs as (M, n) and floors as (M,); None stays None."""
    runs = (None if r is None else np.atleast_2d(np.asarray(r, np.float64)) for r in (top, bottom, *reference))
    x, s, *rest = runs
    return [x, s, None if floors is None else np.atleast_1d(np.asarray(floors, np.float64)), *rest]


def _explain(value: float, numerator: np.ndarray, normaliser: np.ndarray, floors: np.ndarray | None) -> str:
    """Why a ratio of means is NaN; empty if it is not."""
    if np.isfinite(value):
        return ""
    if np.any(np.all(~np.isfinite(numerator), axis=-1)) or np.any(np.all(~np.isfinite(normaliser), axis=-1)):
        return _NO_RUNS
    return _ZERO if floors is None else NOT_ABOVE_FLOOR
