"""Key inequalities of Theorems R, D and M: what tracking, weights and relaxing sum to under the repaired schedules.

Checked in double precision on weights computed from the formulas, for every length at once (prefix sums); that the
float32 schedules follow these formulas on the same streams is tested here too.
"""

import jax
import numpy as np
import pytest
from scipy.signal import lfilter

from aesjax.schedules import aes_m
from experiments.theory import bounds, learners
from tests.experiments.theory.checks import at_most, long_streams, played

LENGTH, KAPPA = 2000, 0.7
T = np.arange(1, LENGTH + 1)
FREE = {"lambda_min": 0.0, "lambda_max": np.inf, "kappa": KAPPA, "beta": 0.0}
WINDOWS = [2.0, 8.0, 64.0, 512.0, 1e6]
V = long_streams(LENGTH)
A = np.cumsum(V, axis=1)
WITH_PRIOR = KAPPA * np.sqrt((1 + A) / T)

MAXIMAL = jax.jit(jax.vmap(bounds.maximal_means))
PLAIN_MAXIMAL = jax.jit(jax.vmap(lambda v: bounds.maximal_means(v, prior=0.0, threshold=0.0)))


def relaxing(weights):
    return np.maximum(1 / weights[:, 1:] - 1 / weights[:, :-1], 0)


def discounted(window):
    """num and den, (N, LENGTH)."""
    rho = 1 - 1 / window
    return (lfilter([1.0], [1.0, -rho], x) for x in (V, np.ones_like(V)))


def test_r_relaxing_the_prior_schedule_costs_no_more_than_its_weight(report):
    """Proof: docs/proofs/schedules.md#theorem-r."""
    right = WITH_PRIOR[:, :-1] / (2 * KAPPA**2 * (1 + A[:, :-1]))
    np.testing.assert_allclose(right, 1 / (2 * T[:-1] * WITH_PRIOR[:, :-1]), rtol=1e-12)
    at_most(relaxing(WITH_PRIOR), right, "R: key lemma", report)
    at_most(np.cumsum(V / WITH_PRIOR, 1), 2 / KAPPA * np.sqrt(T * (1 + A)), "R: tracking", report)
    at_most(np.cumsum(WITH_PRIOR, 1), 2 * KAPPA * np.sqrt(T * (1 + A)), "R: sum of weights", report)


def test_r_relaxing_the_clipped_paper_schedule_costs_a_logarithm(report):
    """Proof: docs/proofs/schedules.md#clipped-bound."""
    weights = np.clip(KAPPA * np.sqrt(A / T), 1e-2, 0.6)
    at_most(np.cumsum(relaxing(weights), 1), (1 + np.log(T[1:])) / (2 * 1e-2), "R: clipped penalty", report)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("prior", [1.0, 0.0])
def test_d_discounted_tracking_on_every_interval_and_relaxing(window, prior, report):
    """Proof: docs/proofs/schedules.md#theorem-d."""
    rho = 1 - 1 / window
    num, den = discounted(window)
    weights = KAPPA * np.sqrt((prior + num) / den)
    tracked = np.divide(V, weights, out=np.zeros_like(V), where=V > 0)
    factor = 2 * (1 - np.sqrt(rho)) * window / KAPPA**2
    right = 2 / KAPPA * np.sqrt(window * (prior + num))
    cost = np.cumsum(tracked, 1)
    at_most(cost, right + factor * np.cumsum(weights, 1), f"D (i), W={window:g}, prior {prior:g}", report)
    net = np.cumsum(tracked - factor * weights, 1)
    before = np.concatenate([np.zeros((len(V), 1)), net[:, :-1]], 1)
    assert np.all(net - np.minimum.accumulate(before, 1) <= right + 1e-9 * (1 + np.abs(net)))  # from any round on
    if prior:
        right = weights[:, :-1] / (2 * rho * KAPPA**2 * (1 + num[:, :-1]))
        at_most(relaxing(weights), right, f"D (ii), W={window:g}", report)
        assert np.all(weights >= KAPPA / np.sqrt(window) * (1 - 1e-12))


def test_maximal_means_are_the_largest_means_over_windows():
    rows = V[:10, :60]
    sums = np.concatenate([np.zeros((10, 1)), np.cumsum(rows, 1)], 1)
    ours, plain = np.asarray(MAXIMAL(rows)), np.asarray(PLAIN_MAXIMAL(rows))
    for t in range(1, 61):
        mass = sums[:, [t]] - sums[:, :t]
        mean = mass / (t - np.arange(t))
        want = np.maximum((1 + sums[:, t]) / t, np.max(np.where(mass >= 1, mean, 0), 1))
        np.testing.assert_allclose(ours[:, t - 1], want, rtol=1e-12)
        np.testing.assert_allclose(plain[:, t - 1], mean.max(1), rtol=1e-12)


