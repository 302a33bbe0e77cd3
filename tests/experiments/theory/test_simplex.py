"""Claims O1 to O11: entropy, divergences and the mirror step on the (truncated) simplex."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.theory import simplex
from tests.experiments.theory.generators import at_most, simplex_points

KL, CROSS, PSI = (jax.jit(f) for f in (simplex.kl, simplex.cross_entropy, simplex.negative_entropy))
STEP = jax.jit(jax.vmap(simplex.mirror_step))
SIZE, COUNT = 3, 300


def cloud(seed=0):
    """Floors (n,), truncated points (n, K) and their raw versions (n, K)."""
    rng = np.random.default_rng([seed, SIZE])
    raw = simplex_points(rng, COUNT, SIZE)
    floors = 10.0 ** rng.uniform(-4, -0.5, COUNT) / SIZE
    return floors, floors[:, None] + (1 - SIZE * floors[:, None]) * raw, raw


def clip_and_renormalise(x, floor):
    clipped = np.maximum(x, floor)
    return clipped / clipped.sum(-1, keepdims=True)


def cost(u, before, after):
    """Rise of the potential ``KL(u, .)`` when a point moves."""
    return np.asarray(CROSS(u, np.log(after)) - CROSS(u, np.log(before)))


def sides():
    """Claim -> (left, right, least largest ratio) with ``left <= right``."""
    rng = np.random.default_rng([7, SIZE])
    floors, x, raw = cloud()
    u_raw = cloud(1)[2]
    corner = floors[:, None] + (1 - SIZE * floors[:, None]) * np.eye(SIZE)[0]
    log_range = np.log((1 - (SIZE - 1) * floors) / floors)
    psi = np.maximum(-np.log(floors) - 1.0, 1.0 + np.log1p(-(SIZE - 1) * floors))
    share = rng.uniform(1e-4, 0.9, COUNT)
    clipped = clip_and_renormalise(raw, floors[:, None])
    hessian = jax.jit(jax.vmap(jax.hessian(simplex.negative_entropy)))(x)
    return {
        "O1 entropy": (-np.asarray(PSI(np.concatenate([raw, np.full((1, SIZE), 1 / SIZE)]))), np.log(SIZE), 0.999),
        "O2 gradient at its supremum": (np.abs(1 + np.log(corner)).max(-1), psi, 0.999),
        "O2 range of log x": (np.ptp(np.log(np.concatenate([x, corner])), axis=-1), np.tile(log_range, 2), 0.999),
        "O4 Pinsker": (0.5 * np.abs(raw - x).sum(-1) ** 2, KL(raw, np.log(x)), 0.6),
        "O5 Hessian": (np.linalg.norm(hessian, 2, axis=(1, 2)), 1 / floors, None),
        "O7 clipping, comparator inside": (cost(x, raw, clipped), 0.0, None),
        "O7 clipping, vertex outside": (
            cost(np.tile(np.eye(SIZE)[0], (COUNT, 1)), raw, clipped),
            np.log1p((SIZE - 1) * floors),
            0.4,
        ),
        "O8 smoothing": (cost(u_raw, raw, (1 - share[:, None]) * raw + share[:, None] / SIZE), -np.log1p(-share), 0.45),
    }


def test_bounds_hold_and_are_not_much_too_large():
    """Proof of O7: docs/proofs/descent.md#o7-repaired."""
    for left, right, least in sides().values():
        at_most(left, right, least)


def test_o3_o10_identities():
    a, b, c = (cloud(seed)[1] for seed in range(3))

    def kl(x, y):
        return np.asarray(KL(x, np.log(y)))

    bregman = PSI(a) - PSI(b) - np.sum((1 + np.log(b)) * (a - b), -1)
    np.testing.assert_allclose(bregman, kl(a, b), rtol=1e-10, atol=1e-14)
    turned = np.sum((np.log(c) - np.log(b)) * (a - b), -1)
    np.testing.assert_allclose(turned, kl(a, b) + kl(b, c) - kl(a, c), rtol=1e-10, atol=1e-13)
    rng = np.random.default_rng([10, SIZE])
    g, (eta, lam) = rng.normal(size=a.shape), 10.0 ** rng.uniform(-2, 1, (2, COUNT, 1))
    new = STEP(np.log(a), g + lam * (1 + np.log(a)), eta[:, 0], np.zeros(COUNT))
    np.testing.assert_allclose(new, jax.nn.log_softmax((1 - eta * lam) * np.log(a) - eta * g), rtol=1e-9, atol=1e-9)


def test_o6_o7_projection_solves_the_prox_problem_and_clipping_does_not():
    rng = np.random.default_rng([6, SIZE])
    floors, x, _ = cloud()
    floors[:20] = x[:20] = 1 / SIZE  # the domain is one point
    g = rng.normal(size=x.shape) * 10.0 ** rng.uniform(-2, 2, (COUNT, 1))
    log_new = np.asarray(STEP(np.log(x), g, np.ones(COUNT), floors))
    new = np.exp(log_new)
    np.testing.assert_allclose(new.sum(-1), 1.0, rtol=1e-12)
    assert np.all(new >= floors[:, None] * (1 - 1e-12))
    slope = g + log_new - np.log(x)  # first-order optimality at every vertex of the domain
    vertices = floors[:, None, None] + (1 - SIZE * floors[:, None, None]) * np.eye(SIZE)
    gain = np.sum(slope[:, None] * (vertices - new[:, None]), -1)
    assert np.all(gain >= -1e-9 * (1 + np.abs(slope).max(-1, keepdims=True)))
    point = np.array([0.98, 0.02, 1e-30])
    assert round(clip_and_renormalise(point, 0.05).min(), 4) == 0.0463
    np.testing.assert_allclose(jnp.exp(simplex.project(np.log(point), 0.05)), [0.9, 0.05, 0.05], rtol=1e-12)


def test_o11_entropy_term_bounds_the_log_range_without_truncation():
    """Proof: docs/proofs/descent.md#o11."""
    rng, rounds = np.random.default_rng(11), 200
    losses = rng.integers(0, 2, (COUNT, rounds, SIZE)) * 1.0
    losses[:50] = losses[:50, :1]  # always the same loss: the walk converges to the bound
    lam = 10.0 ** rng.uniform(-2, 0.5, (COUNT, rounds))
    lam[:100] = lam[:100, :1]
    share = rng.uniform(0, 1, (COUNT, rounds))  # eta lam

    def run(losses, lam, eta):
        def step(log_x, given):
            loss, lam, eta = given
            log_x = simplex.mirror_step(log_x, loss + lam * log_x, eta)
            return log_x, 2 * simplex.half_range(log_x)

        return jax.lax.scan(step, jnp.full(SIZE, -jnp.log(float(SIZE))), (losses, lam, eta))[1]

    log_range = np.asarray(jax.jit(jax.vmap(run))(losses, lam, share / lam))
    at_most(log_range, np.maximum.accumulate(1 / lam, axis=1), 0.99)
