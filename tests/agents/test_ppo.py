"""PPO: where the entropy weight enters, what the residuals are, and how a rollout becomes minibatches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from agents import make_train, ppo
from agents.common import LoopConfig, Run, make_program
from agents.common.carrier import Rollout
from agents.common.masks import denormalise, empty, merge, normalise
from agents.common.networks import Normal
from agents.common.on_policy import minibatches
from agents.ppo import advantages, td_errors
from envs.world import World
from tests.programs import chosen, floats
from tests.quick import quick

S, A, T, N = 3, 2, 6, 4
HYPER = ppo.PpoHyper(learning_rate=1e-3, gamma=0.9, gae_lambda=0.8)


def initial(carrier):
    return quick(carrier.init, static_argnums=1)(jax.random.key(1), N)


@pytest.fixture(scope="module")
def carrier():
    return ppo.Ppo(S, A, ppo.PpoConfig(rollout=T, epochs=2, minibatches=3, hidden=(8, 8), value_clip=False))


@pytest.fixture(scope="module")
def state(carrier):
    return initial(carrier)


@functools.cache
def drawn(carrier):
    """Jitted: observations, the carrier's actions, rewards and successors from a state and a key."""

    def draw(state, key):
        keys = jax.random.split(key, 4)
        obs = jax.random.normal(keys[0], (T, N, S))
        action = jax.vmap(lambda o, k: carrier.act(state, o, k))(obs, jax.random.split(keys[1], T))
        return obs, action, jax.random.normal(keys[2], (T, N)), jax.random.normal(keys[3], (T, N, S))

    return quick(draw)


def rollout_of(carrier, state, terminated=0.0, truncated=0.0, seed=0):
    obs, action, reward, after = drawn(carrier)(state, jax.random.key(seed))
    return Rollout(obs, action, reward, jnp.full((T, N), terminated), jnp.full((T, N), truncated), after)


@pytest.fixture(scope="module")
def prepared(carrier, state):
    return quick(carrier.prepare)(state, rollout_of(carrier, state), floats(HYPER))


@pytest.fixture(scope="module")
def update(carrier):
    jitted = quick(carrier.update)
    return lambda state, rows, weight: jitted(state, rows, entropy_weight=jnp.float32(weight), hyper=floats(HYPER))


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


# --- advantages


def test_advantages_by_hand():
    column = lambda *x: jnp.array(x, jnp.float32)[:, None]  # noqa: E731
    zeros = jnp.zeros((3, 1))
    delta = td_errors(column(1, 2, 3), zeros, column(0.5, 0.4, 0.3), column(0.4, 0.3, 0.2), 0.9)
    np.testing.assert_allclose(delta[:, 0], [0.86, 1.87, 2.88], rtol=1e-6)
    np.testing.assert_allclose(advantages(delta, zeros, zeros, 0.72)[:, 0], [3.699392, 3.9436, 2.88], rtol=1e-6)
    np.testing.assert_array_equal(advantages(delta, zeros, zeros, 0.0), delta)
    discounted = 1 + 0.9 * 2 + 0.81 * 3 + 0.729 * 0.2
    np.testing.assert_allclose(advantages(delta, zeros, zeros, 0.9)[0, 0], discounted - 0.5, rtol=1e-6)


def test_truncation_bootstraps_and_cuts_the_trace_while_termination_does_neither():
    one = jnp.ones((1, 1))
    plain, ended = (td_errors(one, term, 0.5 * one, 2.0 * one, 0.9) for term in (0.0 * one, one))
    np.testing.assert_allclose([plain[0, 0], ended[0, 0]], [1 + 1.8 - 0.5, 0.5], rtol=1e-6)
    delta = jnp.array([[1.0], [10.0]])
    zeros, first = jnp.zeros((2, 1)), jnp.array([[1.0], [0.0]])
    np.testing.assert_allclose(advantages(delta, zeros, zeros, 0.5)[0, 0], 6.0)
    for term, trunc in ((first, zeros), (zeros, first)):
        np.testing.assert_allclose(advantages(delta, term, trunc, 0.5)[0, 0], 1.0)


# --- the entropy weight and the losses


