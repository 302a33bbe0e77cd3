"""A task of the family on a bare C engine, and the same episode on MJX."""

import jax
import jax.numpy as jnp
import numpy as np

from envs.isaac.base import IsaacParams
from envs.physics.batch import Engine
from envs.physics.mjx_engine import MjxEnv, MjxState


def params_of(n, gravity=1.0, joint_damping=1.0):
    return IsaacParams(np.full(n, gravity), np.full(n, joint_damping))


def draws(task, n, seed=0):
    """(n, K) of the task's own noise."""
    return np.asarray(jax.vmap(task.noise)(jax.random.split(jax.random.key(seed), n)), np.float64)


class Stepped:
    """``n`` episodes on the C engine, from one start or from given positions."""

    def __init__(self, task, n=1, seed=0, **factors):
        self.task, self.engine, self.params = task, Engine(task), params_of(n, **factors)
        self.obs, self.rows = self.engine.start(draws(task, n, seed), self.params)

    @property
    def qpos(self):
        return self.rows[:, self.engine.positions]

    @property
    def qvel(self):
        return self.rows[:, self.engine.velocities]

    @property
    def memory(self):
        return self.rows[:, self.engine.default.size :]

    def step(self, action):
        found = self.engine.step(self.rows, action, self.params)
        self.obs, self.rows = found.obs, found.rows
        return found

    def along(self, actions):
        """Positions (T, n, nq) under ``actions`` (T, n, A)."""
        return np.array([(self.step(action), self.qpos.copy())[1] for action in actions])


def actions_of(task, steps, n, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, n, task.action_size))


def largest_difference_from_mjx(stepped, steps):
    """Of the observations of both engines from the same state under the same random actions, over ``steps``."""
    task, n = stepped.task, len(stepped.rows)
    env, params = MjxEnv(task), IsaacParams()
    single = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
    nothing = jnp.zeros(n, jnp.int32)
    state = MjxState(
        *(single(x) for x in (stepped.qpos, stepped.qvel, 0 * stepped.qvel, stepped.memory, stepped.obs)),
        nothing,
        nothing,
    )
    actions = actions_of(task, steps, n)
    step = lambda s, a: jax.vmap(lambda s, a: env.step(None, s, a, params)[:2])(s, a)[::-1]  # noqa: E731
    theirs = np.asarray(jax.jit(lambda s, a: jax.lax.scan(step, s, a)[1])(state, single(actions)))
    return max(np.abs(stepped.step(action).obs - obs).max() for action, obs in zip(actions, theirs, strict=True))
