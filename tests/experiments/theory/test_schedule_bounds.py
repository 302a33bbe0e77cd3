"""Claims S1 to S10 and E2, E5, E7 to E10: sums of weights and of drift over weights, and the constants.

Checked in double precision on weights computed from the formulas, for every length at once (prefix sums).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.signal import lfilter

from aesjax.schedules import aes
from aesjax.schedules.rule import ema
from experiments.theory import bounds, learners
from tests.experiments.theory.checks import at_most, long_streams, played

LENGTH, KAPPA = 2000, 0.7
T = np.arange(1, LENGTH + 1)
FREE = {"lambda_min": 0.0, "lambda_max": np.inf, "kappa": KAPPA, "beta": 0.0}
V = long_streams(LENGTH)
A = np.cumsum(V, axis=1)


def test_s1_minimiser_of_the_trade_off_has_a_closed_form():
    rng = np.random.default_rng(1)
    for tracking, stability, xi in 10.0 ** rng.uniform(-2, 1, (40, 3)):

        def cost(log_weight, a=tracking * xi, b=stability):
            return a * np.exp(-log_weight) + b * np.exp(log_weight)

        found = minimize_scalar(cost, bracket=(-5, 5), method="golden", options={"xtol": 1e-9})
        np.testing.assert_allclose(np.exp(found.x), np.sqrt(tracking * xi / stability), rtol=1e-6)
        np.testing.assert_allclose(found.fun, 2 * np.sqrt(tracking * stability * xi), rtol=1e-9)
    # Without drift the infimum is at weight zero, which the domain excludes: the oracle asks for no learning.
    oracle = played(learners.per_round_oracle(kappa=KAPPA, lambda_min=0.0, lambda_max=np.inf), np.zeros((1, 20)))
    np.testing.assert_array_equal(oracle, 0.0)


def test_s1_cauchy_schwarz_over_the_rounds(report):
    at_most(np.cumsum(np.sqrt(V), axis=1), np.sqrt(T * A), "S1: sum sqrt(xi) / sqrt(T A)", report)


@pytest.mark.parametrize("total", [0.0, 0.5, 40.0])
def test_s3_best_constant_needs_the_start_up_term(total):
    size, floor, c, rounds = 5, 1e-3, 2.0, 400
    drift = jnp.full(rounds, total / rounds)
    constants = bounds.sharp_constants(size, floor, c, 0.5, 1.0)
    best = bounds.constant_weight(size, c, constants, drift)
    grid = best * 10.0 ** np.linspace(-2, 2, 401)
    values = np.asarray(jax.vmap(lambda w: bounds.offline_bound(size, c, constants, w, drift))(grid))
    assert np.argmin(values) == 200
    # The start-up term counts as a path of 2 log K / L.
    log_range = np.log((1 - (size - 1) * floor) / floor)
    mass = constants.tracking * (total + 2 * np.log(size) / log_range)
    np.testing.assert_allclose(best, np.sqrt(mass / (constants.stability * rounds)), rtol=1e-12)
    np.testing.assert_allclose(values[200], 2 * np.sqrt(mass * constants.stability * rounds), rtol=1e-12)
    printed = bounds.constant_weight(size, c, constants, drift, start=False)
    np.testing.assert_allclose(printed, np.sqrt(constants.tracking * total / (constants.stability * rounds)))
    if total == 0:
        assert printed == 0
        assert bounds.offline_bound(size, c, constants, printed, drift) == np.inf
    # The printed sum starts at the second round: T - 1 for T changes the minimiser by less than 1 / T.
    assert abs(np.sqrt(rounds / (rounds - 1)) - 1) < 1 / rounds


def test_s4_both_square_root_sums_on_every_prefix(report):
    ratio = np.divide(V, np.sqrt(A), out=np.zeros_like(V), where=A > 0)
    at_most(np.cumsum(ratio, axis=1), 2 * np.sqrt(A), "S4: sum xi / sqrt(A)", report)
    at_most(np.cumsum(np.sqrt(A / T), axis=1), 2 * np.sqrt(T * A), "S4: sum sqrt(A / t)", report)


def test_s5_the_paper_schedule_starts_at_zero_so_its_constant_is_infinite():
    late = V[-1]  # first drift in round 200
    raw = played(aes(learners.drift_proxy, **FREE), late[None])[0]
    assert np.all(raw[:199] == 0)
    assert raw[199] > 0
    assert bounds.paper_constants(3, 1e-3, 1.0, 1.0, raw[0], 1.0, raw[0]).start == np.inf
    # With two arms the online theorem's C0 log K is less than the C0 that was proved.
    constants = bounds.paper_constants(2, 1e-3, 1.0, 1.0, 1e-3, 1.0, 0.5)
    assert bounds.online_bound_paper(constants, 2, jnp.zeros(10)) < constants.start


def test_s7_clipping_lemmas_and_their_equality(report):
    rng = np.random.default_rng(7)
    raw, xi = 10.0 ** rng.uniform(-4, 2, 5000), rng.uniform(0, 2, 5000)
    low = 10.0 ** rng.uniform(-4, 0, 5000)
    high = low * 10.0 ** rng.uniform(0, 3, 5000)
    weight = np.clip(raw, low, high)
    at_most(xi / weight, xi / raw + xi / high, "S7: drift term", report)
    at_most(weight, raw + low, "S7: weight", report)
    weights = np.clip(np.sqrt(A / T), 1e-2, 0.5)
    raw = np.maximum(np.sqrt(A / T), 1e-300)
    at_most(np.cumsum(V / weights, 1), np.cumsum(V / raw, 1) + A / 0.5, "S7: summed drift terms", report)
    at_most(np.cumsum(weights, 1), np.cumsum(raw, 1) + T * 1e-2, "S7: summed weights", report)
    # At the boundaries the clip adds nothing, at the limits all of it.
    assert np.clip(0.5, 1e-2, 0.5) == 0.5
    assert np.clip(0.0, 1e-2, 0.5) == 0.0 + 1e-2
    np.testing.assert_allclose(1 / np.clip(1e300, 1e-2, 0.5), 1 / 1e300 + 1 / 0.5)


def test_s8_e5_clipping_costs_linear_terms():
    """Not lower order: lambda_min costs ``T lambda_min``, lambda_max costs ``A / lambda_max``."""
    budget, low, high = 2.0, 1e-2, 0.5
    rounds = 10.0 ** np.arange(2, 8)
    np.testing.assert_allclose(np.diff(np.log10(rounds * low / np.sqrt(rounds * budget))), 0.5, rtol=1e-12)
    assert rounds[-1] * low > np.sqrt(rounds[-1] * budget)
    for mass in 10.0 ** np.linspace(-3, 3, 25):  # exactly when the final raw weight exceeds lambda_max
        raw = KAPPA * np.sqrt(mass / LENGTH)
        assert (mass / high > np.sqrt(LENGTH * mass) / KAPPA) == (raw > high)


@pytest.mark.parametrize("beta", [0.95, 0.99])
def test_s9_sum_of_the_ema_is_the_sum_of_the_proxy_minus_what_it_still_holds(beta):
    """Proof: docs/proofs/schedules.md#s9."""
    beta = float(np.float32(beta))

    def step(previous, v):
        value = ema(previous, v, beta, first=jnp.zeros((), bool))
        return value, value

    start = 0.3
    smooth = np.asarray(jax.jit(jax.vmap(lambda v: jax.lax.scan(step, np.float64(start), v)[1]))(V))
    assert smooth.dtype == np.float64
    held = beta / (1 - beta) * (start - smooth)
    np.testing.assert_allclose(np.cumsum(smooth, 1), A + held, rtol=1e-9, atol=1e-9)
    # E10: adding what it still holds restores prefix dominance.
    assert np.all(np.cumsum(smooth, 1) + beta / (1 - beta) * smooth >= A - 1e-9)


