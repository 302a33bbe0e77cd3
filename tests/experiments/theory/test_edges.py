"""Edges at which a claim used to fail: infinite ratios, constants far out, points that underflow.

What they were before stands in docs/proofs.md; outages and sparse proxies of `aes_r` are in test_relative_properties.
"""

import jax
import numpy as np
import pytest

from aesjax.schedules import calibration as cal
from experiments.theory import bounds, simplex


def test_divergences_stay_finite_where_the_point_itself_underflows():
    """``exp(log x)`` is zero below -745 and its inverse too large from -709 on; the divergence is neither."""
    depth = np.array([600.0, 690.0, 705.0, 745.0, 746.0, 1e4, 1e300])
    log_x = np.stack([-depth, np.log1p(-np.exp(-depth))], axis=-1)
    u = np.tile([0.3, 0.7], (len(depth), 1))
    want = 0.3 * np.log(0.3) + 0.7 * np.log(0.7) + 0.3 * depth
    np.testing.assert_allclose(simplex.kl(u, log_x), want, rtol=1e-12)
    np.testing.assert_allclose(simplex.kl(np.tile([0.0, 1.0], (len(depth), 1)), log_x), 0.0, atol=1e-15)
    assert simplex.kl(np.array([0.3, 0.7]), np.array([-np.inf, 0.0])) == np.inf


def test_self_consistent_scale_solves_its_equation_far_beyond_the_usual_constants():
    """It used to stop without a word at 1e-9 and 1e9, the ends of its bracket."""
    c = 10.0 ** np.arange(-60, 61, 5.0)

    def both(c):
        kappa = bounds.self_consistent_kappa(10, 1e-3, c, 0.5)
        constants = bounds.sharp_constants(10, 1e-3, c, 0.5, 3**0.5 * kappa)
        return kappa, kappa**2 * constants.stability / constants.tracking

    kappa, ratio = map(np.asarray, jax.jit(jax.vmap(both))(c))
    assert kappa.min() < 1e-50
    assert kappa.max() > 1e25
    np.testing.assert_allclose(ratio, 1.0, rtol=1e-12)
    for impossible in (0.0, -1.0):
        assert np.isnan(bounds.self_consistent_kappa(10, 1e-3, impossible, 0.5))
    assert np.isnan(bounds.self_consistent_kappa(10, 0.0, 1.0, 0.5))  # without truncation C1 is infinite


@pytest.mark.parametrize(("share", "lost"), [(0.15, 0.86), (0.3, 0.73)])
def test_the_run_level_bound_holds_where_many_runs_drift_before_their_first_signal(report, share, lost):
    """Infinite ratios are values like others; only the product ``inf * 0`` is none. Table: docs/proofs.md."""
    rng = np.random.default_rng(16)
    repetitions, n, rounds = 4_000, 39, 40
    drift = rng.uniform(0.0, 1.0, (repetitions, n + 1, rounds))
    signal = drift * np.exp(0.5 * rng.standard_normal((repetitions, n + 1, 1)))
    signal[..., 0] = np.where(rng.random((repetitions, n + 1)) < share, 0.0, signal[..., 0])
    ratio = cal.run_ratios(drift, signal)
    assert np.mean(np.isinf(ratio)) == pytest.approx(share, abs=0.01)
    scale = cal.run_level_scale(ratio[:, :n], 0.1)
    with np.errstate(invalid="ignore"):
        product = np.mean(cal.dominates(drift[:, n], scale[:, None] * signal[:, n]))
    found = np.mean(cal.dominates(drift[:, n], cal.run_level_bound(scale, signal[:, n])))
    report(f"C6, {share:g} of the runs without a first signal: product", product)
    report(f"C6, {share:g} of the runs without a first signal: bound", found)
    assert product < lost
    assert found >= 0.9 - 3.0 * np.sqrt(0.09 / repetitions)


def test_an_infinite_scale_bounds_trivially_and_a_finite_one_is_a_factor():
    signal = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    bound = cal.run_level_bound(np.array([np.inf, 0.5]), signal)
    np.testing.assert_array_equal(bound, [[np.inf] * 3, [0.0, 0.5, 1.0]])
    np.testing.assert_array_equal(cal.run_level_bound(2.0, signal[0]), [0.0, 2.0, 4.0])