def test_m_maximal_schedule_keeps_all_that_the_prior_schedule_has(report):
    """Proof: docs/proofs/schedules.md#theorem-m."""
    means = np.asarray(MAXIMAL(V))
    weights = KAPPA * np.sqrt(means)
    assert np.all(weights >= WITH_PRIOR * (1 - 1e-12))
    at_most(np.cumsum(np.sqrt(means), 1), 2 * np.sqrt(T * (1 + A)), "M (a): sum of weights", report)
    ranked = -np.sort(-means, axis=1)  # #{t: M_t > a} <= mass / a, at every level that M takes
    at_most(ranked * T, np.repeat(1 + A[:, -1:], LENGTH, 1), "M (a): weak type", report)
    at_most(np.cumsum(V / weights, 1), 2 / KAPPA * np.sqrt(T * (1 + A)), "M (b): tracking", report)
    at_most(relaxing(weights), weights[:, :-1] / (2 * KAPPA**2), "M (c): relaxing", report)


def test_m_dyadic_bank_is_the_maximal_mean_up_to_two_e(report):
    """Proof: docs/proofs/schedules.md#dyadic-bank."""
    plain = np.asarray(PLAIN_MAXIMAL(V))
    bank = (played(aes_m(learners.drift_proxy, levels=11, prior=0.0, **FREE), V) / KAPPA) ** 2
    seen = plain > 1e-12
    report("M: bank / maximal, smallest", np.min(bank[seen] / plain[seen]))
    assert np.all(bank <= plain * (1 + 1e-4) + 1e-7)
    assert np.all(bank >= plain / (2 * np.e) * (1 - 1e-4) - 1e-7)
    # So the bank obeys the weak-type bound as well.
    at_most(np.cumsum(np.sqrt(bank), 1) * (1 - 1e-4) - 1e-3, 2 * np.sqrt(T * A), "M: bank, sum of weights", report)


LONELY = np.float64(np.arange(1, 4001) == 2001)[None]  # zeros, one unit spike at round 2001, zeros


@pytest.mark.parametrize("prior", [1.0, 0.1])
def test_m_held_bank_has_the_factor_and_every_part_of_the_proof(prior, report):
    """Proof: docs/proofs/schedules.md#held-bank."""
    for rows in (V, LONELY):
        steps, total = np.arange(1, rows.shape[1] + 1), np.cumsum(rows, 1)
        exact = np.asarray(jax.jit(jax.vmap(lambda v: bounds.maximal_means(v, prior=prior, threshold=prior)))(rows))
        schedule = aes_m(learners.drift_proxy, levels=12, prior=prior, hold=True, **FREE)
        weights = played(schedule, rows)
        level = (weights / KAPPA) ** 2
        report(f"M: held bank / maximal, smallest, prior {prior:g}", np.min(level / exact))
        assert np.all(level >= exact / (2 * np.e) * (1 - 1e-4))
        assert np.all(level >= (prior + total) / steps * (1 - 1e-4))
        near = 1 - 1e-4  # float32 means
        at_most(np.cumsum(np.sqrt(level), 1) * near, 2 * np.sqrt(steps * (prior + total)), "M (a), held bank", report)
        right = np.e * weights[:, :-1] / (2 * KAPPA**2 * prior)
        at_most(relaxing(weights) * near, right, "M (c), held bank", report)


def test_m_tracks_on_every_interval_where_the_paper_schedule_does_not(report):
    """Proof: docs/proofs/schedules.md#theorem-m."""
    rows = V[:10]
    plain = np.asarray(PLAIN_MAXIMAL(rows))
    worst = {"paper": 0.0, "maximal": 0.0}
    for v, maximal, mean in zip(rows, plain, A[:10] / T, strict=True):
        mass, length = np.r_[0.0, np.cumsum(v)], np.arange(LENGTH + 1)
        inside, size = mass - mass[:, None], length - length[:, None]  # [start, end]
        best = 2 * np.sqrt(np.maximum(inside * size, 0))
        for name, level in (("paper", mean), ("maximal", maximal)):
            cost = np.r_[0.0, np.cumsum(np.divide(v, np.sqrt(level), out=np.zeros_like(v), where=v > 0))]
            ratio = np.divide(cost - cost[:, None], best, out=np.zeros_like(best), where=best > 1e-9)
            worst[name] = max(worst[name], ratio.max())
    for name, value in worst.items():
        report(f"M: worst interval / its optimum, {name}", value)
    assert worst["maximal"] <= 0.5 * (1 + 1e-9)
    np.testing.assert_allclose(worst["paper"], np.sqrt(LENGTH) / 2, rtol=1e-6)  # the last round alone, after silence
