"""Claims S1 to S10, E2, E7, E10 and Theorems R, D, M: weights of the schedules, and their regret below its bounds.

Sums are checked for every length at once (prefix sums), on weights computed from the formulas in double precision.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import lfilter

from aesjax.schedules import aes, aes_d, aes_m, aes_prior, fixed, overridden
from aesjax.schedules.rule import ema
from experiments.theory import bounds, oco
from experiments.theory.oco import drift_proxy
from tests.experiments.theory.generators import at_most, played, proxies

LENGTH, KAPPA = 2000, 0.7
T = np.arange(1, LENGTH + 1)
FREE = {"lambda_min": 0.0, "lambda_max": np.inf, "beta": 0.0}
STREAMS = [row for seed in range(3) for row in proxies(np.random.default_rng(seed), LENGTH).values()]
V = np.float64(np.float32(np.concatenate([STREAMS, 2.0 * np.eye(LENGTH)[[1, 19, 199]]])))  # as schedules read them
A = np.cumsum(V, axis=1)
PRIOR = KAPPA * np.sqrt((1 + A) / T)
LONELY = np.float64(np.arange(1, 4001) == 2001)[None]  # zeros, one unit spike at round 2001, zeros


def means(rows, prior=1.0, threshold=1.0):
    return np.asarray(jax.jit(jax.vmap(lambda v: bounds.maximal_means(v, prior=prior, threshold=threshold)))(rows))


def over(v, weights):
    """Sums of drift over weight, where there is drift."""
    return np.cumsum(np.divide(v, weights, out=np.zeros_like(v), where=v > 0), 1)


def relaxing(weights):
    return np.maximum(1 / weights[:, 1:] - 1 / weights[:, :-1], 0)


def scheduled():
    """Claim -> (left, right, least largest ratio) for the paper's schedule and Theorems R and M.

    Proofs: docs/proofs/schedules.md#s10, docs/proofs/schedules.md#theorem-r,
    docs/proofs/schedules.md#clipped-bound, docs/proofs/schedules.md#theorem-m.
    """
    raw, clipped = np.sqrt(A / T), np.clip(np.sqrt(A / T), 1e-2, 0.5)
    maximal, root = means(V), 2 * np.sqrt(T * (1 + A))
    level = KAPPA * np.sqrt(maximal)
    ahead = np.cumsum(-np.sort(-V, axis=1), 1)  # of a proxy that is never behind in the sum
    return {
        "S1 Cauchy-Schwarz": (np.cumsum(np.sqrt(V), 1), np.sqrt(T * A), 0.99),
        "S4 drift over root": (over(V, np.sqrt(A)), 2 * np.sqrt(A), 0.9),
        "S4 sum of roots": (np.cumsum(raw, 1), 2 * np.sqrt(T * A), 0.9),
        "S7 clipping, drift": (over(V, clipped), over(V, np.maximum(raw, 1e-300)) + A / 0.5, None),
        "S7 clipping, weights": (np.cumsum(clipped, 1), np.cumsum(raw, 1) + T * 1e-2, 0.99),
        "S10 prefix dominance": (over(V, KAPPA * np.sqrt((1 + ahead) / T)), 2 / KAPPA * np.sqrt(T * (1 + ahead)), 0.4),
        "R key lemma": (relaxing(PRIOR), PRIOR[:, :-1] / (2 * KAPPA**2 * (1 + A[:, :-1])), 0.99),
        "R tracking": (over(V, PRIOR), root / KAPPA, 0.5),
        "R sum of weights": (np.cumsum(PRIOR, 1), root * KAPPA, 0.9),
        "R clipped penalty": (np.cumsum(relaxing(clipped), 1), (1 + np.log(T[1:])) / (2 * 1e-2), None),
        "M contains R": (PRIOR, level * (1 + 1e-12), None),
        "M (a) sum": (np.cumsum(np.sqrt(maximal), 1), root, 0.9),
        "M (a) weak type": (-np.sort(-maximal, axis=1) * T, np.repeat(1 + A[:, -1:], LENGTH, 1), 0.9),
        "M (b) tracking": (over(V, level), root / KAPPA, 0.4),
        "M (c) relaxing": (relaxing(level), level[:, :-1] / (2 * KAPPA**2), 0.9),
    }


def test_sums_under_the_schedules_stay_below_their_bounds():
    for left, right, least in scheduled().values():
        at_most(left, right, least)


@pytest.mark.parametrize("window", [2.0, 64.0])
def test_d_discounted_tracking_on_every_interval_and_relaxing(window):
    """Proof: docs/proofs/schedules.md#theorem-d."""
    rho = 1 - 1 / window
    num, den = (lfilter([1.0], [1.0, -rho], x) for x in (V, np.ones_like(V)))
    weights = KAPPA * np.sqrt((1 + num) / den)
    factor, right = 2 * (1 - np.sqrt(rho)) * window / KAPPA**2, 2 / KAPPA * np.sqrt(window * (1 + num))
    net = over(V, weights) - factor * np.cumsum(weights, 1)
    before = np.concatenate([np.zeros((len(V), 1)), net[:, :-1]], 1)
    assert np.all(net - np.minimum.accumulate(before, 1) <= right + 1e-9 * (1 + np.abs(net)))  # from any round on
    at_most(relaxing(weights), weights[:, :-1] / (2 * rho * KAPPA**2 * (1 + num[:, :-1])))


