"""Drifting tasks as Brax environments, and Brax environments as drifting tasks.

`to_brax` stores the drift clock in ``state.info``, which Brax's AutoResetWrapper does not change.
"""

from typing import Any

import jax
import jax.numpy as jnp

from envs.adapters.imported import RANGES, Apply, Library, imported, innermost
from envs.core import Task, check_continuous, check_unmasked, sound
from envs.physics.fields import Factor, Field
from envs.timeline import EVEN
from envs.world import Drifting

try:
    from brax.envs import Env as BraxEnv  # type: ignore
    from brax.envs import State  # type: ignore
    from brax.envs.wrappers.training import (  # type: ignore
        AutoResetWrapper,
        DomainRandomizationVmapWrapper,
        EpisodeWrapper,
        VmapWrapper,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"envs.adapters.brax needs Brax ({error}): pip install '.[brax]' in a clone", name=error.name
    ) from None

Array = jax.Array


class DriftingBraxEnv(BraxEnv):
    """ONE copy of a drifting task behind Brax's ``reset(rng)`` and ``step(state, action)``; see `to_brax`."""

    def __init__(self, drifting: Drifting, truncate: bool) -> None:
        self.drifting, self.truncate = drifting, truncate

    @property
    def observation_size(self) -> int:
        return self.drifting.task.env.spec.obs_size

    @property
    def action_size(self) -> int:
        return self.drifting.task.env.spec.action_size

    @property
    def backend(self) -> str:
        """Family of the task; Brax's own backends are not used."""
        return self.drifting.task.family

    def reset(self, rng: Array) -> State:
        """Begin a run: a new episode with the drift clock at 0; ``rng`` is a typed or a raw key."""
        if not jnp.issubdtype(rng.dtype, jax.dtypes.prng_key):
            rng = jax.random.wrap_key_data(rng)
        key_start, key_run = jax.random.split(rng)
        clock, zero = jnp.zeros((), jnp.int32), jnp.zeros(())
        obs, state = self.drifting.task.env.reset(key_start, self.drifting.params_at(clock))
        # Raw words for every kind of key, because some of Brax's code cannot hold typed keys.
        info = {
            "rng": jax.random.bits(key_run, (2,), jnp.uint32),
            "drift_step": clock,
            "drift": self.drifting.truth_at(clock).values,
        }
        return State(state, obs, zero, zero, {}, info | {"truncation": zero, "time_out": zero})

    def step(self, state: State, action: Array) -> State:
        """One step with ``action`` (A,) in [-1, 1] under the drift at ``state.info["drift_step"]``."""
        clock = state.info["drift_step"]
        key, key_step = jax.random.split(jax.random.wrap_key_data(state.info["rng"], impl="threefry2x32"))
        env, params, inner = self.drifting.task.env, self.drifting.params_at(clock), state.pipeline_state
        obs, after, reward, terminated, truncated, _ = sound(env, env.step, key_step, inner, action, params)
        truncated = truncated & self.truncate
        over = truncated.astype(jnp.float32)
        info = state.info | {
            "rng": jax.random.key_data(key),
            "drift_step": clock + 1,
            "drift": self.drifting.truth_at(clock).values,
        }
        info |= {"truncation": over, "time_out": over}
        done = (terminated | truncated).astype(jnp.float32)
        return state.replace(pipeline_state=after, obs=obs, reward=reward, done=done, info=info)  # type: ignore


def to_brax(
    task: Task,
    pattern: str,
    total_steps: int,
    drift_seed: int = 0,
    segments: int = 5,
    num_envs: int = 1,
    truncate: bool = True,
    onset: float = 0.0,
    changes: str = EVEN,
) -> DriftingBraxEnv:
    """A drifting task as a Brax environment with one copy, to be batched by Brax's wrappers.

    ``info`` of a state: ``drift_step`` () int32, the clock, which continues across episodes until ``reset``; ``drift``
    (D,), the values in force during the last step, not for learners; ``truncation`` and ``time_out`` () of
    the task's time limit; ``rng``.

    Args:
      total_steps: horizon of the drift in steps summed over copies; a multiple of ``num_envs * segments``.
      num_envs: planned number of copies. The clock of each copy runs for ``total_steps / num_envs`` steps.
      truncate: whether the task's time limit ends episodes; ``False`` leaves that to Brax's EpisodeWrapper, which
        flags truncations correctly (``episode_length=task.env.spec.time_limit``).
      onset, changes: begin of the drift and lengths of its segments, see `envs.timeline.Timeline`.

    Raises:
      UnknownNameError, ValueError: an unknown pattern or an invalid number.
    """
    check_unmasked(task, "Brax")
    check_continuous(task, "Brax")
    if not truncate and hasattr(task.env, "faults"):
        raise ValueError(f"task '{task.name}' truncates failed simulations, so truncate must be True; got False")
    drifting = Drifting(task, pattern, total_steps, drift_seed, segments, num_envs, onset, changes)
    return DriftingBraxEnv(drifting, truncate)


_BRAX = Library("Brax", (AutoResetWrapper, DomainRandomizationVmapWrapper, EpisodeWrapper, VmapWrapper), "sys")

# Every quantity is stored twice: for Brax's own pipelines and for its MJX pipeline.
_FACTORS: dict[str, Factor] = {
    "body_mass": Factor(tuple(map(Field, ("link.inertia.mass", "link.inertia.i", "body_mass", "body_inertia")))),
    "joint_friction": Factor(tuple(map(Field, ("dof.damping", "dof_damping", "dof_frictionloss")))),
    "gravity": Factor(tuple(map(Field, ("gravity", "opt.gravity")))),
}
#: Drifting parameters without ``apply``: factors on every body, every joint, and gravity.
CHANNELS = {name: RANGES[name] for name in _FACTORS}


def from_brax(
    env: BraxEnv,
    name: str | None = None,
    channels: Any = (),
    apply: Apply | None = None,
    time_limit: int = 1000,
) -> Task:
    """A Brax environment as a task whose physics drifts; register it with ``envs.TASKS[name] = task``.

    Constants derived from masses are not updated. Brax's generalized pipeline computes the mass matrix one physics step
    ahead, so a new mass acts one physics step late; other changes act immediately.

    Args:
      env: not yet batched and without Brax's episode and auto-reset wrappers; other wrappers are kept.
      name: of the task, part of the seed of its drift; by default the environment's class.
      channels: names of `CHANNELS`, each perhaps with a range, ``{"body_mass": (0.5, 1.5)}`` or
        ``["body_mass=0.5:1.5"]``: factors on the fields of that name. Without channels the pattern is ``steady``.
      apply: ``(sys, values (D,)) -> sys``, traced, for ``channels`` that are custom `Channel` objects.
      time_limit: steps of an episode before it is truncated.

    Raises:
      UnknownNameError: a channel that is not in `CHANNELS`, without ``apply``.
      ValueError: an environment without ``sys``, with a wrapper that does not fit, or whose physics ignores a channel.
    """
    inner: Any = innermost(_BRAX, env)

    def factor_of(channel: str) -> Factor:
        reason = {"joint_friction": "has none", "body_mass": "fixes them at a reset"}.get(channel)
        if reason and inner.backend in ("spring", "positional"):
            raise ValueError(f"'{channel}' drifts on backends generalized and mjx; '{inner.backend}' {reason}")
        return _FACTORS[channel]

    return imported(_BRAX, env, name, channels, CHANNELS, factor_of, apply, time_limit)
