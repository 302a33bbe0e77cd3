"""MuJoCo's C engine inside a compiled program: one callback per control step for all runs and environments.

The state row is input and output, so the step is pure. Rows are float64, which JAX without 64-bit mode cannot hold, so
they are passed losslessly as pairs of uint32.
"""

from copy import copy
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.core import EnvSpec, Step
from envs.physics.batch import Engine
from envs.physics.host import Packed, on_host, usable_cores
from envs.physics.protocol import PhysicsTask

_Array = jax.Array


class CState(NamedTuple):
    """State of one episode, with a fault count that outlives it."""

    row: _Array  # (2 R,) uint32: MuJoCo's state and the task's memory, float64 as pairs of words
    obs: _Array  # (S,) float32, the newest observation
    time: _Array  # () int32, control steps of this episode; -1 after the only one of an evaluation
    faults: _Array  # () int32, simulations of this copy that MuJoCo reported as bad, across resets


class CEnv:
    """A physics task on MuJoCo's C engine, behind the interface of `envs.core.Env`.

    A copy that MuJoCo reports as bad (a number that is not finite, an error) ends its episode by truncation with
    reward 0 and its last good observation as successor; ``state.faults`` counts it.
    """

    _once = False  # whether a copy has one episode, and is not simulated after it

    def __init__(self, task: PhysicsTask) -> None:
        self.task = task
        self.about = {"engine": "mujoco"}  # for a study's manifest
        # One XLA device per core also means one Batch per core.
        self.engine = Engine(task, max(1, usable_cores() // len(jax.local_devices())))
        self.spec = EnvSpec(task.obs_size, task.action_size, task.time_limit)
        self._columns = len(task.params)
        start, step = self._words + self.spec.obs_size, self._words + 2 * self.spec.obs_size + 4
        self._start = on_host(self._host_start, start)
        self._step = on_host(partial(self._host_step, False), step)
        self._step_and_reset = on_host(partial(self._host_step, True), step)

    def reset(self, key: _Array, params: Any) -> tuple[_Array, CState]:
        inputs = Packed.traced(None, Packed.scalars(params), self.task.noise(key))
        words = self._start(inputs[None])[0]
        row, obs = words[: self._words], Packed.floats_of(words[self._words :])
        return obs, CState(row, obs, jnp.int32(0), jnp.int32(0))

    def step(self, key: _Array, state: CState, action: _Array, params: Any) -> Step:
        """One control step under ``action`` (A,) in [-1, 1]."""
        del key  # the physics has no noise
        return self._advance(state, action, params, None)

    def autoreset(self, key_step: _Array, key_reset: _Array, state: CState, action: _Array, params: Any) -> Step:
        """`envs.core.autoreset_step` with the new start computed in the callback of the step."""
        del key_step
        if self._once:
            return self._advance(state, action, params, None)
        return self._advance(state, action, params, self.task.noise(key_reset))

    def for_evaluation(self) -> "CEnv":
        """The same environment with one episode of every copy, as some end long before others."""
        env = copy(self)
        env._once = True
        return env

    def faults(self, state: CState) -> _Array:
        """() int32, simulations that MuJoCo reported as bad, over all copies in ``state``."""
        return jnp.sum(state.faults)

    @property
    def _words(self) -> int:
        return 2 * self.engine.row_size

    def _advance(self, state: CState, action: _Array, params: Any, noise: _Array | None) -> Step:
        chex.assert_shape(action, (self.spec.action_size,))  # the host splits the record by position
        s = self.spec.obs_size
        time = state.time.astype(jnp.float32)[None]
        floats = [Packed.scalars(params), time, action] + ([] if noise is None else [noise])
        call = self._step if noise is None else self._step_and_reset
        words = call(Packed.traced(state.row, *floats)[None])[0]
        row, out = words[: self._words], Packed.floats_of(words[self._words :])
        obs, final = out[:s], out[s : 2 * s]
        reward, terminated, truncated, bad = out[2 * s :]
        final = jnp.where(bad > 0, state.obs, final)
        if noise is None:
            obs, time = final, state.time + 1
            if self._once:
                time = jnp.where((state.time < 0) | (terminated + truncated > 0), -1, time)
        else:
            time = jnp.where(terminated + truncated > 0, 0, state.time + 1)
        state = CState(row, obs, time, state.faults + bad.astype(jnp.int32))
        return obs, state, reward, terminated > 0, truncated > 0, {"final_observation": final}

    # Host side: (n, words) in, (n, words) out. A record's floats: parameters, then time and action, then noise.

    def _host_start(self, words: np.ndarray) -> np.ndarray:
        _, inputs = Packed.split(words, 0)
        p = self._columns
        obs, rows = self.engine.start(inputs[:, p:], self.engine.params(inputs[:, :p].T))
        return Packed.join(rows, obs.astype(np.float32))

    def _host_step(self, reset: bool, words: np.ndarray) -> np.ndarray:
        before, inputs = Packed.split(words, self.engine.row_size)
        s, a, p = self.spec.obs_size, self.spec.action_size, self._columns
        params, time, rest = self.engine.params(inputs[:, :p].T), inputs[:, p], inputs[:, p + 1 :]
        ended = time < 0
        acting = np.flatnonzero(~ended) if ended.any() else None
        obs, reward, terminated, rows, bad = self.engine.step(before, rest[:, :a], params, acting)
        if acting is not None:
            reward[ended], terminated[ended], rows[ended] = 0.0, False, before[ended]
        truncated = time + 1 >= self.task.time_limit
        if bad.any():
            reward[bad], terminated[bad], truncated[bad] = 0.0, False, True
            rows[bad] = before[bad]
        out = np.empty((rows.shape[0], 2 * s + 4), np.float32)
        out[:, :s] = out[:, s : 2 * s] = obs
        for column, values in enumerate((reward, terminated, truncated & ~terminated, bad), 2 * s):
            out[:, column] = values
        if reset:
            over = np.flatnonzero(terminated | truncated)
            if over.size:
                fresh = type(params)(*(column[over] for column in params))
                out[over, :s], rows[over] = self.engine.start(rest[over, a:], fresh)
        return Packed.join(rows, out)
