import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.isaac import TASKS as ISAAC_TASKS
from envs.mujoco import TASKS as MUJOCO_TASKS

N = 8


def make(name):
    """The task; episodes of those with a simulator are cut short."""
    return envs.make(name, **({"time_limit": 60} if name in {*MUJOCO_TASKS, *ISAAC_TASKS} else {}))


def rollout(task, params, seed):
    """``autoreset_step`` on N copies under random actions; every value with leading axes (time limit, N)."""
    params = jax.tree.map(jnp.asarray, params)
    return jax.tree.map(np.asarray, program(task.name)(params, jax.random.key(seed)))


@functools.cache
def program(name):
    """One compilation per task: a whole episode."""
    env = make(name).env

    @jax.jit
    def run(params, key):
        def body(carry, _):
            state, key = carry
            key, key_action, key_step = jax.random.split(key, 3)
            action = jax.random.uniform(key_action, (N, env.spec.action_size), minval=-1.0)
            step = jax.vmap(lambda k, s, a: envs.autoreset_step(env, k, s, a, params))
            obs, state, reward, terminated, truncated, info = step(jax.random.split(key_step, N), state, action)
            return (state, key), (obs, reward, terminated, truncated, info["final_observation"])

        key_reset, key_run = jax.random.split(key)
        _, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key_reset, N), params)
        return jax.lax.scan(body, (state, key_run), length=env.spec.time_limit)[1]

    return run


#: Twins of tasks that are looked at always, or what takes long.
SLOW = ("walker2d", "humanoid", "isaac_humanoid")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in envs.TASKS]
)
class TestEveryTask:
    def test_is_described_completely(self, name):
        task = make(name)
        assert task.name == name
        assert task.family in {"toy", "mujoco", "isaac"}
        assert task.description
        assert len({channel.name for channel in task.channels}) == len(task.channels) > 0
        for channel in task.channels:
            assert channel.low <= channel.nominal <= channel.high
            assert (channel.kind, channel.size) in {("scalar", 1), ("planar", 2)}

    def test_keeps_the_six_value_contract(self, name):
        task = make(name)
        spec = task.env.spec
        obs, reward, terminated, truncated, final = rollout(task, task.params, 0)
        assert obs.shape == final.shape == (spec.time_limit, N, spec.obs_size)
        assert reward.shape == terminated.shape == truncated.shape == (spec.time_limit, N)
        assert (obs.dtype, reward.dtype) == (np.float32, np.float32)
        assert (terminated.dtype, truncated.dtype) == (bool, bool)
        assert np.isfinite(obs).all()
        assert np.isfinite(reward).all()

    def test_ends_every_episode_within_the_time_limit_and_with_one_flag(self, name):
        task = make(name)
        obs, _, terminated, truncated, final = rollout(task, task.params, 1)
        ended = terminated | truncated
        assert ended.any(axis=0).all()
        assert not (terminated & truncated).any()
        never_terminated = ~terminated.any(axis=0)
        np.testing.assert_array_equal(truncated[-1, never_terminated], True)
        assert (obs[ended] != final[ended]).any(axis=-1).all()  # reset: another observation
        np.testing.assert_array_equal(obs[~ended], final[~ended])  # no reset: the same
        starts = obs[ended]
        assert len(np.unique(starts, axis=0)) == len(starts)  # new episodes, not one replayed

    def test_every_drift_channel_changes_the_next_state_or_the_reward(self, name):
        task = make(name)
        nominal = np.concatenate([np.full(c.size, c.nominal, np.float32) for c in task.channels])
        base = rollout(task, task.apply_drift(task.params, jnp.asarray(nominal)), 2)
        for coordinate, channel in enumerate(c for c in task.channels for _ in range(c.size)):
            values = nominal.copy()
            values[coordinate] = channel.high if channel.nominal < channel.high else channel.low
            moved = rollout(task, task.apply_drift(task.params, jnp.asarray(values)), 2)
            same = np.array_equal(base[0], moved[0]) and np.array_equal(base[1], moved[1])
            assert not same or channel.name in task.inert, channel.name

    def test_nominal_drift_is_the_undrifted_task_and_drift_never_accumulates(self, name):
        task = make(name)
        nominal = jnp.concatenate([jnp.full(c.size, c.nominal, jnp.float32) for c in task.channels])
        once = task.apply_drift(task.params, nominal + 0.1)
        back = task.apply_drift(once, nominal)
        plain, nothing = (rollout(task, p, 3) for p in (task.params, back))
        jax.tree.map(np.testing.assert_array_equal, plain, nothing)
