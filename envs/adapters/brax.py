"""Drifting tasks as Brax environments, and Brax environments as drifting tasks.

`to_brax` keeps the drift clock in ``state.info``, which Brax's AutoResetWrapper leaves alone.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import Env as BraxEnv
from brax.envs import State, Wrapper
from brax.envs.wrappers.training import (
    AutoResetWrapper,
    DomainRandomizationVmapWrapper,
    EpisodeWrapper,
    VmapWrapper,
)

from aesjax.registry import lookup
from envs.core import Channel, EnvSpec, Step, Task, check_unmasked, replaced, sound
from envs.world import Drifting

Array = jax.Array


class DriftingBraxEnv(BraxEnv):
    """ONE copy of a drifting task behind Brax's ``reset(rng)`` and ``step(state, action)``; see `to_brax`."""

    def __init__(self, drifting: Drifting, truncate: bool) -> None:
        self.drifting, self.truncate = drifting, truncate

    @property
    def observation_size(self) -> int:
        """S."""
        return self.drifting.task.env.spec.obs_size

    @property
    def action_size(self) -> int:
        """A."""
        return self.drifting.task.env.spec.action_size

    @property
    def backend(self) -> str:
        """The task's family; Brax's own backends have no part in it."""
        return self.drifting.task.family

    def reset(self, rng: Array) -> State:
        """The beginning of a run: a new episode with the drift clock at 0; ``rng`` is a typed or a raw key."""
        if not jnp.issubdtype(rng.dtype, jax.dtypes.prng_key):
            rng = jax.random.wrap_key_data(rng)
        key_start, key_run = jax.random.split(rng)
        clock, zero = jnp.zeros((), jnp.int32), jnp.zeros(())
        obs, state = self.drifting.task.env.reset(key_start, self.drifting.params_at(clock))
        # Raw words, whatever kind of key came in: some of Brax's code cannot hold typed keys.
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
) -> DriftingBraxEnv:
    """A drifting task as a Brax environment of one copy, to be batched by Brax's wrappers.

    ``info`` of a state: ``drift_step`` () int32, the clock, which counts on across episodes until ``reset``; ``drift``
    (D,), the values in force during the step that led here, never for a learner; ``truncation`` and ``time_out`` () of
    the task's time limit; ``rng``.

    Args:
      total_steps: horizon of the drift in steps summed over copies; a multiple of ``num_envs * segments``.
      num_envs: how many copies there will be. Each copy's own clock runs for ``total_steps / num_envs`` steps.
      truncate: whether the task's time limit ends episodes; ``False`` leaves that to Brax's EpisodeWrapper, which
        flags an end by time properly (``episode_length=task.env.spec.time_limit``).

    Raises:
      UnknownNameError, ValueError: a pattern or number that does not exist or fit.
    """
    check_unmasked(task, "Brax")
    if not truncate and hasattr(task.env, "faults"):
        raise ValueError(f"task '{task.name}' truncates failed simulations, so truncate must be True; got False")
    return DriftingBraxEnv(Drifting(task, pattern, total_steps, drift_seed, segments, num_envs), truncate)


#: Drifting parameters of an imported environment without an ``apply``: factors of its system's values.
CHANNELS: dict[str, Channel] = {
    "body_mass": Channel("body_mass", 0.7, 1.3, 1.0),  # every body's mass and inertia
    "joint_friction": Channel("joint_friction", 0.5, 1.5, 1.0),  # damping and dry friction of every joint
    "gravity": Channel("gravity", 0.7, 1.3, 1.0),
}

_KIND = "drift channel of a Brax environment"
_TRAINING = (AutoResetWrapper, DomainRandomizationVmapWrapper, EpisodeWrapper, VmapWrapper)

# Every quantity twice: Brax's own pipelines read one place, its MJX pipeline the other.
_FIELDS: dict[str, tuple[str, ...]] = {
    "body_mass": ("link.inertia.mass", "link.inertia.i", "body_mass", "body_inertia", "body_subtreemass"),
    "joint_friction": ("dof.damping", "dof_damping", "dof_frictionloss"),
    "gravity": ("gravity", "opt.gravity"),
}


def _scaled(channels: Sequence[Channel], sys: Any, values: Array) -> Any:
    """``sys`` with the fields of each channel multiplied by its value.

    Constants derived from masses stay. Brax's generalized pipeline leaves a mass matrix for its next physics step, so
    there a new mass acts one physics step late; everything else acts at once.
    """
    for channel, factor in zip(channels, values, strict=True):
        sys = sys.tree_replace({path: attrgetter(path)(sys) * factor for path in _FIELDS[channel.name]})
    return sys


def _with_sys(env: BraxEnv, sys: Any) -> BraxEnv:
    """A copy of ``env`` and its wrappers whose innermost environment has ``sys``; ``env`` itself is not touched."""
    env = copy.copy(env)
    if isinstance(env, Wrapper):
        env.env = _with_sys(env.env, sys)
    else:
        env.sys = sys  # type: ignore
    return env


class ImportedState(NamedTuple):
    """One episode of an imported environment."""

    brax: State
    time: Array  # () int32, steps of this episode