def test_m_banks_are_the_maximal_means_up_to_two_e():
    """Proofs: docs/proofs/schedules.md#dyadic-bank, docs/proofs/schedules.md#held-bank."""
    rule = FREE | {"kappa": KAPPA}
    plain, bank = means(V, 0.0, 0.0), (played(aes_m(drift_proxy, levels=11, prior=0.0, **rule), V) / KAPPA) ** 2
    assert np.all(bank <= plain * (1 + 1e-4) + 1e-7)
    assert np.all(bank >= plain / (2 * np.e) * (1 - 1e-4) - 1e-7)
    for rows in (V, LONELY):
        weights = played(aes_m(drift_proxy, levels=12, hold=True, **rule), rows)
        level, steps, total = (weights / KAPPA) ** 2, np.arange(1, rows.shape[1] + 1), 1 + np.cumsum(rows, 1)
        assert np.all(level >= np.maximum(means(rows) / (2 * np.e), total / steps) * (1 - 1e-4))
        at_most(np.cumsum(np.sqrt(level), 1) * (1 - 1e-4), 2 * np.sqrt(steps * total))
        at_most(relaxing(weights) * (1 - 1e-4), np.e * weights[:, :-1] / (2 * KAPPA**2))
    # The default bank with its prior loses both after a lone spike.
    level = (played(aes_m(drift_proxy, levels=12, **rule), LONELY) / KAPPA) ** 2
    assert level[0, 2001] / means(LONELY)[0, 2001] == pytest.approx(0.0020, abs=1e-4)


def test_s3_the_best_constant_minimises_its_bound():
    """A.17 leaves out the start of the best constant, so its weight is 0 without drift."""
    size, c, rounds = 5, 2.0, 400
    _, tracking, stability = bounds.sharp_constants(size, 1e-3, c, 0.5, 1.0)
    for total in (0.0, 0.5, 40.0):
        best = bounds.constant_weight(
            size, c, bounds.Constants(0.0, tracking, stability), jnp.full(rounds, total / rounds)
        )
        lam = best * 10.0 ** np.linspace(-2, 2, 401)
        assert np.argmin((tracking * total + np.log(size) / c) / lam + stability * rounds * lam) == 200


def test_s5_e2_the_schedule_starts_at_zero_and_the_envelope_loses_the_rate():
    raw = played(aes(drift_proxy, kappa=1.0, **FREE), V[-1:])[0]  # first drift in round 200
    assert np.all(raw[:199] == 0)
    assert bounds.paper_constants(3, 1e-3, 1.0, 1.0, raw[0], 1.0, raw[0]).start == np.inf
    for rounds, printed in ((10**2, 5.0), (10**4, 50.0), (10**6, 500.0)):
        plain, optimum = np.sqrt(2.0 / np.arange(1, rounds + 1)), 2 * np.sqrt(rounds * 2.0)  # one spike at the start
        np.testing.assert_allclose(np.maximum.accumulate(plain).sum() / optimum, printed, rtol=1e-9)
        assert plain.sum() / optimum <= 1


