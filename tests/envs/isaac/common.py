"""Shared parts of the Isaac tests: parameters, runs on either engine, draws of starts."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.isaac.base import IsaacParams
from envs.physics import build
from envs.physics.batch import Engine


def params_of(n, gravity=1.0, joint_damping=1.0):
    """Parameters with arrays (n,)."""
    return IsaacParams(np.full(n, gravity), np.full(n, joint_damping))


def noise_of(task, n, seed=0):
    """Draws (n, K) for n starts."""
    return np.asarray(jax.vmap(task.noise)(jax.random.split(jax.random.key(seed), n)), np.float64)


def random_actions(task, steps, n, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, n, task.action_size))


@functools.cache
def compiled(task, engine):
    """The task on MJX or Warp and its compiled step of many copies."""
    env = build(task, engine)
    return env, jax.jit(jax.vmap(env.step, in_axes=(None, 0, 0, None)))


def mjx_run(task, actions, seed=0, gravity=1.0, joint_damping=1.0, engine="mjx"):
    """`run` on MJX or Warp, from the same starts."""
    env, step = compiled(task, engine)
    params = IsaacParams(jnp.float32(gravity), jnp.float32(joint_damping))
    keys = jax.random.split(jax.random.key(seed), actions.shape[1])
    _, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    found = []
    for action in actions:
        obs, state, reward, terminated, *_ = step(None, state, jnp.asarray(action, jnp.float32), params)
        found.append((obs, reward, terminated))
    return Run(*(np.array(column) for column in zip(*found, strict=True)))


def starts(task, n=10_000, seed=3):
    """n draws of a start."""
    return task.start(np, noise_of(task, n, seed), params_of(n))


class Stepped:
    """``n`` episodes on the C engine, from one start or from given positions."""

    def __init__(self, task, n=1, seed=0, **factors):
        self.task, self.engine, self.params = task, Engine(task), params_of(n, **factors)
        self.obs, self.rows = self.engine.start(noise_of(task, n, seed), self.params)

    @property
    def qpos(self):
        return self.rows[:, self.engine.positions]

    @property
    def qvel(self):
        return self.rows[:, self.engine.velocities]

    def step(self, action):
        found = self.engine.step(self.rows, action, self.params)
        self.obs, self.rows = found.obs, found.rows
        return found


class Run(NamedTuple):
    """Control steps of n copies without resets, leading axes (steps, n)."""

    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray


def run(task, actions, gravity=1.0, joint_damping=1.0):
    """Play ``actions`` (steps, n, A) on the C engine."""
    stepped = Stepped(task, actions.shape[1], gravity=gravity, joint_damping=joint_damping)
    steps = [stepped.step(action) for action in actions]
    return Run(*(np.array([getattr(step, name) for step in steps]) for name in Run._fields))