def smoothed(v, beta):
    return lfilter([1 - beta], [1, -beta], v, zi=[beta * v[0]])[0]


def test_e10_smoothing_breaks_pointwise_dominance_and_is_invisible_in_the_weight(report):
    spike = 2.0 * np.eye(LENGTH)[1000]
    np.testing.assert_allclose(spike.max() / smoothed(spike, 0.95).max(), 20.0)
    assert np.cumsum(smoothed(spike, 0.95))[1000] < np.cumsum(spike)[1000]  # nor does prefix dominance survive
    rng = np.random.default_rng(10)
    v = np.concatenate([3.0 * (rng.random(500_000) < 1 / 3), np.repeat([0.0, 3.0], [333_333, 166_667])])
    t = np.arange(1, len(v) + 1)
    for beta, at, printed in ((0.95, 10**4, 2.9e-3), (0.95, 10**6, 2.9e-5), (0.99, 10**6, 1.5e-4)):
        mean = np.cumsum(v)[at - 1] / at
        change = abs(np.sqrt(np.cumsum(smoothed(v, beta))[at - 1] / (at * mean)) - 1)
        bound = beta / (1 - beta) * v.max() / (2 * at * mean)
        np.testing.assert_allclose(beta / (1 - beta) * 3 / (2 * t[at - 1]), printed, rtol=0.03)
        report(f"E10: change of the weight / bound, beta {beta}, t {at}", change / bound)
        assert change <= bound * (1 + bound)


