"""SAC: where the entropy weight enters, what the residuals are, and what the policy head is."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents import sac
from agents.common.carrier import Transition
from agents.common.networks import Gaussian, GaussianActor, TwinCritic
from tests.quick import quick

S, A, B = 3, 2, 16
HYPER = sac.SacHyper(learning_rate=3e-4, critic_learning_rate=1e-3, gamma=0.9, tau=0.1)


def make_batch(seed=0, terminated=0.0):
    rng = np.random.default_rng(seed)
    arrays = rng.normal(size=(B, S)), np.tanh(rng.normal(size=(B, A))), rng.normal(size=B)
    return Transition(*map(jnp.float32, (*arrays, np.full(B, terminated), rng.normal(size=(B, S)))))


@pytest.fixture(scope="module")
def carrier():
    return sac.make(S, A, sac.SacConfig(hidden=(8, 8), batch_size=B))


@pytest.fixture(scope="module")
def state(carrier):
    # A target that differs from the online critics, so that mixing them up shows.
    state = initial(carrier)(jax.random.key(1))
    return state._replace(target=jax.tree.map(lambda x: np.float32(0.7) * np.asarray(x), state.critic))


@functools.cache
def initial(carrier):
    return quick(carrier.init)


@functools.cache
def compiled(carrier):
    return quick(carrier.update)


def step(carrier, state, batch, weight, seed=2, at=0):
    return compiled(carrier)(
        state, batch, jax.random.key(seed), jnp.int32(at), entropy_weight=jnp.float32(weight), hyper=HYPER
    )


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_target_changes_with_the_weight_by_exactly_the_discounted_entropy():
    reward, term, log_prob = jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0]), jnp.array([-0.7, 0.4])
    next_q = jnp.array([[3.0, 4.0], [2.5, 5.0]])
    y1, y2 = (
        sac.soft_target(reward, term, next_q, log_prob, entropy_weight=jnp.float32(w), gamma=jnp.float32(0.9))
        for w in (0.1, 0.6)
    )
    np.testing.assert_allclose(y2 - y1, [-0.5 * 0.9 * -0.7, 0.0], atol=1e-6)
    np.testing.assert_allclose(y1, [1.0 + 0.9 * (2.5 + 0.07), 2.0], rtol=1e-6)  # min of the critics; term keeps r


def test_actor_loss_has_slope_mean_log_prob_in_the_weight():
    log_prob, q = jnp.array([0.5, -1.5]), jnp.array([[1.0, 2.0], [0.0, 3.0]])
    low, high = (sac.actor_loss(log_prob, q, entropy_weight=jnp.float32(w)) for w in (0.2, 1.2))
    np.testing.assert_allclose(high - low, np.mean([0.5, -1.5]), rtol=1e-6)
    np.testing.assert_allclose(low, 0.2 * -0.5 - np.mean([0.0, 2.0]), rtol=1e-6)


def test_critic_loss_is_the_sum_over_critics_without_a_half():
    loss, error = sac.critic_loss(jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.array([2.0, 2.0]))
    np.testing.assert_allclose(loss, (1.0 + 0.0) / 2 + (4.0 + 4.0) / 2)
    np.testing.assert_allclose(error, [[1.0, 0.0], [2.0, 2.0]])


def test_the_weight_reaches_critic_and_actor(carrier, state):
    batch = make_batch()
    low, high = step(carrier, state, batch, 0.1).state, step(carrier, state, batch, 0.9).state
    assert any(not np.array_equal(a, b) for a, b in zip(leaves(low.critic), leaves(high.critic), strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(leaves(low.actor), leaves(high.actor), strict=True))


def test_residuals_equal_an_independent_recomputation_before_the_update(carrier, state):
    batch, key = make_batch(), jax.random.key(2)
    out = step(carrier, state, batch, 0.3)
    assert out.signals.td_error.shape == (2 * B,)
    noise = jax.random.normal(key, (3, B, A))
    actor, critic = GaussianActor((8, 8), A), TwinCritic((8, 8))
    action, log_prob = quick(lambda p: actor.apply(p, batch.next_obs).sample_and_log_prob(noise[0]))(state.actor)
    next_q = quick(critic.apply)(state.target, batch.next_obs, action)
    y = batch.reward + 0.9 * (jnp.minimum(next_q[0], next_q[1]) - 0.3 * log_prob)
    q = quick(critic.apply)(state.critic, batch.obs, batch.action)
    np.testing.assert_allclose(out.signals.td_error, jnp.concatenate([y - q[0], y - q[1]]), atol=1e-5)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, -5.0), (0.0, 0.0), (1.5, 0.5), (0.0, 2.0)])
def test_tanh_normal_density_integrates_to_one(mean, log_std):
    # The density of a = tanh(u) at u is N(u) / (1 - tanh(u)^2); da = sech(u)^2 du computed independently.
    with jax.enable_x64(True):
        u = np.linspace(mean - 12 * np.exp(log_std), mean + 12 * np.exp(log_std), 400_001)
        normal = -0.5 * ((u - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
        import distrax

        log_det = np.asarray(distrax.Tanh().forward_log_det_jacobian(jnp.asarray(u)))
        with np.errstate(over="ignore"):
            da = 1.0 / np.cosh(u) ** 2
        inside = da > 0
        density = np.exp(normal[inside] - log_det[inside])
        mass = np.sum((density * da[inside])[1:] * np.diff(u[inside]))
    np.testing.assert_allclose(mass, 1.0, atol=1e-4)


def test_log_prob_is_the_numerical_change_of_variables():
    dist = Gaussian(jnp.full((4000, 1), 0.3), jnp.full((4000, 1), -0.2))
    action, log_prob = quick(dist.sample_and_log_prob)(jax.random.normal(jax.random.key(0), (4000, 1)))
    a = np.asarray(action[:, 0], np.float64)
    u = np.arctanh(a)
    keep = np.abs(u) < 3
    std = np.exp(-0.2)
    h = 1e-6
    slope = (np.arctanh(a + h) - np.arctanh(a - h)) / (2 * h)
    expected = -0.5 * ((u - 0.3) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi) + np.log(slope)
    np.testing.assert_allclose(np.asarray(log_prob)[keep], expected[keep], atol=2e-3)
    close = np.abs(u) < 1.5
    np.testing.assert_allclose(np.asarray(log_prob)[close], expected[close], atol=1e-4)


def test_the_reference_log_jacobian_floors_at_its_epsilon():
    far = Gaussian(jnp.full((1, 1), 12.0), jnp.full((1, 1), -5.0))
    exact, floored = (far.sample_and_log_prob(jnp.zeros((1, 1)), eps_logdet=e)[1] for e in (False, True))
    base = np.asarray(exact)[0] + (2 * np.log(2) - 24.0)
    np.testing.assert_allclose(floored[0] - base, -np.log(1e-6), rtol=2e-2)


def test_log_std_stays_inside_its_range_for_any_input():
    actor = GaussianActor((8, 8), A)
    params = quick(actor.init)(jax.random.key(0), jnp.zeros((1, S)))
    loud = jax.tree.map(lambda x: np.float32(1e3) * np.asarray(x), params)
    obs = 100.0 * jax.random.normal(jax.random.key(1), (256, S))
    log_std = quick(lambda params: actor.apply(params, obs).log_std)(loud)
    assert float(jnp.min(log_std)) >= -5.0
    assert float(jnp.max(log_std)) <= 2.0
    assert float(jnp.max(log_std) - jnp.min(log_std)) > 6.0


def test_the_twin_critics_start_different_and_targets_start_equal(carrier):
    state = initial(carrier)(jax.random.key(3))
    kernel = jax.tree.leaves(state.critic)[1]
    assert not np.array_equal(kernel[0], kernel[1])
    chex.assert_trees_all_equal(state.critic, state.target)


def test_initial_weights_follow_the_reference_law():
    params = quick(GaussianActor((256, 256), A).init)(jax.random.key(0), jnp.zeros((1, S)))["params"]
    hidden = params["Dense_1"]
    for leaf in (hidden["kernel"], hidden["bias"]):
        assert float(jnp.max(jnp.abs(leaf))) <= 1 / 16 + 1e-6
        np.testing.assert_allclose(float(jnp.std(leaf)), 1 / 16 / np.sqrt(3), rtol=0.1)


def test_a_delayed_actor_rests_on_odd_steps_and_moves_twice_on_even_ones():
    carrier = sac.make(S, A, sac.SacConfig(hidden=(8, 8), batch_size=B, actor_delay=2))
    state, batch = initial(carrier)(jax.random.key(0)), make_batch()

    def counts(at):
        out = step(carrier, state, batch, 0.2, at=at)
        return int(out.state.actor_opt.count), int(out.state.critic_opt.count)

    assert counts(4) == (2, 1)
    assert counts(5) == (0, 1)


def test_one_step_is_adam_on_the_gradients_of_the_stated_losses(carrier, state):
    """Re-derivation with NumPy's Adam: first step moves every parameter by lr * sign-like g / (|g| + eps)."""
    batch = make_batch()
    out = step(carrier, state, batch, 0.3)
    noise = jax.random.normal(jax.random.key(2), (3, B, A))
    actor, critic = GaussianActor((8, 8), A), TwinCritic((8, 8))
    action, log_prob = quick(lambda p: actor.apply(p, batch.next_obs).sample_and_log_prob(noise[0]))(state.actor)
    next_q = quick(critic.apply)(state.target, batch.next_obs, action)
    y = batch.reward + 0.9 * (jnp.min(next_q, 0) - 0.3 * log_prob)

    def critic_objective(p):
        q1, q2 = critic.apply(p, batch.obs, batch.action)
        return jnp.mean((q1 - y) ** 2) + jnp.mean((q2 - y) ** 2)

    def adam(p, g, rate):
        p, g = np.asarray(p, np.float64), np.asarray(g, np.float64)
        return p - rate * g / (np.abs(g) + 1e-8)

    grads = quick(jax.grad(critic_objective))(state.critic)
    for new, old, g in zip(leaves(out.state.critic), leaves(state.critic), leaves(grads), strict=True):
        np.testing.assert_allclose(new, adam(old, g, 1e-3), rtol=1e-4, atol=2e-7)

    def actor_objective(p):
        a, lp = actor.apply(p, batch.obs).sample_and_log_prob(noise[2])
        q1, q2 = critic.apply(out.state.critic, batch.obs, a)
        return jnp.mean(0.3 * lp - jnp.minimum(q1, q2))

    grads = quick(jax.grad(actor_objective))(state.actor)
    for new, old, g in zip(leaves(out.state.actor), leaves(state.actor), leaves(grads), strict=True):
        np.testing.assert_allclose(new, adam(old, g, 3e-4), rtol=1e-4, atol=2e-7)
