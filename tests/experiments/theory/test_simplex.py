"""Claims O1 to O11: entropy, divergences and the mirror step on the (truncated) simplex."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory import simplex
from tests.experiments.theory.generators import at_most, simplex_points

KL, CROSS, PSI = (jax.jit(f) for f in (simplex.kl, simplex.cross_entropy, simplex.negative_entropy))
STEP = jax.jit(jax.vmap(simplex.mirror_step))


def cloud(size, count=300, seed=0):
    """Floors (n,), truncated points (n, K) and their raw versions (n, K)."""
    rng = np.random.default_rng([seed, size])
    raw = simplex_points(rng, count, size)
    floors = 10.0 ** rng.uniform(-4, -0.5, count) / size
    return floors, floors[:, None] + (1 - size * floors[:, None]) * raw, raw


def vertices(size, floors):
    """(n, K, K) corners of the truncated simplices."""
    return floors[:, None, None] + (1 - size * floors[:, None, None]) * np.eye(size)


def clip_and_renormalise(x, floor):
    clipped = np.maximum(x, floor)
    return clipped / clipped.sum(-1, keepdims=True)


def cost(u, before, after):
    """Rise of the potential ``KL(u, .)`` when a point moves."""
    return np.asarray(CROSS(u, np.log(after)) - CROSS(u, np.log(before)))


def sides(size):
    """Claim -> (left, right) with ``left <= right``."""
    rng = np.random.default_rng([7, size])
    floors, x, raw = cloud(size)
    u_raw, corner = cloud(size, seed=1)[2], vertices(size, floors)[:, 0]
    log_range = np.log((1 - (size - 1) * floors) / floors)
    psi = np.maximum(-np.log(floors) - 1.0, 1.0 + np.log1p(-(size - 1) * floors))
    near = raw * (1 + 10.0 ** rng.uniform(-6, -1, (300, 1)) * rng.uniform(-1, 1, raw.shape))
    u, y = np.concatenate([raw, near / near.sum(-1, keepdims=True)]), np.concatenate([x, raw])
    share = rng.uniform(1e-4, 0.9, 300)
    below = raw.copy()
    below[:100] = floors[:100, None] * (1 - 10.0 ** rng.uniform(-6, -1, (100, 1)))
    below[:100, 0] = 1 - below[:100, 1:].sum(-1)  # just below the floor
    clipped, outside = clip_and_renormalise(below, floors[:, None]), np.tile(np.eye(size)[0], (300, 1))
    hessian = jax.jit(jax.vmap(jax.hessian(simplex.negative_entropy)))(x)
    return {
        "O1 entropy": (-np.asarray(PSI(np.concatenate([raw, np.full((1, size), 1 / size)]))), np.log(size)),
        "O2 gradient at its supremum": (np.abs(1 + np.log(corner)).max(-1), psi),
        "O2 gradient, printed": (psi, 1 - np.log(floors)),
        "O2 range of log x": (np.ptp(np.log(x), axis=-1), log_range),
        "O2 range at a corner": (np.ptp(np.log(corner), axis=-1), log_range),
        "O2 range, simpler": (log_range, -np.log(floors)),
        "O4 Pinsker": (0.5 * np.abs(u - y).sum(-1) ** 2, KL(u, np.log(y))),
        "O5 Hessian": (np.linalg.norm(hessian, 2, axis=(1, 2)), 1 / floors),
        "O7 clipping, comparator inside": (cost(x, below, clipped), 0.0),
        "O7 clipping, vertex outside": (cost(outside, below, clipped), np.log1p((size - 1) * floors)),
        "O8 smoothing": (cost(u_raw, raw, (1 - share[:, None]) * raw + share[:, None] / size), -np.log1p(-share)),
    }


LEAST = {"O1 entropy": 1 - 1e-9, "O2 gradient at its supremum": 1 - 1e-9, "O2 range at a corner": 1 - 1e-9}
LEAST |= {"O4 Pinsker": 0.6, "O7 clipping, vertex outside": 0.4, "O8 smoothing": 0.45}
SIZES = [2, 3, 6]


@pytest.mark.parametrize("size", SIZES)
def test_bounds_hold_and_are_not_much_too_large(size):
    """Proof of O7: docs/proofs/descent.md#o7-repaired."""
    for name, (left, right) in sides(size).items():
        at_most(left, right, LEAST.get(name))


