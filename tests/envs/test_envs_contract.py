import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.core import random_actions
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
            action = random_actions(env.spec, key_action, N)
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
    def test_drifts_around_its_nominal_value(self, name):
        for channel in make(name).channels:
            assert channel.low <= channel.nominal <= channel.high
            assert (channel.kind, channel.size) in {("scalar", 1), ("planar", 2)}

    def test_keeps_its_contract(self, name):
        envs.check_task(make(name), copies=N)

    def test_starts_every_episode_at_another_place(self, name):
        task = make(name)
        obs, _, terminated, truncated, _ = rollout(task, task.params, 1)
        ended = terminated | truncated
        starts = obs[ended]
        cells = task.env.spec.discrete  # few, so that two episodes may start in one of them
        assert len(np.unique(starts, axis=0)) >= len(starts) / (1 + cells)  # new episodes, not one replayed


class Line(NamedTuple):
    """A point on a line; ``fault`` names what is wrong with it."""

    fault: str = ""
    spec: envs.EnvSpec = envs.EnvSpec(1, 1, 5)

    def reset(self, key, params):
        return jax.random.normal(key, (1,)), jnp.int32(0)

    def step(self, key, state, action, params):
        reward = params["gain"] * jnp.where(self.fault == "nan", jnp.nan, action[0])
        if self.fault == "type":
            reward = reward.astype(jnp.float16)
        limit = 9 if self.fault == "limit" else 5
        info = self.missing if self.fault == "code" else {}
        return jnp.float32(state)[None], state + 1, reward, jnp.bool_(False), state + 1 >= limit, info


def line(fault="", **fields):
    """A task of a stranger with one fault."""

    def apply(params, values):
        return params if fault == "deaf" else {"gain": values[0] + (params["gain"] if fault == "adds" else 0.0)}

    channels = (envs.Channel("gain", 0.5, 2.0, 1.0),)
    task = envs.Task("line", "mine", Line(fault), {"gain": np.float32(1.0)}, channels, apply, "a line")
    return task._replace(**fields)


def test_a_task_of_a_stranger_is_checked():
    envs.check_task(line())
    envs.check_task(line("deaf", inert=("gain",)))


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("nan", "its reward is not finite under random actions"),
        ("type", "its reward must be float32; got float16"),
        ("limit", "an episode does not end within its time limit of 5 steps"),
        ("deaf", "channel 'gain' changes nothing"),
        ("adds", "`apply_drift` replaces values"),
        ("code", "does not work: AttributeError: 'Line' object has no attribute 'missing'"),
    ],
)
def test_a_task_that_breaks_its_contract_is_named_in_a_sentence(fault, text):
    with pytest.raises(ValueError, match=f"task 'line'.*{text}"):
        envs.check_task(line(fault))
