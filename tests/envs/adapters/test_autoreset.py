"""When a copy of the vector environment begins its next episode: Gymnasium's three modes."""

import copy

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs
from envs.adapters.gymnasium import DriftingEnv, DriftingVectorEnv
from tests.envs.adapters.same import same

N = 3


class Counting:
    """Observes how many steps its episode has; an action above 0 ends it."""

    spec = envs.EnvSpec(1, 1, 100)

    def reset(self, key, params):
        return jnp.zeros(1), jnp.int32(0)

    def step(self, key, state, action, params):
        state = state + 1
        obs = state[None].astype(jnp.float32)
        return obs, state, 10 + obs[0], action[0] > 0, jnp.zeros((), bool), {"time": state}


TASK = envs.make("toy")._replace(name="counting", env=Counting(), params=None, apply_drift=lambda params, _: params)
ENDS = np.array([[-1, -1, -1], [1, -1, -1], [1, 1, -1], [-1, -1, -1], [1, 1, 1], [-1, -1, -1], [-1, -1, 1]])


def made(mode):
    return DriftingVectorEnv(TASK, "abrupt", drift_steps=50, num_envs=N, autoreset_mode=mode)


def rollout(env, mode):
    """A reset and every step of ``ENDS``; what has ended is reset by mask where nothing else does it."""
    said = [env.reset(seed=0)]
    for ends in ENDS:
        said.append(env.step(ends[:, None].astype(np.float32)))
        ended = said[-1][2] | said[-1][3]
        if mode is AutoresetMode.DISABLED and ended.any():
            said.append(env.reset(options={"reset_mask": ended}))
    return said


def without_clock(said):
    """Copies of `SyncVectorEnv` have clocks of their own, which stand still while they are reset in place of a step."""
    if isinstance(said, dict):
        return {k: without_clock(v) for k, v in said.items() if k != "drift_step"}
    return [without_clock(entry) for entry in said] if isinstance(said, list | tuple) else said


@pytest.fixture(scope="module")
def single():
    """One environment; its deep copies share what it compiles."""
    return DriftingEnv(TASK, "abrupt", drift_steps=50)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_each_mode_is_that_of_gymnasiums_own_vector_environment(single, mode):
    copies = [lambda: copy.deepcopy(single)] * N
    ours, theirs = rollout(made(mode), mode), rollout(SyncVectorEnv(copies, autoreset_mode=mode), mode)
    assert len(ours) > len(ENDS)
    for mine, other in zip(without_clock(ours), without_clock(theirs), strict=True):
        assert same(mine, other)


def test_without_autoreset_an_episode_that_is_over_must_be_reset():
    env = made(AutoresetMode.DISABLED)
    env.reset(seed=0)
    action = np.array([[-1], [1], [1]], np.float32)
    env.step(action)
    with pytest.raises(gymnasium.error.ResetNeeded, match="copies 1, 2 are over; reset them with reset_mask"):
        env.step(action)
    env.reset(options={"reset_mask": np.array([False, True, False])})
    with pytest.raises(gymnasium.error.ResetNeeded, match="copies 2 are over"):
        env.step(action)
    env.reset()
    np.testing.assert_array_equal(env.step(action)[0][:, 0], [1, 1, 1])


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match=r"autoreset_mode must be one of NextStep, SameStep, Disabled; got 'next'"):
        made("next")