def test_the_bonus_is_the_weight_times_the_analytic_entropy():
    log_std = jnp.array([-0.3, 0.7])
    entropy = 2 * (0.5 + 0.5 * np.log(2 * np.pi)) + 0.4
    bonus = lambda x, weight: ppo.entropy_bonus(Normal(x, x).entropy(), entropy_weight=jnp.float32(weight))  # noqa: E731
    low, high = (bonus(log_std, weight) for weight in (0.01, 0.11))
    np.testing.assert_allclose(low, -0.01 * entropy, rtol=1e-6)
    np.testing.assert_allclose(high - low, -0.1 * entropy, rtol=1e-5)
    slope = jax.grad(bonus)(log_std, 0.3)
    np.testing.assert_allclose(slope, [-0.3, -0.3], rtol=1e-6)


def test_rewards_are_told_in_the_units_that_the_bonus_is_weighed_in(carrier, state, prepared, update):
    """Advantages are normalised, so a bonus of 1 is worth one standard deviation of theirs."""
    rollout, rows = rollout_of(carrier, state), prepared[1]
    units = np.std(rows.advantage, ddof=1)
    np.testing.assert_allclose(rows.reward * units, rollout.reward.reshape(-1), rtol=1e-4)
    np.testing.assert_array_equal(update(state, rows, 0.01).signals.reward, rows.reward)
    plain = ppo.Ppo(S, A, ppo.PpoConfig(rollout=T, minibatches=3, hidden=(8, 8), normalise_advantage=False))
    raw = quick(plain.prepare)(state, rollout, floats(HYPER))[1]
    np.testing.assert_array_equal(raw.reward, rollout.reward.reshape(-1))


def test_the_weight_reaches_log_std_and_nothing_else(state, prepared, update):
    """With Adam's first step a sign, only the gradient's direction shows: two weights of opposite pull on log_std."""
    rows = prepared[1]
    low, high = update(state, rows, 0.0), update(state, rows, 5.0)
    for name in ("policy", "value"):
        moments = [leaves(out.state.opt.mu["params"][name]) for out in (low, high)]
        # The global norm is clipped over all parameters, so the other gradients keep their direction only.
        for a, b in zip(*moments, strict=True):
            np.testing.assert_allclose(a / (np.linalg.norm(a) + 1e-12), b / (np.linalg.norm(b) + 1e-12), atol=1e-4)
    before, after = (np.asarray(out.state.params["params"]["log_std"]) for out in (low, high))
    assert np.all(after > 0)
    assert not np.array_equal(before, after)
    assert low.metrics["critic_loss"] == high.metrics["critic_loss"]
    assert low.metrics["actor_loss"] == high.metrics["actor_loss"]


def test_clipped_loss_takes_the_smaller_gain():
    ratio, advantage = jnp.array([1.5, 0.5, 1.5, 0.5]), jnp.array([1.0, 1.0, -1.0, -1.0])
    np.testing.assert_allclose(ppo.clipped_loss(ratio, advantage, 0.2), -np.mean([1.2, 0.5, -1.5, -0.8]), rtol=1e-6)


def test_value_loss_with_and_without_clipping():
    value, old, target = jnp.array([2.0, 0.0]), jnp.zeros(2), jnp.array([1.0, 1.0])
    np.testing.assert_allclose(ppo.value_loss(value, old, target, 0.2, False), 1.0)
    np.testing.assert_allclose(ppo.value_loss(value, old, target, 0.2, True), 0.5 * np.mean([1.0, 1.0]))
    np.testing.assert_allclose(ppo.value_loss(1.1 * target, old, target, 0.2, True), 0.5 * 0.64, rtol=1e-6)


def test_entropy_is_analytic_and_what_auto_tuning_reads(carrier, state, prepared, update):
    expected = A * (0.5 + 0.5 * np.log(2 * np.pi))
    np.testing.assert_allclose(carrier.entropy(state, jnp.zeros((2, S)), jax.random.key(0)), expected, rtol=1e-6)
    np.testing.assert_allclose(update(state, prepared[1], 0.1).signals.log_prob, [-expected], rtol=1e-6)


