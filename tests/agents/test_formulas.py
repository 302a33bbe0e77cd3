"""SAC, SQL and MEow: where the entropy weight enters, and the formulas of targets, losses and densities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents import CARRIERS, meow, sac, sql
from agents.common.flow import ConditionalFlow, dropout_masks
from agents.common.networks import Gaussian, GaussianActor, TwinCritic
from tests.agents.small import A, B, S, make_batch
from tests.quick import quick

HYPER = {
    "sac": sac.SacHyper(learning_rate=3e-4, critic_learning_rate=1e-3, gamma=0.9, tau=0.1),
    "sql": sql.SqlHyper(3e-4, 1e-3, gamma=0.9, tau=0.1, reward_scale=5.0, reference_weight=0.25),
    "meow": meow.MeowHyper(learning_rate=1e-3, gamma=0.9, tau=0.1, reference_weight=0.25, max_norm=30.0),
}
TWO = {"hidden": (8, 8), "batch_size": B}
PARTICLES = {"value_samples": 4, "fixed_particles": 3, "updated_particles": 2}
FLOW = {"flow_hidden": (8, 8), "shift_hidden": (6, 6), "batch_size": B, "log_sigma_min": -2.0, "log_sigma_max": 1.0}
NET = ConditionalFlow(A, (8, 8), (6, 6), -2.0, 1.0)


@functools.cache
def carrier_of(name, **options):
    if name == "meow":
        return meow.Meow(S, A, meow.MeowConfig(**(FLOW | options)))
    if name == "sql":
        return sql.Sql(S, A, sql.SqlConfig(**(TWO | PARTICLES | options)))
    return sac.Sac(S, A, sac.SacConfig(**(TWO | options)))


@functools.cache
def state_of(name):
    """An agent whose networks and targets differ enough for a mix-up to show."""
    state, rng = quick(carrier_of(name).init)(jax.random.key(1)), np.random.default_rng(1)
    if name != "meow":
        actor, critic = (jax.tree.map(lambda x: 2.0 * x, params) for params in (state.actor, state.critic))
        return state._replace(actor=actor, critic=critic, target=jax.tree.map(lambda x: 0.7 * x, critic))
    noisy = lambda x: x + jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype)  # noqa: E731
    return state._replace(params=jax.tree.map(noisy, state.params), target=jax.tree.map(noisy, state.params))


@functools.cache
def compiled(name, **options):
    return quick(carrier_of(name, **options).update)


def step(name, batch, weight, hyper=None, state=None, at=0, **options):
    hyper = jax.tree.map(jnp.float32, hyper or HYPER[name])
    now, key = state_of(name) if state is None else state, jax.random.key(2)
    return compiled(name, **options)(now, batch, key, jnp.int32(at), entropy_weight=jnp.float32(weight), hyper=hyper)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


# --- SAC


def test_sac_target_moves_by_the_discounted_entropy_and_its_losses_are_the_stated_ones():
    reward, term, log_prob = jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0]), jnp.array([-0.7, 0.4])
    next_q = jnp.array([[3.0, 4.0], [2.5, 5.0]])
    y1, y2 = (
        sac.soft_target(reward, term, next_q, log_prob, entropy_weight=jnp.float32(w), gamma=jnp.float32(0.9))
        for w in (0.1, 0.6)
    )
    np.testing.assert_allclose(y2 - y1, [-0.5 * 0.9 * -0.7, 0.0], atol=1e-6)
    np.testing.assert_allclose(y1, [1.0 + 0.9 * (2.5 + 0.07), 2.0], rtol=1e-6)  # min of the critics; term keeps r
    log_prob, q = jnp.array([0.5, -1.5]), jnp.array([[1.0, 2.0], [0.0, 3.0]])
    low, high = (sac.actor_loss(log_prob, q, entropy_weight=jnp.float32(w)) for w in (0.2, 1.2))
    np.testing.assert_allclose(high - low, np.mean([0.5, -1.5]), rtol=1e-6)
    np.testing.assert_allclose(low, 0.2 * -0.5 - np.mean([0.0, 2.0]), rtol=1e-6)
    loss, error = sac.critic_loss(jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.array([2.0, 2.0]))
    np.testing.assert_allclose(loss, (1.0 + 0.0) / 2 + (4.0 + 4.0) / 2)  # the sum over critics, without a half
    np.testing.assert_allclose(error, [[1.0, 0.0], [2.0, 2.0]])


def test_one_sac_step_is_adam_on_the_gradients_of_the_stated_losses():
    """Adam's first step moves every parameter by ``rate * g / (|g| + eps)``."""
    batch, state = make_batch(), state_of("sac")
    out = step("sac", batch, 0.3)
    noise = jax.random.normal(jax.random.key(2), (3, B, A))
    actor, critic = GaussianActor((8, 8), A), TwinCritic((8, 8))
    action, log_prob = quick(lambda p: actor.apply(p, batch.next_obs).sample_and_log_prob(noise[0]))(state.actor)
    next_q = quick(critic.apply)(state.target, batch.next_obs, action)
    y = batch.reward + 0.9 * (jnp.min(next_q, 0) - 0.3 * log_prob)
    q = quick(critic.apply)(state.critic, batch.obs, batch.action)
    np.testing.assert_allclose(out.signals.td_error, jnp.concatenate([y - q[0], y - q[1]]), atol=1e-5)

    def critic_objective(p):
        return jnp.sum(jnp.mean((critic.apply(p, batch.obs, batch.action) - y[None]) ** 2, -1))

    def actor_objective(p):
        a, lp = actor.apply(p, batch.obs).sample_and_log_prob(noise[2])
        return jnp.mean(0.3 * lp - jnp.min(critic.apply(out.state.critic, batch.obs, a), 0))

    for part, objective, rate in (("critic", critic_objective, 1e-3), ("actor", actor_objective, 3e-4)):
        old, new = getattr(state, part), getattr(out.state, part)
        for p, g, after in zip(leaves(old), leaves(quick(jax.grad(objective))(old)), leaves(new), strict=True):
            np.testing.assert_allclose(after, p - rate * g / (np.abs(g) + 1e-8), rtol=1e-4, atol=4e-7)


