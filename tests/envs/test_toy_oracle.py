import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.toy import oracle
from envs.toy.multigoal import PARAMS, goal_reward

TOY = envs.make("toy")
OFFSETS = np.array([[0.0, 0.0], [-0.217, -0.313]], np.float32)
EPISODES = 128


@jax.jit
def solved(offset):
    """Optimal return to go (51, 201, 201) from position (x, y) at each time, with goals shifted by ``offset`` (2,)."""
    params, reach = PARAMS._replace(goal_offset=offset), oracle._reach(PARAMS)
    reward = oracle._reward_table(params)

    def earlier(value, _):
        value = oracle._backup(value, reward, params, reach)
        return value, value

    last = jnp.zeros((oracle._NODES, oracle._NODES), jnp.float32)
    _, values = jax.lax.scan(earlier, last, length=oracle._HORIZON)
    return jnp.concatenate([values[::-1], last[None]])


def act(value, params, obs, t):
    """Greedy action (2,) in [-1, 1] at position ``obs`` (2,), ``t`` steps into the episode.

    The best of 21 x 21 actions by exact reward plus interpolated value to go. Batch it with ``vmap``.
    """
    reach = oracle._reach(PARAMS)
    corner = jnp.clip((obs + 1.0) / oracle._CELL, 0.0, oracle._NODES - 1.0)
    first = jnp.floor(corner).astype(jnp.int32)
    part = corner - first.astype(jnp.float32)
    # All actions move by whole cells, so they share one interpolation weight.
    window = jnp.clip(first[None, :] + jnp.arange(-reach, reach + 2)[:, None], 0, oracle._NODES - 1)
    table = value[t + 1, window[:, 0][:, None], window[:, 1][None, :]]
    table = (1.0 - part[0]) * table[:-1] + part[0] * table[1:]
    table = (1.0 - part[1]) * table[:, :-1] + part[1] * table[:, 1:]
    line = np.linspace(-1.0, 1.0, 2 * reach + 1, dtype=np.float32)
    actions = jnp.asarray(np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2))
    arrivals = jnp.clip(obs[None, :] + params.step_size * actions, -1.0, 1.0)
    rewards = jax.vmap(goal_reward, in_axes=(0, None))(arrivals, params)
    gains = rewards + table.reshape(-1) - params.control_cost * jnp.sum(actions**2, axis=1)
    return actions[jnp.argmax(gains)]


@pytest.fixture(scope="module")
def optima():
    return np.asarray(oracle.optimal_return(OFFSETS))


@jax.jit
def greedy_return(value, offset, key):
    """Mean return of the greedy policy over EPISODES episodes of the real environment, and its standard error."""
    params = PARAMS._replace(goal_offset=offset)

    def episode(key):
        key_reset, key = jax.random.split(key)
        obs, state = TOY.env.reset(key_reset, params)

        def body(carry, _):
            obs, state, key = carry
            key, key_step = jax.random.split(key)
            action = act(value, params, obs, state.time)
            obs, state, reward, *_ = TOY.env.step(key_step, state, action, params)
            return (obs, state, key), reward

        return jax.lax.scan(body, (obs, state, key), length=50)[1].sum()

    returns = jax.vmap(episode)(jax.random.split(key, EPISODES))
    return returns.mean(), returns.std() / EPISODES**0.5


def test_steady_optimum_is_the_published_one(optima):
    np.testing.assert_allclose(optima[0], 47.8, rtol=0.01)


@pytest.mark.parametrize("index", [0, 1])
def test_greedy_rollouts_in_the_real_task_earn_the_value(optima, index):
    mean, error = greedy_return(solved(OFFSETS[index]), OFFSETS[index], jax.random.key(index))
    assert abs(mean - optima[index]) <= 0.005 * optima[index]
    assert mean <= optima[index] + 4 * error + 0.02  # nobody beats the optimum


def test_value_of_the_last_step_is_one_move_by_hand():
    value = solved(OFFSETS[0])
    centre = value[49, 100, 100]
    # One step from the origin: a full move towards the best goal, p' = (0.1, 0), averaged over the noise.
    inside = np.exp(-0.16 / 0.08 / (1 + 0.0025)) / (1 + 0.0025)
    np.testing.assert_allclose(centre, inside - 0.01, rtol=2e-3)
    np.testing.assert_array_equal(value[50], 0.0)


def test_a_move_that_is_no_multiple_of_the_cell_is_refused():
    with pytest.raises(ValueError, match=r"multiple of 0\.01; got 0\.105"):
        oracle.optimal_return(OFFSETS, PARAMS._replace(step_size=np.float32(0.105)))
