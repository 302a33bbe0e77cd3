"""A drifting task as the training loop takes it: N copies at once, drift as data, whole stretches of drift at once."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from envs.core import Task, step_with_keys
from envs.drift import Realisation, change_points, displacement, draw, truth
from envs.patterns import pattern_index

__all__ = ["DriftData", "World"]

Array = jax.Array


class DriftData(NamedTuple):
    """Which drift a run sees; stack runs along a leading axis."""

    pattern: Array  # () int32, index into PATTERNS
    realisation: Realisation


@dataclass(frozen=True)
class World:
    """The environments of one program: a task, its horizon in vector steps, and the number of drift segments."""

    task: Task
    total: int  # vector steps of a run, a multiple of segments
    segments: int = 5

    def __post_init__(self) -> None:
        change_points(self.total, self.segments)

    @property
    def name(self) -> str:
        """The task's name; part of the evaluation key."""
        return self.task.name

    @property
    def obs_size(self) -> int:
        """S."""
        return self.task.env.spec.obs_size

    @property
    def action_size(self) -> int:
        """A."""
        return self.task.env.spec.action_size

    @property
    def time_limit(self) -> int:
        """Steps of an episode."""
        return self.task.env.spec.time_limit

    def drift(self, pattern: str, drift_seed: int) -> DriftData:
        """The drift of one run; the same realisation for every pattern and method at one seed."""
        return DriftData(jnp.int32(pattern_index(pattern)), draw(self.task, drift_seed, self.segments))

    def path(self, drift: DriftData, steps: Array) -> tuple[Array, Array]:
        """Drift values (n, D) in force at vector steps (n,) and the size (n,) of each one's change, in ranges."""

        def at(step: Array) -> tuple[Array, Array]:
            now = truth(self.task.channels, drift.pattern, drift.realisation, step, self.total, self.segments)
            return now.values, now.change

        return jax.vmap(at)(steps)

    def displacement(self, values: Array) -> Array:
        """Distance () of drift values (D,) from nominal in half ranges."""
        return displacement(self.task.channels, values)

    def params_of(self, values: Array) -> Any:
        """The task's parameters under drift values (D,)."""
        return self.task.apply_drift(self.task.params, values)

    def reset(self, key: Array, num: int, params: Any) -> tuple[Array, Any]:
        """Observations (num, S) and states of ``num`` new episodes."""
        return jax.vmap(self.task.env.reset, (0, None))(jax.random.split(key, num), params)

    def faults(self, state: Any) -> Array | None:
        """How often a simulator gave up on one of the copies in ``state``, () int32; None where none can."""
        count = getattr(self.task.env, "faults", None)
        return None if count is None else count(state)

    def step(self, key: Array, state: Any, action: Array, params: Any) -> tuple[Array, ...]:
        """Auto-resetting step of all copies.

        Returns obs (N, S) to act on, state, reward (N,), terminated (N,), truncated (N,), and the observation
        (N, S) before any reset.
        """

        def one(words: Array, state: Any, action: Array) -> tuple[Array, ...]:
            key_step, key_reset = jax.random.wrap_key_data(words)
            obs, state, reward, terminated, truncated, info = step_with_keys(
                self.task.env, key_step, key_reset, state, action, params
            )
            return obs, state, reward, terminated, truncated, info["final_observation"]

        num = action.shape[0]
        # All keys of the step from one draw: two words are a key.
        return jax.vmap(one)(jax.random.bits(key, (num, 2, 2), jnp.uint32), state, action)
