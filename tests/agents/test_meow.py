"""MEow: where the entropy weight enters, Q and V as one density, the target, the step, and what it learns."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax import schedules
from aesjax.schedules import Choice
from agents import meow
from agents.common import LoopConfig, Run, make_off_policy
from agents.common.carrier import Transition
from agents.common.flow import ConditionalFlow, dropout_masks
from tests.programs import data_of, floats
from tests.quick import quick

S, A, B = 3, 2, 16
HIDDEN = (8, 8)
HYPER = meow.MeowHyper(learning_rate=1e-3, gamma=0.9, tau=0.1, reference_weight=0.25, max_norm=30.0)
NET = ConditionalFlow(A, HIDDEN, (6, 6), -2.0, 1.0)


def config(**changes):
    plain = {
        "flow_hidden": HIDDEN,
        "shift_hidden": (6, 6),
        "batch_size": B,
        "log_sigma_min": -2.0,
        "log_sigma_max": 1.0,
    }
    return meow.MeowConfig(**(plain | changes))


def make_batch(seed=0, terminated=0.0):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    return Transition(draw(B, S), jnp.tanh(0.7 * draw(B, A)), draw(B), jnp.full(B, terminated), draw(B, S))


def randomised(params, seed=0, scale=0.3):
    """Noise on all parameters, so that zero kernels and unit scales hide nothing."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + jnp.asarray(scale * rng.normal(size=x.shape), x.dtype), params)


@pytest.fixture(scope="module")
def carrier():
    return meow.make(S, A, config())


@pytest.fixture(scope="module")
def fresh(carrier):
    return quick(carrier.init)(jax.random.key(1))


@pytest.fixture(scope="module")
def state(fresh):
    # A target that differs from the online network, so that mixing them up shows.
    return fresh._replace(params=randomised(fresh.params, 1), target=randomised(fresh.params, 2))


@functools.cache
def compiled(carrier):
    return quick(carrier.update)


def step(carrier, state, batch, weight, seed=2, hyper=HYPER):
    return compiled(carrier)(
        state, batch, jax.random.key(seed), jnp.int32(0), entropy_weight=jnp.float32(weight), hyper=hyper
    )


@functools.cache
def jitted(net, method):
    return jax.jit(lambda params, *args: net.apply(params, *args, method=method))


def parts(params, obs, action, masks=None, net=NET):
    """Shifts (2, B), core (..., B) and log Z (B,) by the textbook formulas, apart from agents.meow."""
    lead = () if masks is None else (2,)
    twice = lambda x: jnp.broadcast_to(x, (*lead, *x.shape))  # noqa: E731
    log_sigma = np.asarray(jitted(net, "log_sigma")(params, obs))
    z, log_det = map(np.asarray, jitted(net, "infer")(params, twice(action), twice(obs), masks))
    core = log_det - 0.5 * np.sum((z / np.exp(log_sigma)) ** 2, -1)
    log_z = action.shape[-1] / 2 * np.log(2 * np.pi) + log_sigma.sum(-1)
    return np.asarray(jitted(net, "shift")(params, obs)), core, log_z


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def dropout_of(seed=2):
    """The masks that `step` uses."""
    return dropout_masks(jax.random.split(jax.random.key(seed))[0], 0.1, B, HIDDEN)


def test_the_target_takes_the_smaller_value_and_stops_at_termination():
    reward, term = jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0])
    y = meow.soft_target(reward, term, jnp.array([[3.0, 4.0], [2.5, 5.0]]), gamma=jnp.float32(0.9))
    np.testing.assert_allclose(y, [1.0 + 0.9 * 2.5, 2.0], rtol=1e-6)


def test_the_loss_is_the_mean_over_both_halves():
    loss, error = meow.critic_loss(jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.array([2.0, 2.0]))
    np.testing.assert_allclose(loss, (1.0 + 0.0 + 4.0 + 4.0) / 4)
    np.testing.assert_allclose(error, [[1.0, 0.0], [2.0, 2.0]])


