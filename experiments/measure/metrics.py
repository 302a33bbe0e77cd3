"""nAUC and DropRatio, raw and floor-corrected (defined for negative returns); NaN where undefined.

Every function takes mean returns ``AUC / T`` (they weigh tasks of different horizons alike; with equal
horizons the ratios equal those of the areas) with axes (..., M tasks, n seeds); leading axes are bootstrap replicates.
A missing or diverged run is NaN and leaves the mean over seeds. ``floors`` of shape (M,), the mean returns of the
random policy, selects the floor-corrected variant, which measures returns above them; ``None`` the raw one.
"""

from collections.abc import Callable, Sequence

import numpy as np

from experiments.measure.curves import nan_mean
from experiments.measure.stats import t_interval

GUARD = 1e-3
NOT_ABOVE_FLOOR = "normaliser_not_above_floor"
_NO_RUNS = "no_valid_runs"
_ZERO = "normaliser_is_zero"
#: Flags of ratios that have no verdict.
UNSAFE, UNCLEAR = "literal_unsafe", "denominator_not_clearly_positive"


def clearly_positive(denominators: Sequence[float] | np.ndarray) -> bool:
    """Whether Student's 95 % interval of the mean of denominators (n seeds,) is above zero; one seed has none."""
    return t_interval(np.asarray(denominators)).low > 0.0


def guarded(denominator: np.ndarray, reference: np.ndarray, floor: np.ndarray | None) -> np.ndarray:
    """The denominator, or NaN if it is too small; it is never clipped or made positive.

    Floor-corrected: at most 1e-3 of ``max(|reference|, |floor|, 1e-8)``. Raw: exactly zero.
    ``reference`` is the mean return of SAC on Steady, in the same units.
    """
    if floor is None:
        return np.where(denominator == 0.0, np.nan, denominator)
    size = np.maximum(np.maximum(np.abs(np.nan_to_num(reference)), np.abs(floor)), 1e-8)
    with np.errstate(invalid="ignore"):
        return np.where(denominator <= GUARD * size, np.nan, denominator)


def _family(runs: np.ndarray) -> np.ndarray:
    """(..., M, n) -> (...): mean over seeds, then over tasks; NaN if a task has no valid run."""
    return np.mean(_task(runs), axis=-1)


def _task(runs: np.ndarray) -> np.ndarray:
    """(..., M, n) -> (..., M): mean over seeds."""
    return nan_mean(runs, axis=-1)


def _above(runs: np.ndarray, floors: np.ndarray | None) -> np.ndarray:
    runs = np.asarray(runs, np.float64)
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


def nauc_family(method: np.ndarray, sac_steady: np.ndarray, floors: np.ndarray | None = None) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (...): ratio of family means, the AES paper's nAUC.

    >>> round(float(nauc_family([[300, 300], [1000, 1000]], [[100, 300], [1000, 3000]])), 6)
    0.590909
    """
    return _family(_above(method, floors)) / _normaliser(_family, sac_steady, floors)


def nauc_task(method: np.ndarray, sac_steady: np.ndarray, floors: np.ndarray | None = None) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (..., M, n): each run over its task's normaliser."""
    return _above(method, floors) / _normaliser(_task, sac_steady, floors)[..., None]


def drop_family(
    drifting: np.ndarray, steady: np.ndarray, floors: np.ndarray | None = None, reference: np.ndarray | None = None
) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (...): ``1 - family mean / own steady family mean``, the AES paper's DropRatio.

    ``reference``: SAC on Steady, the same axes, for the scale of the guard; ``None`` takes ``steady``.
    """
    return 1.0 - _family(_above(drifting, floors)) / _normaliser(_family, steady, floors, reference)


def drop_task(
    drifting: np.ndarray, steady: np.ndarray, floors: np.ndarray | None = None, reference: np.ndarray | None = None
) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (..., M): the same per task, from means over seeds."""
    return 1.0 - _task(_above(drifting, floors)) / _normaliser(_task, steady, floors, reference)


def drop_run(
    drifting: np.ndarray, steady: np.ndarray, floors: np.ndarray | None = None, reference: np.ndarray | None = None
) -> np.ndarray:
    """(..., M, n), (..., M, n) -> (..., M, n): per run, against its own seed's steady run."""
    floor = None if floors is None else np.asarray(floors, np.float64)[:, None]
    scale = _task(steady if reference is None else reference)[..., None]
    return 1.0 - _above(drifting, floors) / guarded(_above(steady, floors), scale, floor)


def reason_of(value: float, numerator: np.ndarray, normaliser: np.ndarray, floors: np.ndarray | None) -> str:
    """Reason for a NaN ratio of means over runs (..., n); empty otherwise."""
    if np.isfinite(value):
        return ""
    if any(np.any(np.all(~np.isfinite(np.asarray(runs, np.float64)), axis=-1)) for runs in (numerator, normaliser)):
        return _NO_RUNS
    return _ZERO if floors is None else NOT_ABOVE_FLOOR
