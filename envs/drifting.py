"""A drifting task for people who write their own loop: parallel copies, auto-reset, a clock above both."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from envs.core import Step, Task, autoreset_step
from envs.drift import DriftTruth, Realisation, change_points, draw, drifted_params, pattern_index, truth

__all__ = ["DriftState", "Drifting"]

Array = jax.Array


class DriftState(NamedTuple):
    """Auto-reset replaces ``env``; nothing but a step advances ``clock``."""

    env: Any  # the task's own state, leading axis N
    clock: Array  # () int32, vector steps since the run began


@dataclass(frozen=True)
class Drifting:
    """``num_envs`` copies of a task under one drift, as pure ``reset`` and ``step``.

    The training loop calls ``drifted_params`` and ``autoreset_step`` itself; this class is the same two
    calls.

    >>> import envs, jax
    >>> env = Drifting(envs.make("toy"), "abrupt", total_steps=1000)
    >>> obs, state = env.reset(jax.random.key(0))
    >>> obs, state, reward, *_ = env.step(jax.random.key(1), state, jax.numpy.zeros((1, 2)))
    """

    task: Task
    pattern: str  # a name of PATTERNS
    total_steps: int  # horizon in environment steps, summed over copies; a multiple of num_envs * segments
    drift_seed: int = 0
    segments: int = 5
    num_envs: int = 1  # N
    realisation: Realisation = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        pattern_index(self.pattern)
        if self.num_envs < 1 or self.total_steps % self.num_envs:
            raise ValueError(f"total_steps must be a multiple of num_envs = {self.num_envs}; got {self.total_steps}")
        change_points(self._total, self.segments)
        object.__setattr__(self, "realisation", draw(self.task, self.drift_seed, self.segments))

    @property
    def _total(self) -> int:
        return self.total_steps // self.num_envs

    def params_at(self, step: Array | int) -> Any:
        """The task's parameters in force at vector step ``step``."""
        index = pattern_index(self.pattern)
        return drifted_params(self.task, index, self.realisation, step, self._total, self.segments)

    def truth_at(self, step: Array | int) -> DriftTruth:
        """What drift is at vector step ``step``; never for a learner."""
        index = pattern_index(self.pattern)
        return truth(self.task.channels, index, self.realisation, step, self._total, self.segments)

    def reset(self, key: Array) -> tuple[Array, DriftState]:
        """Observations (N, O) and the state at the beginning of the run."""
        start = jax.vmap(self.task.env.reset, in_axes=(0, None))
        obs, state = start(jax.random.split(key, self.num_envs), self.params_at(0))
        return obs, DriftState(state, jnp.zeros((), jnp.int32))

    def step(self, key: Array, state: DriftState, action: Array) -> Step:
        """The six values of ``autoreset_step`` with a leading axis N, for ``action`` (N, A) in [-1, 1].

        ``info["drift"]`` is the ``DriftTruth`` in force during this step, without an axis N.
        """
        params = self.params_at(state.clock)
        keys = jax.random.split(key, self.num_envs)
        advance = jax.vmap(lambda k, s, a: autoreset_step(self.task.env, k, s, a, params))
        obs, env_state, reward, terminated, truncated, info = advance(keys, state.env, action)
        next_state = DriftState(env_state, state.clock + 1)
        return obs, next_state, reward, terminated, truncated, info | {"drift": self.truth_at(state.clock)}