def test_residuals_equal_an_independent_recomputation_before_the_update(carrier, state):
    batch, weight = make_batch(), 0.3
    out = step(carrier, state, batch, weight)
    assert out.signals.td_error.shape == (2 * B,)
    shift, core, _ = parts(state.params, batch.obs, batch.action, dropout_of())
    q = 0.25 * shift + weight * core
    next_shift, _, next_log_z = parts(state.target, batch.next_obs, batch.action)
    y = np.asarray(batch.reward) + 0.9 * (0.25 * next_shift.min(0) + weight * next_log_z)
    np.testing.assert_allclose(out.signals.td_error, np.concatenate([y - q[0], y - q[1]]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out.metrics["critic_loss"], np.mean((y - q) ** 2), rtol=1e-5)
    assert float(out.metrics["actor_loss"]) == 0.0


def test_both_places_of_the_weight_reach_the_residuals_and_nothing_else_does(carrier, state):
    """The residuals are affine in the weight, with slope gamma (1 - term) lz' - core."""
    batch = make_batch()
    low, high = (step(carrier, state, batch, w).signals.td_error.reshape(2, B) for w in (0.1, 0.6))
    core = parts(state.params, batch.obs, batch.action, dropout_of())[1]
    next_log_z = parts(state.target, batch.next_obs, batch.action)[2]
    np.testing.assert_allclose(high - low, 0.5 * (0.9 * next_log_z[None] - core), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("units", ["ref", "lam", "one"])
def test_log_density_is_the_advantage_per_weight(state, units):
    """log pi of samples, computed on the way out, against (Q_i - V_i) / lam computed on the way back."""
    carrier = meow.make(S, A, config(shift_units=units))
    obs = make_batch().obs
    action = 0.9 * quick(carrier.act)(state, obs, jax.random.key(4))
    shift, core, log_z = parts(state.params, obs, action)
    z = np.asarray(jitted(NET, "infer")(state.params, action, obs)[0], np.float64)
    sigma = np.exp(np.asarray(jitted(NET, "log_sigma")(state.params, obs), np.float64))
    a = np.asarray(action, np.float64)
    log_pi = np.sum(-0.5 * (z / sigma) ** 2 - np.log(sigma * np.sqrt(2 * np.pi)) - np.log(1 - a**2), -1)
    for weight in (0.05, 0.25, 1.0):
        lam = jnp.float32(weight)
        scale = {"entropy_weight": lam, "shift_weight": meow.shift_weight(units, lam, 0.25)}
        q = meow.soft_value(jnp.asarray(shift), jnp.asarray(core)[None], **scale)
        v = meow.soft_value(jnp.asarray(shift), jnp.asarray(log_z)[None], **scale)
        np.testing.assert_allclose((q - v) / weight, np.stack([log_pi, log_pi]), rtol=1e-4, atol=5e-4)


def density_net(actions, exact, low=-1.0, high=-0.35):
    clip, eps = (0.0, 0.0) if exact else (1e-5, 1.19e-7)
    return ConditionalFlow(actions, HIDDEN, (6,), low, high, clip, eps)


def wide_params(net, seed, noise=0.4):
    shapes = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros((1, S)), jnp.zeros((1, net.action_size)))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(noise * rng.normal(size=leaf.shape), jnp.float64), shapes)


def grid_of(actions, points):
    u = np.linspace(-9.0, 9.0, points)
    mesh = np.stack(np.meshgrid(*[u] * actions, indexing="ij"), -1).reshape(-1, actions)
    return mesh, (u[1] - u[0]) ** actions


@pytest.mark.parametrize(("actions", "points"), [(1, 2001), (2, 301)])
@pytest.mark.parametrize("exact", [True, False])
def test_v_is_the_weighted_log_integral_of_q(actions, points, exact):
    with jax.enable_x64(True):
        net = density_net(actions, exact)
        params = wide_params(net, seed=actions)
        u, cell = grid_of(actions, points)
        obs = jnp.full((len(u), S), 0.4, jnp.float64)
        shift, core, log_z = parts(params, obs, jnp.tanh(jnp.asarray(u)), net=net)
        log_da = np.sum(2 * (np.log(2) - u - np.logaddexp(0, -2 * u)), -1)  # da = (1 - tanh^2 u) du
        for weight in (0.1, 0.5):
            q, v = (meow.soft_value(shift, x[None], entropy_weight=weight, shift_weight=0.25) for x in (core, log_z))
            exponent = np.asarray(q) / weight + log_da
            top = exponent.max(1, keepdims=True)
            integral = weight * (np.log(np.exp(exponent - top).sum(1) * cell) + top[:, 0])
            np.testing.assert_allclose(integral, np.asarray(v)[:, 0], atol=1e-6 if exact else 1e-4)
            assert np.all(np.asarray(v) == np.asarray(v)[:, :1])  # the same for every action


def test_reported_log_densities_are_of_fresh_samples_of_the_updated_policy(carrier, state):
    out = step(carrier, state, make_batch(), 0.3)
    batch, key = make_batch(), jax.random.split(jax.random.key(2))[1]
    noise = np.asarray(jax.random.normal(key, (B, A)))
    log_sigma = np.asarray(jitted(NET, "log_sigma")(out.state.params, batch.obs))
    action = jitted(NET, "generate")(out.state.params, np.exp(log_sigma) * noise, batch.obs)[0]
    a = np.asarray(action, np.float64)
    keep = np.abs(a).max(1) < 0.99
    assert keep.sum() > 3
    log_pi = np.sum(-0.5 * noise**2 - log_sigma - 0.5 * np.log(2 * np.pi) - np.log(1 - a**2), -1)
    np.testing.assert_allclose(np.asarray(out.signals.log_prob)[keep], log_pi[keep], atol=1e-3)