def test_log_prob_is_the_numerical_change_of_variables():
    dist = Gaussian(jnp.full((4000, 1), 0.3), jnp.full((4000, 1), -0.2))
    action, log_prob = quick(dist.sample_and_log_prob)(jax.random.normal(jax.random.key(0), (4000, 1)))
    a, std, h = np.asarray(action[:, 0], np.float64), np.exp(-0.2), 1e-6
    u, slope = np.arctanh(a), (np.arctanh(a + h) - np.arctanh(a - h)) / (2 * h)
    expected = -0.5 * ((u - 0.3) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi) + np.log(slope)
    for limit, tolerance in ((3, 2e-3), (1.5, 1e-4)):
        near = np.abs(u) < limit
        np.testing.assert_allclose(np.asarray(log_prob)[near], expected[near], atol=tolerance)


def test_a_delayed_actor_rests_on_odd_steps_and_moves_twice_on_even_ones():
    for at, counts in ((4, (2, 1)), (5, (0, 1))):
        after = step("sac", make_batch(), 0.2, at=at, actor_delay=2).state
        assert (int(after.actor_opt.count), int(after.critic_opt.count)) == counts


# --- SQL


@pytest.mark.parametrize("size", [1, 2])
def test_the_soft_value_agrees_with_quadrature(size):
    nodes, weights = np.polynomial.legendre.leggauss(64)
    # The integral of exp(-sum_d 2 (a_d - 0.3)^2) is a product over dimensions.
    exact = size * np.log(np.sum(weights * np.exp(-2 * (nodes - 0.3) ** 2)))
    a = np.random.default_rng(0).uniform(-1, 1, (100_000, size))
    q = jnp.float32(-2 * np.sum((a - 0.3) ** 2, -1))
    v = sql.soft_value(jnp.stack([q, q + 1])[:, None], temperature=jnp.float32(1), action_size=size)
    np.testing.assert_allclose(v, exact, atol=1e-2)


def test_the_energy_has_slope_q_in_the_inverse_temperature():
    q, a = jnp.array([[2.0, -1.0], [3.0, -4.0]]), jnp.array([[0.5, 0.0], [0.1, -0.9]])
    cold, warm = (sql.log_target(q, a, temperature=jnp.float32(t)) for t in (0.1, 0.5))
    np.testing.assert_allclose(cold - warm, np.array([2.0, -4.0]) * (10.0 - 2.0), rtol=1e-5)
    squash = [np.log(0.75), np.log(0.99) + np.log(0.19)]
    np.testing.assert_allclose(warm - np.array([4.0, -8.0], np.float32), squash, atol=1e-5)


