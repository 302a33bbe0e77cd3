"""Claims D2, D6, D7 and the counterexamples E1, E2: the steps of the descent lemma one by one, and worst walks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import lambertw

from experiments.theory import bounds, simplex
from tests.experiments.theory import descents
from tests.experiments.theory.checks import at_most
from tests.experiments.theory.generators import simplex_points


def true_gradient_psi(floor, arms):
    return jnp.maximum(-jnp.log(floor) - 1.0, 1.0 + jnp.log1p(-(arms - 1) * floor))


@jax.jit
def walk(targets, left, comparator, etas, start, floor):
    """A march of two arms with everything that is compared: regret, appendix, lemma, Theorem S."""
    d = descents.descend(descents.march, (jnp.log(targets), left), etas, jnp.log(start), floor)
    psi = true_gradient_psi(floor, 2)
    lemma, appendix = bounds.printed_bounds(comparator, *d, etas, psi)
    sharp = bounds.sharp_bound(comparator, *d, etas)
    return jnp.stack([bounds.linear_regret(comparator, *d), appendix, lemma, sharp])


def countdown(steps):
    return np.arange(steps, 0, -1.0)


def test_e1_appendix_lemma_fails_for_euclidean_steps_on_an_interval():
    """Psi = x^2/2 on [-1, 1], constant step; everything is multiplied by it. The lemma is stated for any such map."""
    x, u, g = np.array([-1.0, -1.0]), np.array([0.0, 1.0]), np.array([0.0, -2.0])
    assert np.clip(x[0] - g[0], -1, 1) == x[1]
    left = np.sum(g * (x - u))
    common = (u[0] - x[0]) ** 2 / 2 + np.sum(g**2) / 2
    appendix, lemma = common + 1.0 * abs(u[1] - u[0]), common + 2.0 * abs(u[1] - u[0])
    assert (left, appendix, lemma) == (4.0, 3.5, 4.5)
    assert left > appendix


@pytest.mark.parametrize(
    ("floor", "steps", "printed", "appendix", "lemma"),
    [(0.1, 200, 1.767, 1.565, 2.607), (0.1, 50, 1.793, 1.601, None), (0.05, 200, 2.663, 2.648, None)],
)
def test_e1_appendix_lemma_fails_for_the_entropy(floor, steps, printed, appendix, lemma, report):
    low, high = np.array([floor, 1 - floor]), np.array([1 - floor, floor])
    targets = np.concatenate([low[None], np.repeat(high[None], steps, 0)])  # the first round has no loss
    comparator = np.concatenate([[[0.5, 0.5]], np.repeat(high[None], steps, 0)])
    got = walk(targets, np.r_[1.0, countdown(steps)], comparator, np.ones(steps + 1), low, floor)
    report(f"D4: LHS/RHS at floor {floor}, {steps} steps", got[0] / got[1])
    np.testing.assert_allclose(got[:2], [printed, appendix], atol=6e-4)
    assert got[0] > got[1]
    assert got[0] <= min(got[2], got[3])
    assert lemma is None or abs(got[2] - lemma) < 6e-4


def test_e1_appendix_lemma_fails_from_the_uniform_start_too():
    low, high = np.array([0.1, 0.9]), np.array([0.9, 0.1])
    targets = np.repeat(np.stack([low, high]), 400, 0)
    comparator = np.repeat(np.stack([[0.5, 0.5], high]), 400, 0)
    got = walk(targets, np.tile(countdown(400), 2), comparator, np.ones(800), np.array([0.5, 0.5]), 0.1)
    np.testing.assert_allclose(got, [1.252, 1.050, 2.092, 1.580], atol=6e-4)


def test_d2_change_of_comparator_costs_up_to_the_log_range(report):
    """sup (KL(u,x) - KL(u',x)) / |u - u'| is L for the entropy, above the largest gradient."""
    floor = 0.01
    x = np.log(np.array([floor, 1 - floor]))
    u = np.array([1 - floor, floor])
    v = u - 1e-7 * np.array([1.0, -1.0])
    largest = (simplex.kl(u, x) - simplex.kl(v, x)) / np.abs(u - v).sum()
    half_entropy = np.log(u[0] / u[1]) / 2  # slope of the comparator's own entropy, which Theorem S does not pay
    report("D2: one-step slope / G_Psi", largest / true_gradient_psi(floor, 2))
    np.testing.assert_allclose(largest, 4.595, atol=1e-3)
    np.testing.assert_allclose(simplex.largest_log_range(2, floor), 4.595, atol=5e-4)
    np.testing.assert_allclose(true_gradient_psi(floor, 2), 3.605, atol=5e-4)
    np.testing.assert_allclose(1 + simplex.largest_cross_entropy(floor), 5.605, atol=5e-4)
    np.testing.assert_allclose(largest - half_entropy, simplex.half_range(x), atol=1e-5)
    assert largest > true_gradient_psi(floor, 2)


@pytest.mark.parametrize("arms", [2, 3, 6])
def test_d2_repaired_change_of_comparator(arms, report):
    rng = np.random.default_rng([2, arms])
    floor = 10.0 ** rng.uniform(-4, -0.5, (300, 1)) / arms
    u, v, x = (floor + (1 - arms * floor) * simplex_points(rng, 300, arms) for _ in range(3))
    change = np.abs(u - v).sum(-1)
    kl, cross = jax.jit(simplex.kl), jax.jit(simplex.cross_entropy)
    log_range = np.log((1 - (arms - 1) * floor[:, 0]) / floor[:, 0])
    at_most(kl(u, np.log(x)) - kl(v, np.log(x)), log_range * change, "D2, KL with L", report)
    half = np.ptp(np.log(x), axis=-1) / 2
    at_most(cross(u, np.log(x)) - cross(v, np.log(x)), half * change, "D2, CE with hr(log x)", report)


def test_e2_lemma_fails_when_the_step_falls():
    u = np.array([0.99, 0.01])
    etas = np.r_[1.0, np.full(200, 0.01)]
    targets = np.concatenate([[[0.5, 0.5]], np.repeat(u[None], 200, 0)])  # the first round has no loss
    comparator = np.repeat(u[None], 201, 0)
    got = walk(targets, np.r_[1.0, countdown(200)], comparator, etas, np.array([0.5, 0.5]), 0.01)
    np.testing.assert_allclose([got[0], got[3]], [64.3, 70.6], atol=0.06)
    np.testing.assert_allclose(got[2], 1.96, atol=6e-3)


@pytest.mark.parametrize(("switches", "steps", "least"), [(30, 60, 0.978), (30, 200, 0.992)])
def test_theorem_s_is_tight_for_a_learner_that_is_walked_to_and_fro(switches, steps, least, report):
    """Proof: docs/proofs/descent.md#theorem-s."""
    corners = np.array([[0.01, 0.99], [0.99, 0.01]])
    comparator = np.repeat(corners[np.arange(switches + 1) % 2], steps, 0)
    left = np.tile(countdown(steps), switches + 1)
    got = walk(comparator, left, comparator, np.ones(len(left)), np.array([0.5, 0.5]), 0.01)
    report(f"S, {switches} switches, {steps} steps", got[0] / got[3])
    assert least - 5e-4 <= got[0] / got[3] <= 1


@pytest.mark.parametrize("arms", [2, 3, 6])
def test_d6_leaving_the_entropy_term_out_of_the_regret(arms, report):
    """f-regret - linearised regularised regret <= lam log K; the sharp constant is W((K-1)/e), Lambert's function.

    Proof: docs/proofs/descent.md#d6.
    """
    rng = np.random.default_rng([6, arms])
    floor = 10.0 ** rng.uniform(-4, -0.5, (400, 1)) / arms
    x, u = (floor + (1 - arms * floor) * simplex_points(rng, 400, arms) for _ in range(2))
    loss, curvature = rng.normal(size=x.shape), 10.0 ** rng.uniform(-2, 0, (400, 1)) * rng.integers(0, 2, (400, 1))
    lam = 10.0 ** rng.uniform(-3, 0.5, 400)
    sharp = float(np.real(lambertw((arms - 1) / np.e)))
    # The extreme case: comparator on the heaviest arm, whose probability is 1/(1 + W).
    heavy = 1 / (1 + sharp)
    x[0] = np.r_[heavy, np.full(arms - 1, (1 - heavy) / (arms - 1))]
    u[0], curvature[0] = np.eye(arms)[0], 0.0

    def psi(z):
        return np.asarray(simplex.negative_entropy(jnp.asarray(z)))

    f_regret = np.sum(loss * (x - u), -1) + curvature[:, 0] * (psi(x) - psi(u))
    gradient = loss + (curvature + lam[:, None]) * (1 + np.log(x))
    excess = f_regret - np.sum(gradient * (x - u), -1)
    report("D6: lam log K", np.max(excess / lam) / np.log(arms))
    report("D6: lam W((K-1)/e)", np.max(excess / lam) / sharp)
    assert np.all(-lam * (psi(x) - psi(u)) <= lam * np.log(arms) * (1 + 1e-12))
    assert np.all(excess <= lam * sharp * (1 + 1e-9))
    assert sharp < np.log(arms) < 2 * np.log(arms)
    np.testing.assert_allclose(excess[0], lam[0] * sharp, rtol=1e-9)


@pytest.mark.parametrize("arms", [2, 3, 6])
def test_d7_size_of_the_regularised_gradient(arms, report):
    rng = np.random.default_rng([7, arms])
    floor = 10.0 ** rng.uniform(-4, -0.5, 300) / arms
    x = floor[:, None] + (1 - arms * floor[:, None]) * simplex_points(rng, 300, arms)
    x[:50] = floor[:50, None] + (1 - arms * floor[:50, None]) * np.eye(arms)[0]
    loss, lam = rng.uniform(-1, 1, x.shape), 10.0 ** rng.uniform(-3, 0.5, 300)
    loss[:50] = np.r_[1.0, np.full(arms - 1, -1.0)]
    gradient = loss + lam[:, None] * (1 + np.log(x))
    half = np.asarray(jax.jit(simplex.half_range)(gradient))
    spread, log_range = np.ptp(loss, axis=-1) / 2, np.log((1 - (arms - 1) * floor) / floor)
    at_most(half, spread + lam * log_range / 2, "D7, half-range", report)
    loose = np.abs(loss).max(-1) + lam * np.asarray(true_gradient_psi(floor, arms))
    at_most(np.abs(gradient).max(-1), loose, "D7, sup norm", report)
