import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.toy import oracle
from envs.toy.multigoal import PARAMS

OFFSETS = np.array([[0.0, 0.0], [-0.217, -0.313]], np.float32)


@jax.jit
def solved(offset):
    """Optimal return to go (51, 201, 201) from position (x, y) at each time, with goals shifted by ``offset`` (2,)."""
    params = PARAMS._replace(goal_offset=offset)
    reward = oracle._reward_table(params)

    def earlier(value, _):
        value = oracle._backup(value, reward, params)
        return value, value

    last = jnp.zeros((oracle._NODES, oracle._NODES), jnp.float32)
    _, values = jax.lax.scan(earlier, last, length=oracle._HORIZON)
    return jnp.concatenate([values[::-1], last[None]])


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


def test_value_of_the_last_step_is_one_move_by_hand():
    value = solved(OFFSETS[0])
    centre = value[49, 100, 100]
    # One step from the origin: a full move towards the best goal, p' = (0.1, 0), averaged over the noise.
    inside = np.exp(-0.16 / 0.08 / (1 + 0.0025)) / (1 + 0.0025)
    np.testing.assert_allclose(centre, inside - 0.01, rtol=2e-3)
    np.testing.assert_array_equal(value[50], 0.0)