def test_residuals_are_those_of_the_rollout_in_its_order(carrier, state, prepared):
    rollout = rollout_of(carrier, state)
    rows, residuals = prepared[1:]
    assert residuals.shape == (T * N,)
    after = quick(carrier.prepare)(state, rollout._replace(obs=rollout.next_obs), floats(HYPER))[1].value
    np.testing.assert_allclose(residuals, rollout.reward.reshape(-1) + 0.9 * after - rows.value, atol=1e-6)
    np.testing.assert_allclose(rows.target, rows.advantage + rows.value, atol=1e-6)


# --- normalisation


def test_running_moments_equal_those_of_all_values():
    data = np.random.default_rng(0).normal(3.0, 2.0, (50, 4, 2)).astype(np.float32)
    moments = empty((2,))
    for batch in data:
        moments = merge(moments, jnp.asarray(batch))
    np.testing.assert_allclose(moments.mean, data.reshape(-1, 2).mean(0), rtol=1e-4)
    np.testing.assert_allclose(moments.var, data.reshape(-1, 2).var(0), rtol=1e-4)
    np.testing.assert_allclose(np.std(normalise(moments, jnp.asarray(data), 10.0)), 1.0, rtol=1e-2)
    assert float(normalise(moments, jnp.full((1, 2), 1e6), 10.0)[0, 0]) == 10.0
    one = merge(empty(), jnp.asarray(data[..., 0].reshape(-1)))
    np.testing.assert_allclose(denormalise(one, normalise(one, jnp.float32(4.5), 10.0)), 4.5, rtol=1e-6)


@pytest.mark.parametrize("rows", [2**22, pytest.param(3 * 2**24, marks=pytest.mark.slow)])
def test_running_moments_stay_right_after_the_last_count_of_a_float32(rows):
    """From 2^24 rows on each further one weighs 2^-24; alone it is below half of the last digit of the variance."""
    block = 3.0 + 2.0 * jax.random.normal(jax.random.key(0), (2**20, 1))
    several = lambda state, _: (jax.lax.scan(lambda state, row: (merge(state, row), None), state, block)[0], None)  # noqa: E731
    full = empty()._replace(count=jnp.float32(2**24), mean=jnp.float32(2.0), var=jnp.float32(1.0))
    moments = jax.jit(lambda state: jax.lax.scan(several, state, length=rows // 2**20)[0])(full)

    weight, exact = 2.0**-24, np.asarray(block, np.float64).ravel()
    power = (1.0 - weight) ** np.arange(0, rows, 2**20)  # of the last row of each repeat
    inner = weight * (1.0 - weight) ** np.arange(2**20 - 1, -1, -1)
    first, second = (
        np.sum(power) * (inner @ exact**p) + (1.0 - weight) ** rows * before for p, before in ((1, 2), (2, 5))
    )
    np.testing.assert_allclose(moments.mean, first, rtol=1e-6)
    np.testing.assert_allclose(moments.var, second - first**2, rtol=1e-5)
    assert float(moments.count) == 2**24


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return(carrier, state):
    rewards = np.random.default_rng(1).normal(5.0, 3.0, (40, N)).astype(np.float32)
    seen, total = [], np.zeros(N)
    scale = quick(carrier.scale_reward)
    for t, reward in enumerate(rewards):
        done = np.full(N, float(t % 10 == 9), np.float32)
        state, scaled = scale(state, jnp.asarray(reward), jnp.asarray(done), HYPER)
        total = 0.9 * total + reward
        seen.append(total.copy())
        total = total * (1 - done)
    np.testing.assert_allclose(scaled, rewards[-1] / np.std(seen), rtol=1e-3)
    assert np.all(np.asarray(state.discounted) == 0.0)  # the last step ended every episode


def test_adaptive_rate_follows_the_divergence_and_a_normalised_value_is_put_back_in_units():
    config = ppo.PpoConfig(
        rollout=T, hidden=(8,), activation="elu", orthogonal=False, shared=True, normalise_value=True,
        normalise_reward=False, adaptive_rate=True, log_std_bounds=(-20.0, 2.0),
    )  # fmt: skip
    carrier = ppo.Ppo(S, A, config)
    state = initial(carrier)
    hyper = HYPER._replace(reward_scale=0.01)
    np.testing.assert_allclose(carrier.scale_reward(state, jnp.full(N, 5.0), jnp.zeros(N), hyper)[1], 0.05, rtol=1e-6)
    for kl, factor in ((0.1, 1 / 1.5), (0.001, 1.5), (0.008, 1.0)):
        rate = carrier.end_epoch(state, {"kl": jnp.float32(kl)}, hyper).rate
        np.testing.assert_allclose(rate, factor, rtol=1e-6)
    rollout = rollout_of(carrier, state)
    rollout = rollout._replace(reward=100.0 + rollout.reward)
    after, rows, residuals = quick(carrier.prepare)(state, rollout, hyper)
    np.testing.assert_allclose(np.mean(residuals), 100.0, atol=3.0)  # in units of reward, not of the network
    assert abs(float(jnp.mean(rows.target))) < 1.5
    assert float(after.value_moments.mean) > 50.0


# --- minibatches and the loop


@pytest.mark.parametrize("size", [12, 1000, 1024])
def test_every_epoch_sees_every_row_once_in_an_order_of_its_own(size):
    order = np.asarray(minibatches(jax.random.key(3), size, 6, 4)).reshape(6, size)
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(size), (6, 1)))
    assert len({tuple(row) for row in order}) > 1
    again = np.asarray(minibatches(jax.random.key(4), size, 6, 4)).reshape(6, size)
    assert not np.array_equal(order[0], again[0])


