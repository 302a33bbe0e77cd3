"""Tiny bridged tasks, and what they must equal."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import envs
from envs.bridge.phantom import Phantom, seeded_step
from envs.world import World

_WITHOUT = "the bridge's tests share tensors with PyTorch: pip install torch==2.13.0"
LIMIT = 12  # steps of an episode
ROOT = Path(__file__).resolve().parents[3]


def torch():
    return pytest.importorskip("torch", reason=_WITHOUT)


def short(name="isaac_ant", limit=LIMIT):
    return envs.make(name, engine="mujoco", time_limit=limit)


def short_ant(num_envs, seed, **options):
    """For workers: ``tests.envs.bridge.common:short_ant``."""
    from envs.bridge.torch_tasks import TorchVecTask

    return TorchVecTask(short(), num_envs, seed, **options)


def short_lab(num_envs, seed):
    from tests.envs.bridge.lab import TorchLabTask

    return TorchLabTask(short(), num_envs, seed)


class Reference(World):
    """Reference of a bridged world: its task inside the program, with the simulator's random numbers."""

    def reset(self, key, num, params):
        return self.begin(jax.random.key_data(jax.random.split(key, num))[0, 0], num, params)

    def begin(self, seed, num, params):
        core = self.task.env
        _, state = jax.vmap(core.reset, (0, None))(jax.random.split(jax.random.key(seed), num), params)
        state = state._replace(pending=jnp.ones_like(state.pending))
        zero = jnp.zeros((num, self.action_size))
        obs, state, *_ = seeded_step(core, seed, jnp.int32(0), state, zero, params)
        return obs, (state._replace(valid=jnp.ones(num, bool)), seed, jnp.int32(1))

    def advance(self, key, state, action, params):
        state, seed, clock = state
        action = jnp.where(~state.pending[:, None], action, 0.0)
        obs, state, *rest = seeded_step(self.task.env, seed, clock, state, action, params)
        return obs, (state, seed, clock + 1), *rest

    def mask(self, state):
        return self.task.env.mask(state[0])


def reference(task, native, total):
    return Reference(task._replace(env=Phantom(native.env)), total)