def test_without_a_bootstrap_the_weight_reaches_the_sampler_alone_if_that_is_scheduled():
    done, kept = make_batch(terminated=1.0), {"schedule_sampler": False}
    low, high = (step("sql", done, weight).state for weight in (0.05, 0.8))
    assert same((low.critic, low.target), (high.critic, high.target))
    assert not same(low.actor, high.actor)
    low, high = (step("sql", done, weight, **kept).state for weight in (0.05, 0.8))
    assert same(low, high)
    other = step("sql", done, 0.05, HYPER["sql"]._replace(reference_weight=0.9), **kept).state
    # In the moments, because Adam's first step hides the size of a gradient.
    assert not same(low.actor_opt, other.actor_opt)


def test_outputs_of_sql_do_not_depend_on_the_reward_scale():
    """Critics k times as large trained on k times the reward are equal critics in raw units."""
    batch, state = make_batch(), state_of("sql")

    def scaled(tree, k):  # only the last layer: the critic is linear in it
        both = tree["params"]["VmapMLP_0"]
        return {"params": {"VmapMLP_0": both | {"Dense_2": jax.tree.map(lambda x: k * x, both["Dense_2"])}}}

    large = state._replace(critic=scaled(state.critic, 8.0), target=scaled(state.target, 8.0))
    # Frozen critics, because Adam's step does not scale.
    one = HYPER["sql"]._replace(reward_scale=1.0, critic_learning_rate=1e-12)
    eight = one._replace(reward_scale=8.0)
    a, b = step("sql", batch, 0.3, one), step("sql", batch, 0.3, eight, large)
    np.testing.assert_allclose(a.signals.td_error, b.signals.td_error, atol=1e-6)
    np.testing.assert_allclose(a.signals.value_loss, b.signals.value_loss, rtol=1e-5)
    q_value = quick(carrier_of("sql").q_value)
    q = [q_value(out.state, batch.obs, batch.action, hyper=hyper) for out, hyper in ((a, one), (b, eight))]
    np.testing.assert_allclose(q[0], q[1], atol=1e-6)
    for x, y in zip(leaves(a.state.actor), leaves(b.state.actor), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_sql_evaluation_takes_the_best_sampler_output_by_the_smaller_critic():
    loud = state_of("sql")._replace(actor=jax.tree.map(lambda x: 2.0 * x, state_of("sql").actor))
    obs, carrier = make_batch().obs, carrier_of("sql")
    best, zero = quick(carrier.act_deterministic)(loud, obs), carrier.particles(loud.actor, obs, jnp.zeros((B, 1, A)))
    # Of one pool of samples the 33 candidates hold a far better one than a single output does.
    pool = quick(carrier.act)(loud, jnp.repeat(obs, 400, 0), jax.random.key(0)).reshape(B, 400, A)
    q, q_best, q_zero = (np.asarray(carrier.values(loud.critic, obs, x)).min(0) for x in (pool, best[:, None], zero))
    assert np.all(q_best >= q_zero - 1e-6)
    assert np.mean(q <= q_best) > 0.93  # 33 independent draws: 33 / 34 = 0.97 on average


# --- MEow


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


@pytest.mark.slow
def test_residuals_of_meow_are_the_stated_ones_and_affine_in_the_weight():
    """The slope is gamma (1 - term) lz' - core."""
    batch, state = make_batch(), state_of("meow")
    masks = dropout_masks(jax.random.split(jax.random.key(2))[0], 0.1, B, (8, 8))
    shift, core, _ = parts(state.params, batch.obs, batch.action, masks)
    next_shift, _, next_log_z = parts(state.target, batch.next_obs, batch.action)
    for weight in (0.1, 0.6):
        y = np.asarray(batch.reward) + 0.9 * (0.25 * next_shift.min(0) + weight * next_log_z)
        error = step("meow", batch, weight).signals.td_error.reshape(2, B)
        np.testing.assert_allclose(error, y[None] - (0.25 * shift + weight * core), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("units", ["ref", "lam", "one"])
def test_log_density_is_the_advantage_per_weight(units):
    """log pi of samples, computed on the way out, against (Q_i - V_i) / lam computed on the way back."""
    state, obs = state_of("meow"), make_batch().obs
    action = 0.9 * quick(carrier_of("meow", shift_units=units).act)(state, obs, jax.random.key(4))
    shift, core, log_z = parts(state.params, obs, action)
    z = np.asarray(jitted(NET, "infer")(state.params, action, obs)[0], np.float64)
    sigma = np.exp(np.asarray(jitted(NET, "log_sigma")(state.params, obs), np.float64))
    a = np.asarray(action, np.float64)
    log_pi = np.sum(-0.5 * (z / sigma) ** 2 - np.log(sigma * np.sqrt(2 * np.pi)) - np.log(1 - a**2), -1)
    for weight in (0.05, 0.25, 1.0):
        scale = {"entropy_weight": jnp.float32(weight)}
        scale["shift_weight"] = meow.shift_weight(units, scale["entropy_weight"], 0.25)
        q, v = (meow.soft_value(jnp.asarray(shift), jnp.asarray(x)[None], **scale) for x in (core, log_z))
        np.testing.assert_allclose((q - v) / weight, np.stack([log_pi, log_pi]), rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize(("actions", "points", "exact"), [(1, 2001, False), (2, 301, True)])
def test_v_is_the_weighted_log_integral_of_q(actions, points, exact):
    with jax.enable_x64(True):
        net = ConditionalFlow(actions, (8, 8), (6,), -1.0, -0.35, *((0.0, 0.0) if exact else (1e-5, 1.19e-7)))
        shapes = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros((1, S)), jnp.zeros((1, actions)))
        rng = np.random.default_rng(actions)
        params = jax.tree.map(lambda leaf: jnp.asarray(0.4 * rng.normal(size=leaf.shape), jnp.float64), shapes)
        axis = np.linspace(-9.0, 9.0, points)
        u = np.stack(np.meshgrid(*[axis] * actions, indexing="ij"), -1).reshape(-1, actions)
        obs = jnp.full((len(u), S), 0.4, jnp.float64)
        shift, core, log_z = parts(params, obs, jnp.tanh(jnp.asarray(u)), net=net)
        log_da = np.sum(2 * (np.log(2) - u - np.logaddexp(0, -2 * u)), -1)  # da = (1 - tanh^2 u) du
        for weight in (0.1, 0.5):
            q, v = (meow.soft_value(shift, x[None], entropy_weight=weight, shift_weight=0.25) for x in (core, log_z))
            exponent = np.asarray(q) / weight + log_da
            top, cell = exponent.max(1, keepdims=True), (axis[1] - axis[0]) ** actions
            integral = weight * (np.log(np.exp(exponent - top).sum(1) * cell) + top[:, 0])
            np.testing.assert_allclose(integral, np.asarray(v)[:, 0], atol=1e-6 if exact else 1e-4)


def test_a_loss_that_is_not_finite_costs_one_step_and_is_reported():
    batch, state = make_batch(), state_of("meow")
    out = step("meow", batch._replace(reward=batch.reward.at[3].set(jnp.inf)), 0.3)
    assert not np.isfinite(out.metrics["critic_loss"])
    assert not np.isfinite(out.signals.value_loss)
    assert same((out.state.params, out.state.opt), (state.params, state.opt))
    assert int(step("meow", batch, 0.3, state=out.state).state.opt.count) == 1


#: Carrier, sizes of observation and action -> numbers of parameters, those of the references.
COUNTS = [
    ("sac", (11, 3), {"actor": 70406, "critic": 2 * 69889}),
    ("sac", (376, 17), {"actor": 171042, "critic": 2 * 166913}),
    ("sql", (11, 3), {"actor": 18819, "critic": 2 * 18561}),
    ("sql", (376, 17), {"actor": 69137, "critic": 2 * 67073}),
    ("ppo", (11, 3), {"params": 10119}),
    ("ppo", (376, 17), {"params": 57763}),
    ("meow", (11, 3), {"params": 167313}),
    ("meow", (376, 17), {"params": 479127}),
]


@pytest.mark.parametrize(("name", "size", "counts"), COUNTS)
def test_parameter_counts_are_the_references(name, size, counts):
    carrier = CARRIERS[name].make(*size, CARRIERS[name].config())
    shapes = jax.eval_shape(
        functools.partial(carrier.init, **({"num_envs": 1} if name == "ppo" else {})), jax.random.key(0)
    )
    assert {part: sum(x.size for x in jax.tree.leaves(getattr(shapes, part))) for part in counts} == counts