def test_one_proxy_per_rollout_and_one_tick_per_minibatch(bandit):
    own = ppo.Ppo(1, 1, ppo.PpoConfig(rollout=5, epochs=2, minibatches=2, hidden=(8,)))
    loop = make_program(bandit, own, LoopConfig(4, 20))
    run = Run(jnp.uint32(0), (), chosen("aes", base=0.05, updates=1000.0), floats(HYPER))
    state, logs = quick(loop.chunk)(quick(loop.init)(run), run, jnp.int32(0))
    assert int(state.schedule.count) == 4 * 2 * 2  # rollouts, epochs, minibatches
    recorded = np.asarray(logs["stream_td_quantile/update"]).reshape(4, 4)
    assert np.all(recorded == recorded[:, :1])
    assert len(set(recorded[:, 0])) == 4


ONE_ROW = {
    "as many minibatches as rows": lambda: make_train("toy", "ppo", steps=640, evaluations=2, rollout=4),
    "a rollout that shrinks to the divisor 1": lambda: make_train(
        "toy", "ppo", steps=202, evaluations=2, segments=1, num_envs=1, rollout=100
    ),
    "a loop": lambda: make_program(
        World(envs.make("toy"), 20), ppo.Ppo(2, 2, ppo.PpoConfig(rollout=5, minibatches=20)), LoopConfig(4, 20)
    ),
    "a minibatch": lambda: quick(ppo.Ppo(S, A).update)(
        *one_row(), entropy_weight=jnp.float32(0.1), hyper=floats(HYPER)
    ),
}


def one_row():
    """State of the carrier and a batch of one row."""
    carrier = ppo.Ppo(S, A)
    return initial(carrier), ppo.Rows(jnp.zeros((1, S)), jnp.zeros((1, A)), *jnp.zeros((5, 1)))


@pytest.mark.parametrize("case", ONE_ROW)
def test_a_size_without_a_standard_deviation_is_refused_before_training(case):
    with pytest.raises(ValueError, match=r"at least two values|2 rows per minibatch"):
        ONE_ROW[case]()


def test_one_row_is_enough_where_advantages_are_not_normalised():
    make_train("toy", "ppo", steps=640, evaluations=2, rollout=4, normalise_advantage=False)


@pytest.mark.parametrize(
    ("rollout", "minibatches", "text"),
    [(7, 2, r"20 vector steps .* multiple of the rollout 7"), (5, 3, "20 transitions cannot be cut into 3")],
)
def test_a_rollout_must_fit_between_evaluations(bandit, rollout, minibatches, text):
    carrier = ppo.Ppo(1, 1, ppo.PpoConfig(rollout=rollout, minibatches=minibatches))
    with pytest.raises(ValueError, match=text):
        make_program(bandit, carrier, LoopConfig(4, 20))
