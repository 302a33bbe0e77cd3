import numpy as np
import pytest

from envs.toy import oracle

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
