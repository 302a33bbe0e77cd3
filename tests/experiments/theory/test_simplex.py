"""Claims O1 to O11: entropy, divergences and the mirror step on the (truncated) simplex."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from experiments.theory import simplex
from tests.experiments.theory.generators import simplex_points

SIZES = [2, 3, 6]
TIGHT = 1.0 + 1e-9

KL, CROSS, PSI = (jax.jit(f) for f in (simplex.kl, simplex.cross_entropy, simplex.negative_entropy))
STEP = jax.jit(jax.vmap(simplex.mirror_step))
LOGSOFT = jax.jit(jax.nn.log_softmax)


def cloud(size, count=300, seed=0):
    """Floors (n,), truncated points (n, K) and their raw versions (n, K)."""
    rng = np.random.default_rng([seed, size])
    raw = simplex_points(rng, count, size)
    floors = 10.0 ** rng.uniform(-4, -0.5, count) / size
    return floors, floors[:, None] + (1 - size * floors[:, None]) * raw, raw


def vertices(size, floor):
    return np.full((size, size), floor) + (1 - size * floor) * np.eye(size)


def largest_gradient(size, floor):
    """The true supremum of ``||grad Psi||_inf`` on the truncated simplex."""
    return np.maximum(-np.log(floor) - 1.0, 1.0 + np.log1p(-(size - 1) * floor))


@pytest.mark.parametrize("size", SIZES)
def test_o1_entropy_lies_between_minus_log_k_and_zero(size, report):
    psi = np.asarray(PSI(np.concatenate([cloud(size)[2], np.eye(size)])))
    report("O1: -Psi / log K", np.max(-psi) / np.log(size))
    assert np.all((psi <= 1e-12) & (psi >= -np.log(size) - 1e-12))
    np.testing.assert_array_equal(psi[-size:], 0.0)  # 0 log 0 = 0
    np.testing.assert_allclose(simplex.negative_entropy(jnp.full(size, 1 / size)), -np.log(size), rtol=1e-14)


@pytest.mark.parametrize("size", SIZES)
def test_o2_gradient_bound_is_loose_and_the_half_range_is_sharp(size, report):
    floors, x, _ = cloud(size)
    gradient = np.abs(1 + np.log(x)).max(-1)
    at_vertices = np.stack([np.abs(1 + np.log(vertices(size, f))).max() for f in floors])
    paper, sharp = 1 - np.log(floors), largest_gradient(size, floors)
    report("O2: |1 + log x| / (1 + l), at its supremum", np.max(at_vertices / paper))
    assert np.all(gradient <= sharp * TIGHT)
    np.testing.assert_allclose(at_vertices, sharp, rtol=1e-12)
    assert np.all(sharp < paper)
    half = np.asarray(jax.jit(simplex.half_range)(np.log(x))) * 2
    log_range = np.asarray(jax.jit(simplex.largest_log_range, static_argnums=0)(size, floors))
    report("O2: range log x / L", np.max(half / log_range))
    assert np.all(half <= log_range * TIGHT)
    corner = np.stack([np.ptp(np.log(vertices(size, f)[0])) for f in floors])
    np.testing.assert_allclose(corner, log_range, rtol=1e-9)
    cross = np.asarray(simplex.largest_cross_entropy(floors))
    assert np.all(log_range <= cross)
    tiny = 1e-12 / size
    assert simplex.largest_log_range(size, tiny) / simplex.largest_cross_entropy(tiny) > 1 - 1e-9


@pytest.mark.parametrize("size", SIZES)
def test_o3_bregman_divergence_is_kl_and_has_three_points(size):
    _, a, _ = cloud(size)
    b, c = cloud(size, seed=1)[1], cloud(size, seed=2)[1]

    def kl(x, y):
        return np.asarray(KL(x, np.log(y)))

    bregman = PSI(a) - PSI(b) - np.sum((1 + np.log(b)) * (a - b), -1)
    np.testing.assert_allclose(bregman, kl(a, b), rtol=1e-10, atol=1e-14)
    turned = np.sum((np.log(c) - np.log(b)) * (a - b), -1)
    np.testing.assert_allclose(turned, kl(a, b) + kl(b, c) - kl(a, c), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("size", SIZES)
def test_o4_pinsker_also_for_points_that_nearly_meet(size, report):
    rng = np.random.default_rng(size)
    _, x, raw = cloud(size)
    near = raw * (1 + 10.0 ** rng.uniform(-6, -1, (len(raw), 1)) * rng.uniform(-1, 1, raw.shape))
    near /= near.sum(-1, keepdims=True)
    uniform = np.full((300, size), 1 / size)
    close = uniform + 10.0 ** rng.uniform(-6, -1, (300, 1)) / size * (np.eye(size)[0] - np.eye(size)[1])
    u, y = (np.concatenate(z) for z in ((raw, near, close), (x, raw, uniform)))
    kl = np.asarray(KL(u, np.log(y)))
    half = 0.5 * np.abs(u - y).sum(-1) ** 2
    ratio = np.max(half[kl > 0] / kl[kl > 0])
    report("O4: ||x-y||^2 / (2 KL)", ratio)
    assert np.all(half <= kl * TIGHT + 1e-25)
    assert ratio > (0.999 if size == 2 else 0.6)  # tight only where all the mass moves, as on two arms
    far = simplex.kl(jnp.array([0.5, 0.5]), jnp.array([0.0, -jnp.inf]))
    assert far == np.inf


def test_o5_hessian_is_at_most_one_over_floor(report):
    size = 3
    floors, x, _ = cloud(size, 100)
    x = np.concatenate([x, [vertices(size, f)[0] for f in floors]])
    norm = np.linalg.norm(jax.jit(jax.vmap(jax.hessian(simplex.negative_entropy)))(x), 2, axis=(1, 2))
    ratio = norm * np.tile(floors, 2)
    report("O5: ||Hessian|| floor", ratio.max())
    assert np.all(ratio <= TIGHT)


@pytest.mark.parametrize("size", SIZES)
def test_o6_projection_solves_the_prox_problem(size, report):
    rng = np.random.default_rng([6, size])
    floors, x, _ = cloud(size)
    floors[:20] = 1 / size  # the domain is one point
    x[:20] = 1 / size
    g = rng.normal(size=x.shape) * 10.0 ** rng.uniform(-2, 2, (300, 1))
    log_new = np.asarray(STEP(np.log(x), g, np.ones(300), floors))
    new = np.exp(log_new)
    np.testing.assert_allclose(new.sum(-1), 1.0, rtol=1e-12)
    assert np.all(new >= floors[:, None] * (1 - 1e-12))
    # First-order optimality at every vertex of the domain.
    slope = g + log_new - np.log(x)
    corners = np.stack([vertices(size, f) for f in floors])
    gain = np.sum(slope[:, None] * (corners - new[:, None]), -1)
    report("O6: first-order optimality, worst", np.min(gain / (1 + np.abs(slope).max(-1, keepdims=True))))
    assert np.all(gain >= -1e-9 * (1 + np.abs(slope).max(-1, keepdims=True)))
    # The multiplier of the mass constraint by bisection: x' = max(floor, theta * y).
    log_y = np.log(x) - g
    for i in range(0, 300, 5):
        y = np.exp(log_y[i] - log_y[i].max())
        theta = brentq(lambda m, y=y, f=floors[i]: np.maximum(f, m * y).sum() - 1, 0.0, 2.0, xtol=1e-15)
        np.testing.assert_allclose(new[i], np.maximum(floors[i], theta * y), rtol=1e-7)


def test_o7_clipping_and_renormalising_leaves_the_truncated_simplex():
    clipped = simplex.clip_and_renormalise(jnp.array([0.98, 0.02, 0.0]), 0.05)
    assert round(float(clipped.min()), 4) == 0.0463
    exact = jnp.exp(simplex.project(jnp.log(jnp.array([0.98, 0.02, 1e-30])), 0.05))
    np.testing.assert_allclose(exact, [0.9, 0.05, 0.05], rtol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_o7_clipping_costs_a_feasible_comparator_nothing(size, report):
    """log(1 + (K-1) floor) is needed for vertices of the full simplex only: there is no cost inside the truncated one.

    Proof: docs/proofs/descent.md#o7-repaired.
    """
    floors, inside, x = cloud(size)
    x[:100] = floors[:100, None] * (1 - 10.0 ** np.random.default_rng(size).uniform(-6, -1, (100, 1)))
    x[:100, 0] = 1 - x[:100, 1:].sum(-1)  # just below the floor
    clipped = np.asarray(jax.jit(simplex.clip_and_renormalise)(x, floors[:, None]))
    log_before, log_after = np.log(x), np.log(clipped)
    most = np.log1p((size - 1) * floors)
    for name, u, limit in (
        ("inside", inside, 0.0),
        ("corner inside", np.stack([vertices(size, f)[0] for f in floors]), 0.0),
        ("vertex outside", np.tile(np.eye(size)[0], (300, 1)), 1.0),
    ):
        ratio = np.asarray(CROSS(u, log_after) - CROSS(u, log_before)) / most
        report(f"O7 repaired, {name}: cost / log(1 + (K-1) floor)", ratio.max())
        assert np.all(ratio <= limit + 1e-9)
    assert ratio.max() > 0.4
    assert np.all(clipped.min(-1) * (1 + (size - 1) * floors) >= floors * (1 - 1e-12))


@pytest.mark.parametrize("size", SIZES)
def test_o8_fixed_share_costs_little_and_keeps_a_share(size, report):
    rng = np.random.default_rng([8, size])
    _, u, x = cloud(size)
    share = rng.uniform(1e-4, 0.9, len(u))
    log_new = np.asarray(jax.jit(jax.vmap(simplex.fixed_share))(np.log(x), share))
    new = np.exp(log_new)
    np.testing.assert_allclose(new, (1 - share[:, None]) * x + share[:, None] / size, rtol=1e-12)
    lost = np.asarray(CROSS(u, log_new) - CROSS(u, np.log(x)))
    ratio = lost / -np.log1p(-share)
    report("O8: cost / -log(1 - w)", ratio.max())
    assert np.all(ratio <= TIGHT)
    assert new.min() >= 0
    assert np.all(new.min(-1) >= share / size * (1 - 1e-12))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("truncated", [True, False])
def test_o9_one_step_inequality_in_both_norms(size, truncated, report):
    """Proof: docs/proofs/descent.md#o9."""
    rng = np.random.default_rng([9, size])
    floors, x, raw = cloud(size)
    u = cloud(size, seed=1)[2]
    if truncated:
        u = floors[:, None] + (1 - size * floors[:, None]) * u
    else:
        floors, x = np.zeros_like(floors), raw
    eta, left = 10.0 ** rng.uniform(-3, 1, len(x)), rng.integers(1, 400, len(x))
    random = rng.normal(size=x.shape) * 10.0 ** rng.uniform(-2, 1, (len(x), 1))
    walk = np.log(x) - np.log(u)  # the first step of a straight walk to u in the dual space
    walk = (walk - (walk.max(-1) + walk.min(-1))[:, None] / 2) / (left * eta)[:, None]
    near = 1e-3 * rng.normal(size=x.shape) / eta[:, None]
    start = np.full((len(x), size), 1 / size)
    for name, g, at in (("random", random, x), ("march", walk, x), ("small, from uniform", near, start)):
        log_at = np.log(at)
        fall = np.asarray(KL(u, log_at) - KL(u, STEP(log_at, g, eta, floors)))
        left_side = eta * np.sum(g * (at - u), -1) - fall
        for norm, size_of in (("hr", np.ptp(g, axis=-1) / 2), ("sup", np.abs(g).max(-1))):
            right = eta**2 * size_of**2 / 2
            report(f"O9 {name}, {norm}", np.max((left_side / right)[right > 1e-7]))
            assert np.all(left_side <= right + 1e-9 * (1 + np.abs(fall)))


