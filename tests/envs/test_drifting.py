import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.drift import change_points, draw, drifted_params

TOY = envs.make("toy")


STEPS, N = 100, 2


@functools.cache
def run(pattern):
    """Observations, the other values of every step under zero actions, and the clock after each."""
    env = envs.Drifting(TOY, pattern, total_steps=N * STEPS, drift_seed=5, num_envs=N)

    def body(carry, _):
        state, key = carry
        key, key_step = jax.random.split(key)
        obs, state, *rest = env.step(key_step, state, jnp.zeros((N, 2)))
        return (state, key), (obs, rest, state.clock, env.params_at(state.clock - 1).goal_offset)

    def whole(key):
        key_reset, key_run = jax.random.split(key)
        return jax.lax.scan(body, (env.reset(key_reset)[1], key_run), length=STEPS)[1]

    return jax.tree.map(np.asarray, jax.jit(whole)(jax.random.key(0)))


@jax.jit
def offsets_underneath(index):
    at = functools.partial(drifted_params, TOY, index, draw(TOY, 5))
    return jax.vmap(lambda step: at(step, STEPS).goal_offset)(jnp.arange(STEPS))


def test_the_clock_survives_auto_reset():
    _, (_, _, truncated, info), clocks, _ = run("abrupt")
    assert truncated.sum() == N * 2  # two episodes of 50 steps in each copy
    np.testing.assert_array_equal(clocks, np.arange(1, STEPS + 1))
    np.testing.assert_array_equal(np.flatnonzero(info["drift"].is_change_point), change_points(STEPS))


@pytest.mark.parametrize("pattern", ["abrupt", "mixed"])
def test_every_step_runs_under_the_parameters_of_the_functions_underneath(pattern):
    _, (_, _, _, info), _, offsets = run(pattern)
    expected = offsets_underneath(envs.pattern_index(pattern))
    np.testing.assert_allclose(offsets, expected, atol=1e-6)
    np.testing.assert_allclose(info["drift"].values, expected, atol=1e-6)


def test_drift_reaches_the_reward_in_the_very_step_of_the_change():
    env = envs.Drifting(TOY, "abrupt", total_steps=100)
    key_reset, key = jax.random.split(jax.random.key(4))
    state = jax.jit(env.reset)(key_reset)[1]._replace(clock=jnp.int32(20))
    obs, _, reward, *_ = jax.jit(env.step)(key, state, jnp.zeros((1, 2)))
    goals = TOY.params.goals + np.asarray(env.realisation.levels[1])
    bumps = TOY.params.weights * np.exp(-np.sum((np.asarray(obs[0]) - goals) ** 2, axis=1) / 0.08)
    np.testing.assert_allclose(reward[0], bumps.max(), rtol=1e-5)


def test_a_task_without_channels_is_steady_and_nothing_else():
    still = TOY._replace(channels=(), apply_drift=lambda params, values: params)
    env, plain = (envs.Drifting(task, "steady", total_steps=N * STEPS, num_envs=N) for task in (still, TOY))
    (_, state), action = env.reset(jax.random.key(0)), jnp.ones((N, 2))
    (*_, reward, _, _, info), (*_, same, _, _, _) = (e.step(jax.random.key(1), state, action) for e in (env, plain))
    np.testing.assert_array_equal(reward, same)
    assert info["drift"].values.shape == (0,)
    assert (info["drift"].change, env.world.displacement(info["drift"].values)) == (0, 0)
    with pytest.raises(ValueError, match="task 'toy' has no drift channel, so its pattern is steady; got 'abrupt'"):
        envs.Drifting(still, "abrupt", total_steps=N * STEPS)
    with pytest.raises(envs.UnknownNameError, match="did you mean 'steady'"):
        envs.Drifting(still, "stedy", total_steps=N * STEPS)


def test_arrays_of_a_wrong_shape_are_refused_when_traced():
    env = envs.Drifting(TOY, "abrupt", total_steps=N * STEPS, num_envs=N)
    _, state = env.reset(jax.random.key(0))
    for shape in ((2,), (N, 3), (N + 1, 2)):
        with pytest.raises(AssertionError, match=r"action of task 'toy': \(num_envs, actuators\)"):
            jax.eval_shape(env.step, jax.random.key(0), state, jax.ShapeDtypeStruct(shape, np.float32))
    world = env.world
    with pytest.raises(AssertionError, match=r"steps of World.path: \(n,\) vector steps"):
        world.path(env.drift, jnp.int32(3))
    with pytest.raises(AssertionError, match="drift values of task 'toy'"):
        world.params_of(jnp.zeros(3))
    other = envs.Drifting(envs.make("pendulum"), "abrupt", total_steps=STEPS)
    with pytest.raises(AssertionError, match="a realisation is drawn for one task's channels"):
        world.truth(other.drift, 0)
