"""MuJoCo's physics inside the compiled program itself: a physics task on MJX, without a host callback.

How its physics differs from the C engine's stands in `envs.physics.mjx_stepper`. From equal states, one control step of
random actions on Gymnasium's locomotion tasks differs by at most 2e-4 of 1 + |observation|, on Humanoid, whose solver
is another, by 6e-3.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from envs.core import EnvSpec, Step
from envs.physics.mjx_stepper import Stepper, as_mjx_needs
from envs.physics.protocol import PhysicsTask, check, expect

_Array = jax.Array

_TOO_LARGE = 1e10  # MuJoCo's mjMAXVAL, beyond which its C engine calls a position, velocity or acceleration bad


class MjxState(NamedTuple):
    """One episode, and what outlives it: all that MJX needs to go on, which is far less than its ``Data``."""

    qpos: _Array  # (nq,) metres and radians, about the origin that the task chooses (`PhysicsTask.recentred`)
    qvel: _Array  # (nv,)
    warmstart: _Array  # (nv,) accelerations, where the solver starts
    memory: _Array  # (M,) what the task keeps
    obs: _Array  # (S,) float32, the newest observation
    time: _Array  # () int32, control steps of this episode
    faults: _Array  # () int32, times the simulation of this copy was given up since it was created; survives resets


class MjxEnv:
    """A physics task on MJX, behind the interface of `envs.core.Env`; float32.

    A copy with a number that is not finite (or beyond MuJoCo's own limit) ends its episode by truncation with reward 0
    and its last good observation as successor; ``state.faults`` counts it.
    """

    def __init__(self, task: PhysicsTask, stepper: Callable[[PhysicsTask], Stepper] = Stepper) -> None:
        check(task)
        self.task = task
        self.stepper = stepper(task)
        self.about = self.stepper.about  # for a study's manifest
        self.spec = EnvSpec(task.obs_size, task.action_size, task.time_limit)

    def reset(self, key: _Array, params: Any) -> tuple[_Array, MjxState]:
        """A new episode."""
        task, params = self.task, _float32(params)
        qpos, qvel, memory = task.start(jnp, task.noise(key), params)
        with as_mjx_needs():
            physics = self.stepper.at_rest(qpos, qvel)
        obs, memory = task.opening(jnp, physics, memory, params)
        expect(task, "opening", (), obs, memory)
        return obs, MjxState(qpos, qvel, jnp.zeros_like(qvel), memory, obs, jnp.int32(0), jnp.int32(0))

    def step(self, key: _Array, state: MjxState, action: _Array, params: Any) -> Step:
        """One control step under ``action`` (A,) in [-1, 1]."""
        del key  # the physics has no noise
        chex.assert_shape(action, (self.spec.action_size,))
        task, params = self.task, _float32(params)
        with as_mjx_needs():
            physics, drive, warmstart, full = self.stepper.advance(
                state.qpos,
                state.qvel,
                state.warmstart,
                params,
                lambda now: task.control(jnp, now, state.memory, action, params),
            )
        obs, reward, terminated, memory = task.outcome(jnp, physics, state.memory, action, drive, params)
        expect(task, "outcome", (), obs, memory)
        numbers = jnp.concatenate([physics.qpos, physics.qvel, warmstart])
        good = jnp.all(jnp.abs(numbers) < _TOO_LARGE) & jnp.all(jnp.isfinite(obs)) & jnp.isfinite(reward)
        good &= ~full
        qpos, memory = task.recentred(jnp, physics.qpos, memory)
        time = state.time + 1
        after = MjxState(qpos, physics.qvel, warmstart, memory, obs, time, state.faults)
        state = jax.tree.map(lambda new, old: jnp.where(good, new, old), after, state)
        state = state._replace(time=time, faults=state.faults + ~good)
        terminated = good & terminated
        truncated = ~terminated & (~good | (time >= task.time_limit))
        reward = jnp.where(good, reward, 0.0)
        return state.obs, state, reward, terminated, truncated, {"final_observation": state.obs}

    def autoreset(self, key_step: _Array, key_reset: _Array, state: MjxState, action: _Array, params: Any) -> Step:
        """`envs.core.autoreset_step` that keeps the count of faults."""
        _, state, reward, terminated, truncated, info = self.step(key_step, state, action, params)
        _, fresh = self.reset(key_reset, params)
        fresh = fresh._replace(faults=state.faults)
        state = jax.tree.map(lambda new, old: jnp.where(terminated | truncated, new, old), fresh, state)
        return state.obs, state, reward, terminated, truncated, info

    def faults(self, state: MjxState) -> _Array:
        """() int32, simulations that were given up, over all copies in ``state``."""
        return jnp.sum(state.faults)


def _float32(params: Any) -> Any:
    return jax.tree.map(lambda value: jnp.asarray(value, jnp.float32), params)
