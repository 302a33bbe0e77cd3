import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.toy.multigoal import PointState

TOY, CLASSIC = envs.make("toy"), envs.make("toy_multigoal_classic")
QUIET = TOY.params._replace(process_noise=np.float32(0))
KEY = 0
TOY_STEP, CLASSIC_STEP = jax.jit(TOY.env.step), jax.jit(CLASSIC.env.step)


def toy_step(position, action, time=0, params=QUIET):
    state = PointState(jnp.asarray(position, jnp.float32), jnp.int32(time))
    return TOY_STEP(jax.random.key(KEY), state, jnp.asarray(action, jnp.float32), params)


def classic_step(position, action, time=0, params=CLASSIC.params):
    state = PointState(jnp.asarray(position, jnp.float32), jnp.int32(time))
    return CLASSIC_STEP(jax.random.key(KEY), state, jnp.asarray(action, jnp.float32), params)


@pytest.mark.parametrize(
    ("position", "action", "offset", "expected"),
    [
        ((0.5, 0.0), (0, 0), (0, 0), 1.0),  # on the best goal
        ((-0.5, 0.0), (0, 0), (0, 0), 0.5),  # on a lesser one
        ((0.0, 0.0), (0, 0), (0, 0), np.exp(-0.25 / 0.08)),  # the centre sees the best goal
        ((0.0, 0.0), (1, 0), (0, 0), np.exp(-2.0) - 0.01),  # arrives at 0.1, 0.4 from the goal
        ((0.2, -0.1), (0, 1), (-0.3, 0.0), 1.0 - 0.01),  # goal moved to (0.2, 0)
        ((0.0, 0.45), (-1, 1), (0, 0), 0.5 * np.exp(-(0.1**2 + 0.05**2) / 0.08) - 0.02),
    ],
)
def test_toy_reward_is_the_best_bump_minus_the_control_cost(position, action, offset, expected):
    params = QUIET._replace(goal_offset=np.array(offset, np.float32))
    np.testing.assert_allclose(toy_step(position, action, params=params)[2], expected, rtol=1e-5)


def test_toy_moves_a_tenth_per_action_and_stays_in_the_arena():
    np.testing.assert_allclose(toy_step((0.2, -0.3), (0.5, -1.0))[0], [0.25, -0.4], atol=1e-7)
    np.testing.assert_array_equal(toy_step((0.98, -1.0), (1, -1))[0], [1.0, -1.0])


def test_toy_time_limit_truncates_and_never_terminates():
    for time, truncated in ((0, False), (48, False), (49, True)):
        _, state, _, *flags, _ = toy_step((0.5, 0), (0, 0), time)
        assert (*map(bool, flags), int(state.time)) == (False, truncated, time + 1)


def test_toy_noise_and_start_have_the_stated_spread():
    keys = jax.random.split(jax.random.key(2), 4000)
    starts = jax.vmap(lambda key: TOY.env.reset(key, TOY.params)[0])(keys)
    np.testing.assert_allclose(np.std(starts, axis=0), 0.05, rtol=0.05)
    state = PointState(jnp.zeros(2), jnp.int32(0))
    moves = jax.vmap(lambda key: TOY.env.step(key, state, jnp.zeros(2), TOY.params)[0])(
        jax.random.split(jax.random.key(3), 4000)
    )
    np.testing.assert_allclose(np.std(moves, axis=0), 0.01, rtol=0.05)
    np.testing.assert_allclose(np.mean(moves, axis=0), 0.0, atol=6e-4)


@pytest.mark.parametrize(
    ("position", "action", "expected", "ends"),
    [
        ((0, 0), (0, 0), -25.0, False),
        ((0, 0), (1, 0), -30.0 - 16.0, False),
        ((4.5, 0), (0, 0), 10.0 - 0.25, True),
        ((0, -3.5), (0, -1), 10.0 - 30.0 - 0.25, True),
        ((7, 7), (1, 1), -60.0 - (49.0 + 4.0), False),  # held by the wall
        ((4, 0), (0, 0), -1.0, False),  # exactly at the radius: not within
    ],
)
def test_classic_reward_and_end_by_hand(position, action, expected, ends):
    obs, _, reward, terminated, truncated, _ = classic_step(position, action)
    np.testing.assert_allclose(reward, expected, rtol=1e-6)
    assert (bool(terminated), bool(truncated)) == (ends, False)
    np.testing.assert_allclose(obs, np.clip(np.add(position, action), -7, 7))


def test_classic_goals_move_and_an_arrival_on_the_last_step_is_a_termination():
    assert tuple(map(bool, classic_step((4.5, 0), (0, 0), time=29)[3:5])) == (True, False)
    assert tuple(map(bool, classic_step((0, 0), (0, 0), time=29)[3:5])) == (False, True)
    params = CLASSIC.apply_drift(CLASSIC.params, jnp.array([-3.5, 0.0]))
    np.testing.assert_allclose(classic_step((1.5, 0), (0, 0), params=params)[2], 10.0, rtol=1e-6)


def test_classic_has_the_shifts_and_episodes_that_its_options_name():
    task = envs.make("toy_multigoal_classic", goal_shift=0.5, time_limit=1000)
    assert (task.channels[0].high, task.env.spec.time_limit) == (0.5, 1000)
    assert envs.make(task.name, **task.options) is task
    assert (CLASSIC.channels[0].high, CLASSIC.env.spec.time_limit) == (3.5, 30)