@pytest.mark.parametrize("size", SIZES)
def test_o10_regularised_step_shrinks_the_log_point(size):
    rng = np.random.default_rng([10, size])
    log_x = np.log(cloud(size)[2])
    g = rng.normal(size=log_x.shape)
    eta, lam = 10.0 ** rng.uniform(-2, 1, (2, 300, 1))
    ours = STEP(log_x, g + lam * (1 + log_x), eta[:, 0], np.zeros(300))
    np.testing.assert_allclose(ours, LOGSOFT((1 - eta * lam) * log_x - eta * g), rtol=1e-9, atol=1e-9)


@jax.jit
def log_odds(product, floor):
    """Log-odds of two arms without loss under the entropy term alone, c = 1 and weight ``sqrt(product)``."""
    lam = jnp.sqrt(product)

    def step(log_x, _):
        return (simplex.mirror_step(log_x, lam * log_x, lam, floor),) * 2

    points = jax.lax.scan(step, jnp.log(jnp.array([0.6, 0.4])), length=200)[1]
    return points[:, 0] - points[:, 1]


def test_o10_coupled_steps_diverge_beyond_two():
    assert abs(log_odds(1.0, 0.0)[0]) < 1e-12  # c lam^2 = 1 forgets at once
    assert abs(log_odds(1.9, 0.0)[-1]) < 1e-6
    wild = log_odds(2.5, 0.0)
    assert abs(wild[-1]) > 1e20  # the log-odds grow by 1.5 in every round
    flip = np.asarray(log_odds(2.5, 1e-4)[-6:])
    np.testing.assert_allclose(np.abs(flip), 9.21, atol=5e-3)
    assert np.all(flip[1:] * flip[:-1] < 0)


