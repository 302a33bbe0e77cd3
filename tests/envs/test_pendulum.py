"""The pendulum against Gymnasium's, and its drift."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.toy.pendulum import PARAMS, PendulumState


@pytest.mark.parametrize("seed", [0, 1])
def test_an_episode_equals_gymnasiums(seed):
    theirs = gymnasium.make("Pendulum-v1")
    obs, _ = theirs.reset(seed=seed)
    angle, speed = theirs.unwrapped.state
    env, state = envs.make("pendulum").env, PendulumState(jnp.float32(angle), jnp.float32(speed), jnp.int32(0))
    step = jax.jit(lambda state, action: env.step(jax.random.key(0), state, action, PARAMS))
    for action in np.random.default_rng(seed).uniform(-1.2, 1.2, (200, 1)).astype(np.float32):
        # From their state: a pendulum near the top doubles a rounding error every few steps.
        angle, speed = theirs.unwrapped.state
        state = PendulumState(jnp.float32(angle), jnp.float32(speed), state.time)
        ours, state, reward, terminated, truncated, _ = step(state, jnp.asarray(action))
        obs, expected, ended, limit, _ = theirs.step(2.0 * action)
        np.testing.assert_allclose(ours, obs, atol=2e-5)
        assert float(reward) == pytest.approx(float(expected), abs=1e-4)
        assert (bool(terminated), bool(truncated)) == (ended, limit)
