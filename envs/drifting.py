"""A drifting task for people who write their own loop: one run of a `World`, with the clock in its state."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from envs.core import Step, Task
from envs.drift import DriftTruth, Realisation
from envs.patterns import pattern_index
from envs.world import DriftData, World

Array = jax.Array


class DriftState(NamedTuple):
    """Auto-reset replaces ``env``; nothing but a step advances ``clock``."""

    env: Any  # the task's own state, leading axis N
    clock: Array  # () int32, vector steps since the run began


@dataclass(frozen=True)
class Drifting:
    """``num_envs`` copies of a task under one drift, as pure ``reset`` and ``step``.

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
    world: World = field(init=False, repr=False, compare=False)
    drift: DriftData = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        pattern_index(self.pattern)
        if self.num_envs < 1 or self.total_steps % self.num_envs:
            raise ValueError(f"total_steps must be a multiple of num_envs = {self.num_envs}; got {self.total_steps}")
        world = World(self.task, self.total_steps // self.num_envs, self.segments)
        object.__setattr__(self, "world", world)
        object.__setattr__(self, "drift", world.drift(self.pattern, self.drift_seed))

    @property
    def realisation(self) -> Realisation:
        """The numbers drawn for this run."""
        return self.drift.realisation

    def params_at(self, step: Array | int) -> Any:
        """The task's parameters in force at vector step ``step``."""
        return self.world.params_at(self.drift, step)

    def truth_at(self, step: Array | int) -> DriftTruth:
        """Drift at vector step ``step``; never for a learner."""
        return self.world.truth(self.drift, step)

    def reset(self, key: Array) -> tuple[Array, DriftState]:
        """Observations (N, S) and the state at the beginning of the run."""
        obs, state = self.world.reset(key, self.num_envs, self.params_at(0))
        return obs, DriftState(state, jnp.zeros((), jnp.int32))

    def step(self, key: Array, state: DriftState, action: Array) -> Step:
        """The six values of ``autoreset_step`` with a leading axis N, for ``action`` (N, A) in [-1, 1].

        ``info["drift"]`` is the ``DriftTruth`` in force during this step, without an axis N.
        """
        chex.assert_shape(
            action,
            (self.num_envs, self.world.action_size),
            custom_message=f"action of task '{self.task.name}': (num_envs, actuators)",
        )
        now = self.truth_at(state.clock)
        *rest, info = self.world.advance(key, state.env, action, self.world.params_of(now.values))
        obs, env_state, reward, terminated, truncated = rest
        next_state = DriftState(env_state, state.clock + 1)
        return obs, next_state, reward, terminated, truncated, info | {"drift": now}