class _Imported:
    """A Brax environment as an `envs.core.Env`; ``params`` is the flat vector of drift values (D,)."""

    def __init__(self, env: BraxEnv, apply: Callable[[Any, Array], Any] | None, time_limit: int) -> None:
        self.brax, self.apply = env, apply
        with jax.numpy_rank_promotion("allow"):
            obs = jax.eval_shape(env.reset, jax.ShapeDtypeStruct((2,), np.uint32)).obs
        if not hasattr(obs, "ndim") or obs.ndim != 1:
            raise ValueError(f"only environments that observe one flat vector can be imported; this one observes {obs}")
        self.spec = EnvSpec(obs.shape[0], env.action_size, time_limit)

    def _drifted(self, params: Array) -> BraxEnv:
        return self.brax if self.apply is None else _with_sys(self.brax, self.apply(self.brax.unwrapped.sys, params))  # type: ignore

    def reset(self, key: Array, params: Array) -> tuple[Array, ImportedState]:
        """A new episode of the environment under ``params``."""
        with jax.numpy_rank_promotion("allow"):  # Brax relies on it
            state = self._drifted(params).reset(jax.random.key_data(key))
        state = jax.tree.map(jnp.asarray, state)
        return state.obs.astype(jnp.float32), ImportedState(state, jnp.zeros((), jnp.int32))

    def step(self, key: Array, state: ImportedState, action: Array, params: Array) -> Step:
        """One step; ``done`` is ``terminated`` unless ``info["truncation"]`` is set, and the metrics are the info."""
        del key  # a Brax environment keeps its own in its state
        # With dictionaries of its own, because some environments write into those they are given.
        before: Any = state.brax.replace(metrics=dict(state.brax.metrics), info=dict(state.brax.info))  # type: ignore
        with jax.numpy_rank_promotion("allow"):
            after = self._drifted(params).step(before, jnp.clip(action, -1.0, 1.0))
        # Some environments return Python numbers where reset returned arrays.
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state.brax)
        # As in Brax's EpisodeWrapper: an end by time has both `done` and `truncation`, a failure `done` alone.
        time, late = state.time + 1, jnp.asarray(after.info.get("truncation", 0)) > 0
        terminated = (after.done > 0) & ~late
        truncated = (late | (time >= self.spec.time_limit)) & ~terminated
        obs, reward = after.obs.astype(jnp.float32), after.reward.astype(jnp.float32)
        return obs, ImportedState(after, time), reward, terminated, truncated, dict(after.metrics)


def from_brax(
    env: BraxEnv,
    name: str,
    channels: Sequence[str | Channel] = ("body_mass", "joint_friction"),
    apply: Callable[[Any, Array], Any] | None = None,
    time_limit: int = 1000,
) -> Task:
    """A Brax environment as a task whose physics drifts. Registering it is the caller's: ``envs.TASKS[name] = task``.

    Args:
      env: not yet batched and without Brax's episode and auto-reset wrappers; other wrappers are kept.
      name: of the task; part of the seed of its drift.
      channels: names of `CHANNELS`, or channels. Without ``apply`` they are factors on the fields of that name. An
        empty sequence, for an environment without ``sys``, gives a task without drift: pattern ``steady`` alone.
      apply: ``(sys, values (D,)) -> sys``, traced, for channels of one's own.
      time_limit: steps of an episode before it is truncated.

    Raises:
      UnknownNameError: a channel that is not in `CHANNELS`, without ``apply``.
      ValueError: an environment without ``sys``, with a wrapper that does not fit, or whose physics ignores a channel.
    """
    inner: Any = env
    while isinstance(inner, Wrapper):
        if isinstance(inner, _TRAINING):
            raise ValueError(f"import the environment without Brax's training wrappers; got {type(inner).__name__}")
        inner = inner.env
    if not hasattr(inner, "action_size"):
        raise ValueError(f"only a Brax environment can be imported; got {type(inner).__name__}")
    drifting = tuple(c if isinstance(c, Channel) else lookup(_KIND, CHANNELS, c) for c in channels)
    if drifting and not hasattr(inner, "sys"):
        raise ValueError(f"channels drift a Brax system; {type(inner).__name__} has no 'sys', so channels must be ()")
    if apply is None:
        for channel in drifting:
            _check(inner, channel)
    change = apply or partial(_scaled, drifting)
    return Task(
        name=name,
        family="brax",
        env=_Imported(env, change if drifting else None, time_limit),
        params=np.concatenate([np.zeros(0, np.float32), *(np.full(c.size, c.nominal, np.float32) for c in drifting)]),
        channels=drifting,
        apply_drift=replaced,
        negative_returns=True,
        description=f"Brax environment {type(inner).__name__}" + " with drifting physics" * bool(drifting),
    )


def _check(env: Any, channel: Channel) -> None:
    """Refuse a channel that would change nothing."""
    fields = lookup(_KIND, _FIELDS, channel.name)
    if channel.size != 1:
        raise ValueError(f"channel '{channel.name}' is a factor and has size 1; got {channel.size}")
    reason = {"joint_friction": "has none", "body_mass": "fixes them at a reset"}.get(channel.name)
    if reason and env.backend in ("spring", "positional"):
        raise ValueError(f"'{channel.name}' drifts on backends generalized and mjx; '{env.backend}' {reason}")
    if not any(np.any(np.asarray(attrgetter(path)(env.sys)) != 0) for path in fields):
        raise ValueError(f"channel '{channel.name}' would change nothing: {type(env).__name__} has only zeros there")
