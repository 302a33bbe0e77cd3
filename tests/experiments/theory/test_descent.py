"""Claims D1, D3 to D5 and Theorem S: mirror descent against a moving comparator.

Instances are drawn in batches; a third of them each meets random losses, the adversary that walks the learner in a
straight dual line (`march`), and loss 1 on the heaviest arm.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory import bounds, simplex
from tests.experiments.theory import descents
from tests.experiments.theory.checks import at_most
from tests.experiments.theory.generators import simplex_points

SHAPES = [(2, 2), (6, 200)]
COUNT = 240


class Instances(NamedTuple):
    """A batch of instances; leading axis COUNT."""

    loss: np.ndarray  # (T, K)
    comparator: np.ndarray  # (T, K)
    left: np.ndarray  # (T,) steps left of the march to the comparator
    kind: np.ndarray  # () 0 random, 1 march, 2 heaviest arm
    etas: np.ndarray  # (T,)
    floor: np.ndarray  # ()


def draw(arms, rounds, seed=0):
    rng = np.random.default_rng([seed, arms, rounds])
    floor = 10.0 ** rng.uniform(-4, -0.5, COUNT) / arms
    floor[::4] = 0.0
    # Comparators stand still for stretches of a length that differs between instances.
    length = rng.integers(1, rounds + 1, (COUNT, 1))
    stretch = np.arange(rounds) // length
    points = simplex_points(rng, COUNT * rounds, arms).reshape(COUNT, rounds, arms)
    corners = np.eye(arms)[rng.integers(arms, size=(COUNT, rounds))]
    anchors = np.where(rng.random((COUNT, 1, 1)) < 0.5, points, corners)
    anchors[::4] = points[::4]  # on the full simplex the march cannot reach a vertex
    u = np.take_along_axis(anchors, stretch[..., None], axis=1)
    comparator = floor[:, None, None] + (1 - arms * floor[:, None, None]) * u
    etas = 10.0 ** rng.uniform(-2, 1, (COUNT, rounds))
    growth = rng.choice([1.0, 1.3, 2.0], COUNT)[:, None] ** np.minimum(np.arange(rounds), 30)
    etas = np.where(rng.random((COUNT, 1)) < 0.3, etas[:, :1] * growth, etas)
    etas = np.where(rng.random((COUNT, 1)) < 0.3, np.sort(etas), etas)
    loss = rng.normal(size=(COUNT, rounds, arms)) * 10.0 ** rng.uniform(-2, 1, (COUNT, 1, 1))
    return Instances(loss, comparator, length - np.arange(rounds) % length, np.arange(COUNT) % 3, etas, floor)


def adversary(data, log_x, eta):
    kind, loss, log_target, left = data
    heaviest = jax.nn.one_hot(jnp.argmax(log_x), log_x.shape[0], dtype=loss.dtype)
    return jnp.where(kind == 1, descents.march((log_target, left), log_x, eta), jnp.where(kind == 2, heaviest, loss))


def run(x, start=None, step=None):
    """A descent from the uniform point, or from ``start``."""
    rounds, arms = x.loss.shape
    start = jnp.full(arms, -jnp.log(float(arms))) if start is None else start
    log_u = jnp.log(jnp.maximum(x.comparator, 1e-300))
    return descents.descend(adversary, (jnp.full(rounds, x.kind), x.loss, log_u, x.left * 1.0), x.etas, start, x.floor)


def true_gradient_psi(floor, arms):
    return jnp.maximum(-jnp.log(floor) - 1.0, 1.0 + jnp.log1p(-(arms - 1) * floor))


@jax.jit
@jax.vmap
def everything(x, start):
    """Regret, every bound, and the telescoped sums, for the instance and for its steps in rising order."""
    arms = x.loss.shape[-1]
    d = run(x, start)
    out = {
        "regret": bounds.linear_regret(x.comparator, *d),
        "S": bounds.sharp_bound(x.comparator, *d, x.etas),
        "telescoped": bounds.telescoped(x.comparator, d.log_x, x.etas),
        "scale": jnp.max(jnp.abs(d.log_x)) * jnp.sum(1 / x.etas),
    }
    y = x._replace(etas=jnp.sort(x.etas))
    d = run(y, start)
    psi, loose = true_gradient_psi(x.floor, arms), 1.0 - jnp.log(x.floor)
    return out | {
        "sorted regret": bounds.linear_regret(y.comparator, *d),
        "D3": bounds.printed_bounds(y.comparator, *d, y.etas, psi)[0],
        "D4 loose": bounds.printed_bounds(y.comparator, *d, y.etas, loose)[1],
    }


@pytest.fixture(scope="module", params=SHAPES, ids=lambda s: f"K{s[0]}-T{s[1]}")
def measured(request):
    arms, rounds = request.param
    with jax.enable_x64(True):
        x = draw(arms, rounds)
        starts = np.full((COUNT, arms), -np.log(arms))
        anywhere = simplex_points(np.random.default_rng(1), COUNT, arms)
        moved = np.arange(COUNT) % 2 == 1  # half of the instances start elsewhere
        starts[moved] = np.log(x.floor[:, None] + (1 - arms * x.floor[:, None]) * anywhere)[moved]
        return x, {k: jax.tree.map(np.asarray, v) for k, v in everything(x, starts).items()}


def test_d1_both_telescoped_sums_are_identities(measured):
    _, got = measured
    left, *telescoped = got["telescoped"]
    for right in telescoped:
        np.testing.assert_array_less(np.abs(left - right), 1e-9 * (1 + np.abs(left)) + 1e-13 * got["scale"])


def test_theorem_s_holds_for_steps_in_any_order_and_without_floor(measured, report):
    """Proof: docs/proofs/descent.md#theorem-s."""
    x, got = measured
    for kind, name in enumerate(("random", "march", "heaviest arm")):
        of = x.kind == kind
        at_most(got["regret"][of], got["S"][of], f"S, {name}", report)
    at_most(got["regret"][x.floor == 0], got["S"][x.floor == 0], "S, no floor", report)