def test_s9_e10_sum_of_the_ema_and_its_cut_of_spikes():
    """Proof: docs/proofs/schedules.md#s9. Adding ``b/(1-b)`` times the average restores prefix dominance."""
    beta, start = float(np.float32(0.95)), 0.3

    def step(previous, v):
        value = ema(previous, v, beta, first=jnp.zeros((), bool))
        return value, value

    smooth = np.asarray(jax.jit(jax.vmap(lambda v: jax.lax.scan(step, np.float64(start), v)[1]))(V))
    np.testing.assert_allclose(np.cumsum(smooth, 1), A + beta / (1 - beta) * (start - smooth), rtol=1e-9, atol=1e-9)
    spike = np.eye(LENGTH)[1000]
    cut = lfilter([1 - 0.95], [1, -0.95], spike)
    np.testing.assert_allclose(spike.max() / cut.max(), 20.0)
    assert np.cumsum(cut)[1000] < np.cumsum(spike)[1000]


def test_self_consistent_kappa_and_e7_the_entropy_term_is_pure_cost_in_the_bound():
    """E7: ``C1 C2`` falls as steps grow, to its value without the entropy term."""
    for c in (1e-25, 1.0, 1e12):
        kappa, (_, tracking, stability) = bounds.self_consistent(3, 1e-3, c, 0.5)
        np.testing.assert_allclose(kappa**2 * stability / tracking, 1.0, rtol=1e-9)
    constants = [bounds.self_consistent(10, 1e-3, c, 0.5)[1] for c in (0.1, 1.0, 10.0, 100.0, 1000.0, 1e9)]
    products = [x.tracking * x.stability for x in constants]
    np.testing.assert_allclose(products, [325, 35, 4.5, 0.95, 0.49, 0.43], rtol=0.01)


# --- dynamic regret of the schedules ---

COUNT, ROUNDS, LOWEST, HIGHEST, SPREAD = 60, 240, 3e-2, 0.8, 0.5


class Setting(NamedTuple):
    """One game and the numbers of its bounds; leading axis COUNT."""

    game: oco.Game
    floor: np.ndarray
    c: np.ndarray
    window: np.ndarray
    constant: np.ndarray


def draw(arms):
    """Games with switches; proxies are the true drift, the drift with noise on top, or its mass brought forward."""
    rng, rows = np.random.default_rng(arms), []
    for _ in range(COUNT):
        floor, switches = 10.0 ** rng.uniform(-4, -0.5) / arms, int(rng.choice([0, 1, 4, 16, 64]))
        game = oco.switching(rng, arms, ROUNDS, switches, floor=floor)
        drift = game.proxy
        noisy = np.minimum(drift + rng.exponential(0.05, ROUNDS), 2)
        rows.append(game._replace(proxy=[drift, noisy, -np.sort(-drift)][rng.integers(3)]))
    batch = jax.tree.map(lambda *x: np.stack(x), *rows)
    c, window = 10.0 ** rng.uniform(-1, 2, COUNT), 2.0 ** rng.integers(1, 12, COUNT)
    constant = np.minimum(10.0 ** rng.uniform(-2.5, 0, COUNT), c**-0.5)
    return Setting(batch, batch.comparator.min((1, 2)), c, window, constant)


