"""The gridworld and the paths its goal takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory.drifts import DRIFTS, drift_weights
from experiments.theory.gridworld import MOVES, arrows, goal_weights, gridworld, start_at, visitation
from experiments.theory.softmdp import occupancy, solve


@pytest.fixture(scope="module")
def solved():
    with jax.enable_x64(True):
        goals = jnp.asarray([[4.0, 4.0], [0.0, 2.0], [1.5, 3.0]])
        mdps = jax.jit(jax.vmap(lambda g: gridworld(g, slip=0.2, temperature=1e-3)))(goals)
        return goals, mdps, jax.jit(jax.vmap(solve))(mdps)


def test_kernel_rows_are_distributions_and_slip_is_where_it_says(solved):
    _, mdps, _ = solved
    np.testing.assert_allclose(np.sum(mdps.transition, -1), 1.0, rtol=1e-14)
    assert np.all(np.asarray(mdps.transition) >= 0.0)
    centre = np.asarray(mdps.transition[0, 12])  # (A, S), no wall near
    np.testing.assert_allclose(centre[2, 13], 0.8 + 0.2 / 4)  # right
    np.testing.assert_allclose(centre[2, [7, 11, 17]], 0.2 / 4)
    np.testing.assert_allclose(centre[0, 12], 0.8)  # stay slips too
    corner = np.asarray(mdps.transition[0, 0])
    np.testing.assert_allclose(corner[1, 0], 0.8 + 2 * 0.2 / 4)  # up against the wall; slips up and left stay


def test_reward_is_the_chance_of_arriving_and_a_gliding_goal_keeps_its_size(solved):
    goals, mdps, _ = solved
    shares = jax.vmap(goal_weights)(goals)
    np.testing.assert_allclose(np.sum(shares, -1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(shares[2, [8, 13]], 0.5)
    np.testing.assert_allclose(mdps.reward, np.einsum("gsan,gn->gsa", mdps.transition, shares), rtol=1e-12)


def test_optimal_policy_walks_to_the_goal(solved):
    goals, _, solutions = solved
    best = np.asarray(jnp.argmax(solutions.q, axis=-1))
    for goal, action in zip(np.asarray(goals[:2], int), best[:2], strict=True):
        for cell in np.stack(np.divmod(np.arange(25), 5), -1):
            before = np.abs(cell - goal).sum()
            after = np.abs(cell + MOVES[action[cell[0] * 5 + cell[1]]] - goal).sum()
            assert after == max(before - 1, 0)


def test_arrows_point_the_way(solved):
    _, _, solutions = solved
    right, down = arrows(solutions.log_policy[0])
    assert right[4, 0] > 0.9
    assert down[0, 4] > 0.9
    np.testing.assert_allclose(right[4, 4], 1 / 3, rtol=1e-6)  # in the corner staying, right and down are the same


def test_old_policy_visits_a_goal_on_its_way_and_not_one_beyond(solved):
    _, mdps, solutions = solved
    mdp = jax.tree.map(lambda x: x[1], mdps)
    policy = solutions.log_policy[1]
    start = start_at((0, 0), uniform=0.0)
    visits = jax.jit(visitation)
    on_way, beyond = (visits(mdp, policy, start, jnp.asarray(g)) for g in ((0.0, 1.0), (4.0, 4.0)))
    np.testing.assert_allclose(on_way, jax.jit(occupancy)(mdp, policy, start)[1], rtol=1e-12)
    assert on_way > 20 * beyond > 0.0


@pytest.mark.parametrize("kind", DRIFTS)
def test_drift_weights_are_convex_and_reach_the_last_waypoint(kind):
    weights = drift_weights(kind, 3, 200, cycles=2)
    assert weights.shape == (200, 3)
    np.testing.assert_allclose(weights.sum(-1), 1.0)
    assert weights.min() >= 0.0
    np.testing.assert_array_equal(weights[0], [1, 0, 0])
    np.testing.assert_array_equal(weights[-1], [1, 0, 0] if kind == "periodic" else [0, 0, 1])
    moves = np.abs(np.diff(weights, axis=0)).sum(-1)
    jumps = np.flatnonzero(moves > 1.0)
    assert len(jumps) == (2 if kind in ("abrupt", "mixed") else 0)
    if kind == "mixed":
        assert 0.4 * 200 < jumps.min() <= jumps.max() < 0.6 * 200


def test_length_of_a_linear_path_does_not_depend_on_the_rounds():
    lengths = [np.abs(np.diff(drift_weights("linear", 4, n), axis=0)).sum() for n in (31, 301)]
    np.testing.assert_allclose(lengths, 6.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: drift_weights("sudden", 2, 10), "unknown drift 'sudden'"),
        (lambda: drift_weights("linear", 1, 10), "at least 2 waypoints"),
        (lambda: gridworld(jnp.zeros(2), size=1), "at least 2 rows"),
        (lambda: start_at((0, 5)), "start cell"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