def test_d3_lemma_with_twice_the_gradient_needs_rising_steps_and_a_floor(measured, report):
    x, got = measured
    of = x.floor > 0
    at_most(got["sorted regret"][of], got["D3"][of], "D3", report)
    at_most(got["sorted regret"][of], got["D4 loose"][of], "D4 with 1 + l", report)


def test_theorem_s_also_holds_for_clipping_and_renormalising(report):
    """It leaves the truncated simplex a little, but moves the iterate away from no feasible comparator.

    Proof: docs/proofs/descent.md#o7-repaired.
    """
    arms = 3
    x = draw(arms, 20, seed=3)
    x = x._replace(floor=np.maximum(x.floor, 1e-3))
    u = x.floor[:, None, None] + (1 - arms * x.floor[:, None, None]) * np.clip(x.comparator, 0, 1)
    x = x._replace(comparator=u / u.sum(-1, keepdims=True), kind=x.kind % 2 * 2)

    @jax.jit
    @jax.vmap
    def clipped(x):
        def step(log_x, given):
            loss, eta = given
            g = adversary((x.kind, loss, loss, 1.0), log_x, eta)
            new = jnp.exp(simplex.mirror_step(log_x, g, eta))
            return jnp.log(simplex.clip_and_renormalise(new, x.floor)), (log_x, g)

        last, (points, g) = jax.lax.scan(step, jnp.full(arms, -jnp.log(float(arms))), (x.loss, x.etas))
        d = descents.Descent(jnp.concatenate([points, last[None]]), g)
        low = jnp.min(jnp.exp(d.log_x)) / x.floor
        return bounds.linear_regret(x.comparator, *d), bounds.sharp_bound(x.comparator, *d, x.etas), low

    regret, bound, lowest = map(np.asarray, clipped(x))
    at_most(regret, bound, "S with clip and renormalise", report)
    assert lowest.min() < 0.9