@jax.jit
@jax.vmap
def measure(x):
    """Name -> (regret, its bound)."""
    game, arms = x.game, x.game.loss.shape[-1]
    sizes, drift, proxy = (arms, x.floor, x.c, SPREAD), oco.path(game.comparator), game.proxy
    kappa, _ = bounds.self_consistent(*sizes)

    def run(schedule, game=game):
        played = oco.play(schedule, game, x.c, x.floor)
        return played.regret.sum(), played.weight

    dominated = game._replace(proxy=jnp.maximum(jnp.asarray(proxy), drift))
    weights = kappa * jnp.sqrt(bounds.maximal_means(proxy))
    recorded = jnp.concatenate([weights[:1], weights])
    maximal = overridden(
        fixed(0.0), recorded, jnp.int32(1), jnp.int32(1)
    )  # `oco.play` updates it before its first step
    discounted = run(aes_d(drift_proxy, x.window, window=1.0, kappa=kappa, **FREE), dominated)
    clipped = run(aes(drift_proxy, kappa=kappa, beta=0.0, lambda_min=LOWEST, lambda_max=HIGHEST))
    constant = run(fixed(x.constant))
    sharp = bounds.sharp_constants(*sizes, constant[1][0])
    offline = (sharp.tracking * drift.sum() + jnp.log(float(arms)) / x.c) / constant[1][0]
    held = aes_m(drift_proxy, levels=9, hold=True, kappa=kappa, **FREE)
    return {
        "R": (run(aes_prior(drift_proxy, kappa=kappa, **FREE))[0], bounds.prior_bound(*sizes, proxy)),
        "M": (run(maximal)[0], bounds.prior_bound(*sizes, proxy)),
        "M, held bank": (run(held)[0], bounds.prior_bound(*sizes, proxy, relaxing=math.e)),
        "D": (discounted[0], bounds.discounted_bound(*sizes, x.window, discounted[1], dominated.proxy)),
        "clipped": (clipped[0], bounds.clipped_bound(*sizes, jnp.min(clipped[1]), clipped[1], drift)),
        "S3 constant": (constant[0], offline + sharp.stability * ROUNDS * constant[1][0]),
    }


def test_regret_stays_below_its_bound():
    """Proofs, in docs/proofs/schedules.md: #theorem-r, #theorem-m, #held-bank, #theorem-d, #clipped-bound."""
    for regret, bound in jax.tree.map(np.asarray, measure(draw(6))).values():
        at_most(regret, bound)
        assert np.mean(regret > 0) > 0.4


def test_s2_s5_the_oracle_and_the_paper_schedule_do_not_learn_and_prior_mass_repairs_it():
    """Constant losses (0, 1): regret T/2 against a bound without T; Theorem R on the same game."""
    rounds, floor, comparator = 4000, 1e-3, np.tile([1.0, 0.0], (4000, 1))
    game = oco.Game(1.0 - comparator, comparator, np.zeros(rounds))

    def regret(schedule, c):
        return float(jax.jit(lambda: oco.play(schedule, game, c, floor).regret.sum())())

    constants = [bounds.paper_constants(2, floor, c, 1.0, 1e-3, 1.0, 0.0) for c in (1.0, 10.0)]
    kappa = np.sqrt(constants[0].tracking / constants[0].stability)
    oracle = regret(oco.per_round_oracle(kappa=kappa, lambda_min=0.0, lambda_max=np.inf), 1.0)
    printed = float(constants[0].start)  # C0 + 2 sqrt(C1 C2) sum sqrt(xi), without drift
    assert oracle == pytest.approx(rounds / 2, rel=1e-12)
    assert oracle / printed == pytest.approx(2.9, abs=0.05)
    kappa, _ = bounds.self_consistent(2, floor, 10.0, 0.5)
    paper = regret(aes(drift_proxy, kappa=kappa, **FREE), 10.0)
    printed = float(constants[1].start) * np.log(2)  # C0 log K + 4 sqrt(C1 C2 T Ahat_T)
    assert paper == pytest.approx(rounds / 2, rel=1e-12)
    assert paper / printed == pytest.approx(41.6, abs=0.1)
    repaired = regret(aes_prior(drift_proxy, kappa=kappa, **FREE), 10.0)
    bound = bounds.prior_bound(2, floor, 10.0, 0.5, jnp.zeros(rounds))
    assert repaired / bound == pytest.approx(0.006, abs=1e-3)
    assert bound < paper  # the repaired bound says more than "at most T"