@pytest.mark.parametrize("size", SIZES)
def test_o3_o10_identities(size):
    a, b, c = (cloud(size, seed=seed)[1] for seed in range(3))

    def kl(x, y):
        return np.asarray(KL(x, np.log(y)))

    bregman = PSI(a) - PSI(b) - np.sum((1 + np.log(b)) * (a - b), -1)
    np.testing.assert_allclose(bregman, kl(a, b), rtol=1e-10, atol=1e-14)
    turned = np.sum((np.log(c) - np.log(b)) * (a - b), -1)
    np.testing.assert_allclose(turned, kl(a, b) + kl(b, c) - kl(a, c), rtol=1e-10, atol=1e-13)
    rng = np.random.default_rng([10, size])
    g, (eta, lam) = rng.normal(size=a.shape), 10.0 ** rng.uniform(-2, 1, (2, 300, 1))
    ours = STEP(np.log(a), g + lam * (1 + np.log(a)), eta[:, 0], np.zeros(300))
    np.testing.assert_allclose(ours, jax.nn.log_softmax((1 - eta * lam) * np.log(a) - eta * g), rtol=1e-9, atol=1e-9)


def test_kl_keeps_its_accuracy_where_the_point_underflows():
    for log_x, printed in ((-600.0, 179.4), (-705.0, 210.9), (-746.0, 223.2)):
        np.testing.assert_allclose(KL(np.array([0.3, 0.7]), np.array([log_x, 0.0])), printed, atol=0.05)
    assert KL(np.array([0.5, 0.5]), np.array([0.0, -np.inf])) == np.inf
    np.testing.assert_array_equal(PSI(np.eye(3)), 0.0)  # 0 log 0 = 0


@pytest.mark.parametrize("size", SIZES)
def test_o6_projection_solves_the_prox_problem(size):
    rng = np.random.default_rng([6, size])
    floors, x, _ = cloud(size)
    floors[:20] = x[:20] = 1 / size  # the domain is one point
    g = rng.normal(size=x.shape) * 10.0 ** rng.uniform(-2, 2, (300, 1))
    log_new = np.asarray(STEP(np.log(x), g, np.ones(300), floors))
    new = np.exp(log_new)
    np.testing.assert_allclose(new.sum(-1), 1.0, rtol=1e-12)
    assert np.all(new >= floors[:, None] * (1 - 1e-12))
    slope = g + log_new - np.log(x)  # first-order optimality at every vertex of the domain
    gain = np.sum(slope[:, None] * (vertices(size, floors) - new[:, None]), -1)
    assert np.all(gain >= -1e-9 * (1 + np.abs(slope).max(-1, keepdims=True)))


def test_o7_clipping_and_renormalising_leaves_the_truncated_simplex():
    point = np.array([0.98, 0.02, 1e-30])
    assert round(clip_and_renormalise(point, 0.05).min(), 4) == 0.0463
    np.testing.assert_allclose(jnp.exp(simplex.project(np.log(point), 0.05)), [0.9, 0.05, 0.05], rtol=1e-12)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("truncated", [True, False])
def test_o9_one_step_inequality_in_both_norms(size, truncated):
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
    for g in (random, walk):
        fall = np.asarray(KL(u, np.log(x)) - KL(u, STEP(np.log(x), g, eta, floors)))
        for norm in (np.ptp(g, axis=-1) / 2, np.abs(g).max(-1)):
            left_side = eta * np.sum(g * (x - u), -1) - fall
            assert np.all(left_side <= eta**2 * norm**2 / 2 + 1e-9 * (1 + np.abs(fall)))


@jax.jit
def log_odds(product, floor):
    """Log-odds of two arms without loss under the entropy term alone, c = 1 and weight ``sqrt(product)``."""
    lam = jnp.sqrt(product)

    def step(log_x, _):
        return (simplex.mirror_step(log_x, lam * log_x, lam, floor),) * 2

    points = jax.lax.scan(step, jnp.log(jnp.array([0.6, 0.4])), length=200)[1]
    return points[:, 0] - points[:, 1]


def test_o10_coupled_steps_diverge_beyond_two():
    assert abs(log_odds(1.0, 0.0)[0]) < 1e-12  # c lam^2 = 1 forgets everything in one step
    assert abs(log_odds(1.9, 0.0)[-1]) < 1e-6
    flip = np.asarray(log_odds(2.5, 1e-4)[-6:])
    np.testing.assert_allclose(np.abs(flip), 9.21, atol=5e-3)
    assert np.all(flip[1:] * flip[:-1] < 0)


def test_o11_entropy_term_bounds_the_log_range_without_truncation():
    """Proof: docs/proofs/descent.md#o11."""
    rng, count, rounds, size = np.random.default_rng(11), 200, 200, 3
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

    log_range = np.asarray(jax.jit(jax.vmap(run))(losses, lam, share / lam))
    at_most(log_range, np.maximum.accumulate(1 / lam, axis=1), 0.99)
