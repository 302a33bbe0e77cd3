import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.toy import grid, oracle

OFFSETS = np.array([[0.0, 0.0], [-0.217, -0.313]], np.float32)


@pytest.fixture(scope="module")
def optima():
    return np.asarray(oracle.optimal_return(OFFSETS))


def test_steady_optimum_is_the_published_one(optima):
    np.testing.assert_allclose(optima[0], 47.8, rtol=0.01)


@pytest.mark.parametrize("index", [0, 1])
def test_the_optimum_agrees_with_a_straight_run_to_the_best_goal(optima, index):
    """Moves of 0.1 along each axis; noise costs 1 / (1 + 0.01^2 / 0.2^2) per step at the goal."""
    ways = np.maximum(np.abs([0.5, 0.0] + OFFSETS[index]) - 0.1 * np.arange(51)[:, None], 0.0)
    rewards = np.exp(-np.sum(ways[1:] ** 2, -1) / 0.08) - np.sum(np.diff(ways, axis=0) ** 2, -1)
    np.testing.assert_allclose(optima[index], np.sum(rewards) / (1 + 0.01**2 / 0.2**2), rtol=0.004)


@pytest.mark.parametrize("values", [(0.0, 0.0, 0.0), (0.55, -0.3, 0.25)])
def test_the_optimum_of_the_grid_is_that_of_its_own_steps(values):
    """Backward induction in NumPy over the cells that `step` reaches without slips and the rewards it pays there."""
    env, side, actions = grid.TASK.env, 7, grid.TASK.env.spec.action_size
    params = grid.TASK.apply_drift(grid.PARAMS, jnp.float32(values))._replace(slip=jnp.float32(0.0))
    cells, moves = (x.ravel() for x in jnp.meshgrid(jnp.arange(side**2), jnp.arange(actions), indexing="ij"))

    def step(cell, move):
        state = grid.GridState(cell, jnp.int32(0))
        _, after, reward, *_ = env.step(jax.random.key(0), state, jax.nn.one_hot(move, actions), params)
        return after.cell, reward

    reached, reward = (np.asarray(x).reshape(-1, actions) for x in jax.vmap(step)(cells, moves))
    value = np.zeros(side**2)
    for _ in range(env.spec.time_limit):
        worth = reward + value[reached]
        value = (1 - values[2]) * worth.max(-1) + values[2] * worth.mean(-1)
    np.testing.assert_allclose(grid.optimal_return([values])[0], value.mean(), rtol=1e-5)
    slipping = params._replace(slip=jnp.float32(1.0))
    stay, keys = jax.nn.one_hot(0, actions), jax.random.split(jax.random.key(0), 2_000)
    state = grid.GridState(jnp.int32(side**2 // 2), jnp.int32(0))
    slipped = jax.vmap(lambda key: env.step(key, state, stay, slipping)[1].cell)(keys)
    counts = np.unique(np.asarray(slipped), return_counts=True)[1]
    np.testing.assert_allclose(counts / len(keys), np.full(actions, 1 / actions), atol=0.04)
