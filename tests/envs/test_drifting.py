import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.drift import change_points, draw, drifted_params

TOY = envs.make("toy")


def run(env, steps, key):
    """All six values of ``steps`` steps under zero actions, and the clock after each."""

    def body(carry, _):
        state, key = carry
        key, key_step = jax.random.split(key)
        out = env.step(key_step, state, jnp.zeros((env.num_envs, 2)))
        return (out[1], key), (out[0], out[2:], out[1].clock)

    def whole(key):
        key_reset, key_run = jax.random.split(key)
        return jax.lax.scan(body, (env.reset(key_reset)[1], key_run), length=steps)[1]

    return jax.tree.map(np.asarray, jax.jit(whole)(key))


def test_the_clock_survives_auto_reset():
    env = envs.Drifting(TOY, "abrupt", total_steps=2 * 200, num_envs=2)
    _, (_, _, truncated, info), clocks = run(env, 200, jax.random.key(0))
    assert truncated.sum() == 2 * 4  # four episodes of 50 steps in each copy
    np.testing.assert_array_equal(clocks, np.arange(1, 201))
    np.testing.assert_array_equal(np.flatnonzero(info["drift"].is_change_point), change_points(200))


def test_observations_lead_with_the_copies_and_drift_is_shared_by_them():
    env = envs.Drifting(TOY, "periodic", total_steps=3 * 20, num_envs=3)
    obs, (reward, _, _, info), _ = run(env, 20, jax.random.key(1))
    assert obs.shape == info["final_observation"].shape == (20, 3, 2)
    assert reward.shape == (20, 3)
    assert info["drift"].values.shape == (20, 2)


@pytest.mark.parametrize("pattern", envs.PATTERNS)
def test_every_step_runs_under_the_parameters_of_the_functions_underneath(pattern):
    env = envs.Drifting(TOY, pattern, total_steps=100, drift_seed=5)
    _, (_, _, _, info), _ = run(env, 100, jax.random.key(2))
    realisation, index = draw(TOY, 5), envs.pattern_index(pattern)
    under = jax.jit(jax.vmap(lambda step: drifted_params(TOY, index, realisation, step, 100).goal_offset))
    wrapped = jax.jit(jax.vmap(lambda step: env.params_at(step).goal_offset))
    np.testing.assert_allclose(under(np.arange(100)), wrapped(np.arange(100)), atol=1e-6)
    np.testing.assert_allclose(under(np.arange(100)), info["drift"].values, atol=1e-6)


def test_abrupt_gives_the_trajectory_of_steady_bit_for_bit_until_the_first_change_and_not_after():
    rewards = [run(envs.Drifting(TOY, p, 100), 100, jax.random.key(3))[1][0] for p in ("steady", "abrupt")]
    np.testing.assert_array_equal(rewards[0][:20], rewards[1][:20])
    assert (rewards[0][20:] != rewards[1][20:]).all()


def test_drift_reaches_the_reward_in_the_very_step_of_the_change():
    env = envs.Drifting(TOY, "abrupt", total_steps=100)
    key_reset, key = jax.random.split(jax.random.key(4))
    state = jax.jit(env.reset)(key_reset)[1]._replace(clock=jnp.int32(20))
    obs, _, reward, *_ = jax.jit(env.step)(key, state, jnp.zeros((1, 2)))
    goals = TOY.params.goals + np.asarray(env.realisation.levels[1])
    bumps = TOY.params.weights * np.exp(-np.sum((np.asarray(obs[0]) - goals) ** 2, axis=1) / 0.08)
    np.testing.assert_allclose(reward[0], bumps.max(), rtol=1e-5)


@pytest.mark.parametrize("options", [{"total_steps": 101}, {"total_steps": 40, "num_envs": 3}, {"total_steps": 0}])
def test_a_horizon_that_cannot_be_divided_is_refused(options):
    with pytest.raises(ValueError, match=r"must be a .*multiple of"):
        envs.Drifting(TOY, "abrupt", **options)


def test_an_unknown_pattern_is_refused_before_anything_runs():
    with pytest.raises(envs.UnknownNameError, match="did you mean 'linear'"):
        envs.Drifting(TOY, "liner", 100)
