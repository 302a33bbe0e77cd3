"""Calibration: the fit is least squares, a split covers its share, reuse does not, runs do (C1 to C6)."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from aesjax.schedules import calibration as cal
from experiments.theory import calibration_study

#: World, repetitions, and name -> (measured share, tolerance). None: as exchangeability gives it, exactly.
NUMBERS = {
    "one pair": (
        10_000,
        {
            **{f"reused, N={n}": (value, 0.015) for n, value in ((10, 0.557), (20, 0.667), (50, 0.780))},  # of .9
            **{f"split, N={n}": (value, 0.015) for n, value in ((10, 1.0), (20, 0.909), (50, 0.923))},
            **{f"split, exact, N={n}": (value, 5e-4) for n, value in ((10, 1.0), (20, 10 / 11), (50, 24 / 26))},
        },
    ),
    "a run": (1_000, {"one round": (0.9, 0.015), "all rounds": (0.0085, 0.01), "trivial after scaling": (1.0, 0.01)}),
    "runs": (
        120,
        {
            **{f"dominated, n={n}": (0.9, 0.05) for n in (9, 19, 39)},
            **{f"dominated under another schedule, n={n}": (0.80, 0.06) for n in (9, 19, 39)},
            **{f"covered at drift, n={n}": (v, 0.05) for n, v in ((9, 0.243), (19, 0.182), (39, 0.153))},
            **{f"slack, n={n}": (v, 6.0) for n, v in ((9, 22.1), (19, 19.0), (39, 17.4))},
        },
    ),
}


@pytest.mark.parametrize("world", NUMBERS)
def test_recorded_shares_come_out_again(world):
    count, numbers = NUMBERS[world]
    found = calibration_study.WORLDS[world](np.random.default_rng(10), count)
    assert set(found) == set(numbers)
    for name, (value, tolerance) in numbers.items():
        assert found[name] == pytest.approx(value, abs=tolerance), name


@pytest.mark.parametrize("ties", [False, True])
def test_c1_the_fit_solves_the_quadratic_program(ties):
    rng = np.random.default_rng(ties)
    for size in range(1, 13):
        v = rng.integers(0, max(2, size // 2), size).astype(float) if ties else rng.normal(size=size)
        b = rng.normal(size=size) + rng.choice([0.0, 1.0, -1.0]) * v
        unique, group = np.unique(v, return_inverse=True)
        increments = np.tril(np.ones((len(unique), len(unique))))[group]
        low = np.concatenate([[-np.inf], np.zeros(len(unique) - 1)])
        wanted = increments @ lsq_linear(increments, b, (low, np.inf), tol=1e-14).x
        np.testing.assert_allclose(cal.predict(cal.isotonic_fit(v, b), v), wanted, atol=1e-6)
    fit = cal.isotonic_fit(np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.0, 3.0]))
    np.testing.assert_array_equal(
        cal.predict(fit, np.array([0.0, 1.0, 1.9, 2.0, 3.0, 4.0, 9.0])), [0, 0, 0, 1, 1, 3, 3]
    )


def test_c4_too_few_residuals_give_an_infinite_margin():
    v, b = np.random.default_rng(3).random((2, 2, 5))
    assert np.isinf(cal.split_conformal(v[0], b[0], v[1], b[1], 0.1).margin)  # index 6 of 5
    assert np.isfinite(cal.split_conformal(v[0], b[0], v[1], b[1], 0.2).margin)  # index 5 of 5


def test_c6_the_ratio_is_the_smallest_factor_that_dominates():
    drift, signal = np.random.default_rng(8).exponential(size=(2, 200, 60))
    total, bound = np.cumsum(drift, -1), cal.run_ratios(drift, signal)[:, None] * np.cumsum(signal, -1)
    assert np.all(total <= bound * (1 + 1e-12))
    np.testing.assert_allclose(np.max(total / bound, -1), 1.0, rtol=1e-12)  # reached in some round
    # Drift before the first signal makes a run infinite, no drift makes it zero.
    drift = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    signal = np.array([[0.0, 0.0, 5.0], [0.0, 4.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(cal.run_ratios(drift, signal), [np.inf, 0.25, 0.0])
