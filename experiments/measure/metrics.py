"""nAUC and DropRatio: literal, per task, and safe under negative returns; NaN with a reason where undefined.

Every function takes mean returns ``AUC / T`` (they weigh tasks of different horizons alike; with equal
horizons the ratios equal those of the areas) with axes (..., M tasks, n seeds). A missing or diverged run is
NaN and leaves the mean over seeds. ``floors`` of shape (M,), the mean returns of the random policy, selects the
offset-safe variant, which measures returns above them; ``None`` the literal one. The ``*_values`` functions are
the arithmetic, broadcast over leading axes (bootstrap replicates); the others wrap them for one study and say why
a value is missing.
"""

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
    return np.mean(nan_mean(runs, axis=-1), axis=-1)


def _above(runs: np.ndarray, floors: np.ndarray | None) -> np.ndarray:
    return runs if floors is None else runs - np.asarray(floors, np.float64)[:, None]


def _family_floor(floors: np.ndarray | None) -> np.ndarray | None:
    return None if floors is None else np.asarray(np.mean(np.asarray(floors, np.float64)))


def nauc_family_values(method: np.ndarray, sac_steady: np.ndarray, floors: np.ndarray | None = None) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (...): ratio of family means, the AES paper's nAUC."""
    normaliser = guarded(_family(_above(sac_steady, floors)), _family(sac_steady), _family_floor(floors))
    return _family(_above(method, floors)) / normaliser


def nauc_task_values(method: np.ndarray, sac_steady: np.ndarray, floors: np.ndarray | None = None) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (..., M, n): each run over its task's normaliser."""
    floor = None if floors is None else np.asarray(floors, np.float64)
    normaliser = guarded(nan_mean(_above(sac_steady, floors), axis=-1), nan_mean(sac_steady, axis=-1), floor)
    return _above(method, floors) / normaliser[..., None]


def drop_family_values(
    drifting: np.ndarray,
    steady: np.ndarray,
    floors: np.ndarray | None = None,
    reference: np.ndarray | None = None,
) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (...): ``1 - family mean / own steady family mean``, the AES paper's DropRatio.

    ``reference``: SAC on Steady, the same axes, for the scale of the guard; ``None`` takes ``steady``.
    """
    scale = _family(steady if reference is None else reference)
    normaliser = guarded(_family(_above(steady, floors)), scale, _family_floor(floors))
    return 1.0 - _family(_above(drifting, floors)) / normaliser


def drop_task_values(
    drifting: np.ndarray,
    steady: np.ndarray,
    floors: np.ndarray | None = None,
    reference: np.ndarray | None = None,
) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (..., M): the same per task, from means over seeds."""
    floor = None if floors is None else np.asarray(floors, np.float64)
    scale = nan_mean(steady if reference is None else reference, axis=-1)
    normaliser = guarded(nan_mean(_above(steady, floors), axis=-1), scale, floor)
    return 1.0 - nan_mean(_above(drifting, floors), axis=-1) / normaliser


def drop_run_values(
    drifting: np.ndarray,
    steady: np.ndarray,
    floors: np.ndarray | None = None,
    reference: np.ndarray | None = None,
) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (..., M, n): per run, against its own seed's steady run."""
    floor = None if floors is None else np.asarray(floors, np.float64)[:, None]
    scale = nan_mean(steady if reference is None else reference, axis=-1)[..., None]
    return 1.0 - _above(drifting, floors) / guarded(_above(steady, floors), scale, floor)


def loss_rate(drifting: np.ndarray, steady: np.ndarray) -> np.ndarray:
    """(M, n): mean return lost to drift, same seed, in units of return; always defined."""
    return np.asarray(steady, np.float64) - np.asarray(drifting, np.float64)


def _matrix(runs) -> np.ndarray:
    runs = np.asarray(runs, np.float64)
    return runs[None, :] if runs.ndim == 1 else np.atleast_2d(runs)


def _floors(floors) -> np.ndarray | None:
    return None if floors is None else np.atleast_1d(np.asarray(floors, np.float64))


def _explain(value: float, numerator: np.ndarray, normaliser: np.ndarray, floors: np.ndarray | None) -> str:
    """Why a ratio of means is NaN; empty if it is not."""
    if np.isfinite(value):
        return ""
    if np.any(np.all(~np.isfinite(numerator), axis=-1)) or np.any(np.all(~np.isfinite(normaliser), axis=-1)):
        return _NO_RUNS
    return _ZERO if floors is None else NOT_ABOVE_FLOOR


def nauc_family(method, sac_steady, floors=None) -> Metric:
    """Paper-literal nAUC of a family, one normaliser for all tasks; with ``floors``, ``nauc_family_safe``.

    >>> round(nauc_family([[300, 300], [1000, 1000]], [[100, 300], [1000, 3000]]).value, 6)
    0.590909
    """
    x, s, b = _matrix(method), _matrix(sac_steady), _floors(floors)
    value = float(nauc_family_values(x, s, b))
    return Metric(value, _explain(value, x, s, b), b is None and is_unsafe(x, s))


def nauc_task(method, sac_steady, floors=None) -> Scores:
    """nAUC of every run over its task's normaliser, (M, n); with ``floors``, ``nauc_task_safe``."""
    x, s, b = _matrix(method), _matrix(sac_steady), _floors(floors)
    values = nauc_task_values(x, s, b)
    return Scores(values, _explain_tasks(values, x, s, b), b is None and is_unsafe(x, s))


def drop_family(drifting, steady, floors=None, reference=None) -> Metric:
    """Paper-literal DropRatio of a family, smaller is better; with ``floors``, ``drop_family_safe``."""
    x, s, b, r = _matrix(drifting), _matrix(steady), _floors(floors), _reference(reference)
    value = float(drop_family_values(x, s, b, r))
    return Metric(value, _explain(value, x, s, b), b is None and is_unsafe(x, s))


def drop_task(drifting, steady, floors=None, reference=None) -> Scores:
    """DropRatio per task, (M,); its mean over tasks is *not* the family's DropRatio."""
    x, s, b, r = _matrix(drifting), _matrix(steady), _floors(floors), _reference(reference)
    values = drop_task_values(x, s, b, r)
    return Scores(values, _explain_tasks(values[:, None], x, s, b), b is None and is_unsafe(x, s))


def drop_run(drifting, steady, floors=None, reference=None) -> Scores:
    """DropRatio of every run against the steady run of its seed, (M, n), for paired statistics."""
    x, s, b, r = _matrix(drifting), _matrix(steady), _floors(floors), _reference(reference)
    values = drop_run_values(x, s, b, r)
    return Scores(values, _explain_tasks(values, x, s, b), b is None and is_unsafe(x, s))


def _reference(reference) -> np.ndarray | None:
    return None if reference is None else _matrix(reference)


def _explain_tasks(values, numerator, normaliser, floors) -> tuple[str, ...]:
    best = [row[np.isfinite(row)][0] if np.any(np.isfinite(row)) else np.nan for row in values]
    return tuple(
        _explain(v, numerator[[m]], normaliser[[m]], None if floors is None else floors[[m]])
        for m, v in enumerate(best)
    )