def test_the_deterministic_action_is_that_of_latent_zero(carrier, state):
    obs = make_batch().obs
    deterministic = np.asarray(quick(carrier.act_deterministic)(state, obs))
    generated = jitted(NET, "generate")(state.params, jnp.zeros((B, A)), obs)[0]
    np.testing.assert_allclose(deterministic, generated, atol=1e-6)
    sampled = quick(carrier.act)(state, obs, jax.random.key(0))
    assert not np.allclose(deterministic, sampled, atol=1e-2)


def test_a_loss_that_is_not_finite_costs_one_step_and_is_reported(carrier, state):
    batch = make_batch()
    bad = batch._replace(reward=batch.reward.at[3].set(jnp.inf))
    out = step(carrier, state, bad, 0.3)
    assert not np.isfinite(out.metrics["critic_loss"])
    assert not np.isfinite(out.signals.value_loss)
    kept = zip(leaves((out.state.params, out.state.opt)), leaves((state.params, state.opt)), strict=True)
    for new, old in kept:
        np.testing.assert_array_equal(new, old)
    assert int(step(carrier, out.state, batch, 0.3).state.opt.count) == 1


def test_one_step_is_adam_on_the_clipped_gradient_of_the_stated_loss(carrier, state):
    batch, weight = make_batch(), 0.3
    _, _, next_log_z = parts(state.target, batch.next_obs, batch.action)
    next_shift = parts(state.target, batch.next_obs, batch.action)[0]
    y = batch.reward + jnp.asarray(0.9 * (0.25 * next_shift.min(0) + weight * next_log_z), jnp.float32)
    masks = dropout_of()

    def objective(params):
        twice = lambda x: jnp.broadcast_to(x, (2, *x.shape))  # noqa: E731
        z, log_det = NET.apply(params, twice(batch.action), twice(batch.obs), masks, method="infer")
        log_sigma = NET.apply(params, batch.obs, method="log_sigma")
        core = log_det - 0.5 * jnp.sum((z / jnp.exp(log_sigma)[None]) ** 2, -1)
        q = 0.25 * NET.apply(params, batch.obs, method="shift") + weight * core
        return jnp.mean((q - y[None]) ** 2)

    grads = leaves(quick(jax.grad(objective))(state.params))
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in grads))
    for limit in (30.0, 1e-3 * norm):  # Adam's first step hides a scale, its second moment does not
        new = step(carrier, state, batch, weight, hyper=HYPER._replace(max_norm=float(limit))).state
        scale = min(1.0, limit / norm)
        for after, before, nu, g in zip(
            leaves(new.params), leaves(state.params), leaves(new.opt.nu), grads, strict=True
        ):
            np.testing.assert_allclose(nu, 1e-3 * (scale * g) ** 2, rtol=5e-3, atol=1e-9 * scale**2)
            moved = 1e-3 * scale * g / (np.abs(scale * g) + 1e-8)
            sure = np.abs(g) > 1e-5 * norm
            np.testing.assert_allclose((after - before)[sure], -moved[sure], rtol=1e-2, atol=2e-7)


@pytest.mark.slow
@pytest.mark.learning
def test_meow_finds_the_maximum_entropy_optimum_of_a_bandit(bandit):
    """r = -5 (a - 0.3)^2: the optimum is Gaussian with variance lam / 10; four times the weight doubles the std."""
    weights, seeds = np.array([0.1, 0.2, 0.4], np.float32), 2
    # Without dropout: its noise in the latent is learned as extra spread, about 0.0025 of variance here.
    plain = config(flow_hidden=(16, 16), shift_hidden=(8,), batch_size=64, log_sigma_min=-4.0, dropout=0.0)
    carrier = meow.make(1, 1, plain)
    settings = LoopConfig(4, 600, 100, 2000, fresh=False)
    loop = make_off_policy(bandit, carrier, lambda run: schedules.build([Choice("fixed")], run.schedule), settings)
    runs = [
        Run(
            jnp.uint32(seed),
            (),
            data_of([Choice("fixed")], base=weight),
            floats(meow.MeowHyper(3e-3, 0.97, 0.01, weight)),
        )
        for weight in weights
        for seed in range(seeds)
    ]
    runs = jax.tree.map(lambda *x: jnp.stack(x), *runs)

    @jax.jit
    @jax.vmap
    def moments(state):
        actions = carrier.act(state.agent, jnp.zeros((20000, 1)), jax.random.key(7))
        return jnp.mean(actions), jnp.std(actions)

    chunk = jax.jit(jax.vmap(loop.chunk, (0, 0, None)))
    state, late = quick(jax.vmap(loop.init))(runs), []
    for index in range(5):
        state, _ = chunk(state, runs, jnp.int32(600 * index))
        if index >= 2:  # the last iterate of a constant learning rate wanders; its average does not
            late.append(moments(state))
    mean, std = np.mean(np.asarray(late), 0).reshape(2, len(weights), seeds).mean(-1)
    np.testing.assert_allclose(std**2, weights / 10.0, rtol=0.15)
    np.testing.assert_allclose(std[2] / std[0], 2.0, rtol=0.1)
    np.testing.assert_allclose(mean, 0.3, atol=0.04)