def test_s10_prefix_dominance_is_enough(report):
    """Proxies whose mass comes before the drift: below it in most rounds, never behind in the sum.

    Proof: docs/proofs/schedules.md#s10.
    """
    blocks = V.reshape(len(V), -1, 10)
    at_the_start = (blocks.sum(-1)[..., None] * np.eye(10)[0]).reshape(V.shape)
    largest_first = -np.sort(-V, axis=1)
    for name, proxy in (("block sums first", at_the_start), ("largest first", largest_first)):
        hat = np.cumsum(proxy, 1)
        assert np.all(hat >= A - 1e-9)
        assert np.mean(np.any(proxy < V, axis=1)) > 0.6
        weights = KAPPA * np.sqrt((1 + hat) / T)
        bound = 2 / KAPPA * np.sqrt(T * (1 + hat))
        at_most(np.cumsum(V / weights, 1), bound, f"S10: tracking, {name}", report)
        seen = np.divide(V, np.sqrt(hat / T), out=np.zeros_like(V), where=V > 0)
        at_most(np.cumsum(seen, 1), 2 * np.sqrt(T * hat), f"S10: without prior, {name}", report)
    blind = KAPPA * np.sqrt(1 / T)  # a proxy that sees nothing
    assert np.sum(V[0] / blind) > 2 / KAPPA * np.sqrt(LENGTH)


def test_e2_monotone_envelope_loses_the_rate():
    for rounds, printed in ((10**2, 5.0), (10**4, 50.0), (10**6, 500.0)):
        plain = np.sqrt(2.0 / np.arange(1, rounds + 1))  # one spike in the first round
        optimum = 2 * np.sqrt(rounds * 2.0)
        np.testing.assert_allclose(np.maximum.accumulate(plain).sum() / optimum, printed, rtol=1e-9)
        assert plain.sum() / optimum <= 1
    spike = 2.0 * np.eye(100)[:1]
    ours = played(learners.envelope(aes(learners.drift_proxy, **FREE | {"kappa": 1.0})), spike)
    np.testing.assert_allclose(ours.sum() / (2 * np.sqrt(200.0)), 5.0, rtol=1e-6)


def test_e8_paper_constants_are_vacuous_as_an_existence_statement():
    low, high = 1e-4, 1.0  # lambda_max = sqrt(2) kappa depends on kappa = sqrt(C1/C2)
    for _ in range(200):
        middle = np.sqrt(low * high)
        constants = bounds.paper_constants(10, 1e-3, 1.0, 1.0, 1e-3, np.sqrt(2) * middle, 0.0)
        small = middle**2 * constants.stability < constants.tracking
        low, high = (middle, high) if small else (low, middle)
    product = float(constants.tracking * constants.stability)
    assert round(product) == 604
    assert round(16 * product, -2) == 9700  # 4 sqrt(C1 C2 T A) < T only when T / A is larger
    # Any C2 >= 1 / lambda_min proves the theorem for losses in [0, 1], whatever the algorithm.
    trivial = bounds.Constants(jnp.ones(()), jnp.zeros(()), jnp.asarray(1 / 1e-3))
    assert bounds.tradeoff_bound(trivial, jnp.full(50, 1e-3), jnp.zeros(50)) >= 50