@pytest.mark.parametrize("size", SIZES)
def test_o11_entropy_term_bounds_the_log_range_without_truncation(size, report):
    """Proof: docs/proofs/descent.md#o11."""
    rng = np.random.default_rng([11, size])
    count, rounds = 200, 200
    losses = rng.integers(0, 2, (count, rounds, size)) * 1.0
    losses[:50] = losses[:50, :1]  # always the same loss: the walk converges to the bound
    lam = 10.0 ** rng.uniform(-2, 0.5, (count, rounds))
    lam[:100] = lam[:100, :1]
    share = rng.uniform(0, 1, (count, rounds))  # eta lam

    def run(losses, lam, eta):
        def step(log_x, given):
            loss, lam, eta = given
            log_x = simplex.mirror_step(log_x, loss + lam * log_x, eta)
            return log_x, 2 * simplex.half_range(log_x)

        return jax.lax.scan(step, jnp.full(size, -jnp.log(float(size))), (losses, lam, eta))[1]

    log_range = np.asarray(jax.jit(jax.vmap(run))(*map(jnp.asarray, (losses, lam, share / lam))))
    bound = 2 * 0.5 * np.maximum.accumulate(1 / lam, axis=1)
    ratio = (log_range / bound).max(-1)
    report("O11: random losses", ratio[50:].max())
    report("O11: constant loss", ratio[:50].max())
    assert np.all(ratio <= TIGHT)
    assert ratio[50:].max() > 0.8
