"""Gymnax environments (1.0) as drifting tasks: fields of their parameters drift."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.registry import lookup
from envs.core import Channel, EnvSpec, Step, Task

Array = jax.Array


class _Imported:
    """A gymnax environment as an `envs.core.Env`; ``params`` are its own parameters."""

    def __init__(self, env: Any, params: Any) -> None:
        self.gymnax = env
        space, seen = env.action_space(params), env.observation_space(params)
        name = type(env).__name__
        if not hasattr(space, "low") or len(space.shape) != 1:
            raise ValueError(f"only environments with continuous actions (A,) can be imported; {name} has {space}")
        if len(getattr(seen, "shape", ())) != 1:
            raise ValueError(f"only environments that observe one flat vector can be imported; {name} observes {seen}")
        self.low, self.high = (np.broadcast_to(np.asarray(x, np.float32), space.shape) for x in (space.low, space.high))
        self.spec = EnvSpec(seen.shape[0], space.shape[0], int(params.max_steps_in_episode))

    def reset(self, key: Array, params: Any) -> tuple[Array, Any]:
        """A new episode under ``params``."""
        with jax.numpy_rank_promotion("allow"):
            obs, state = self.gymnax.reset_env(key, params)
        return jnp.asarray(obs, jnp.float32), state

    def step(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """One step without reset; actions in [-1, 1] span the environment's own range."""
        with jax.numpy_rank_promotion("allow"):
            own = self.low + 0.5 * (jnp.clip(action, -1.0, 1.0) + 1.0) * (self.high - self.low)
            obs, after, reward, terminated, info = self.gymnax.step_env(key, state, own, params)
            truncated = self.gymnax.is_truncated(after, params)
        after = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), after, state)
        terminated = jnp.asarray(terminated, bool)
        truncated = jnp.asarray(truncated, bool) & ~terminated
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        return jnp.asarray(obs, jnp.float32), after, reward, terminated, truncated, dict(info)


def from_gymnax(
    env: Any,
    params: Any = None,
    *,
    name: str | None = None,
    channels: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> Task:
    """A gymnax environment as a task; fields of its parameters drift.

    Args:
      env: with continuous actions and a flat observation.
      params: its parameters without drift; by default its own.
      name: of the task, part of the seed of its drift; by default the environment's class.
      channels: field of the parameters -> range, such as ``{"g": (5.0, 15.0)}``; without any the pattern is ``steady``.

    Raises:
      UnknownNameError: a channel that is no field of the parameters.
      ValueError: an environment with discrete actions, or whose observation is not one vector.

    >>> import gymnax  # doctest: +SKIP
    >>> task = from_gymnax(gymnax.make("Pendulum-v1")[0], channels={"g": (5.0, 15.0)})  # doctest: +SKIP
    """
    params = env.default_params if params is None else params
    fields = {field: None for field in getattr(params, "__dataclass_fields__", {})}
    drifting = []
    for field, (low, high) in channels.items():
        lookup(f"parameter of {type(env).__name__}", fields, field)
        drifting.append(Channel(field, float(low), float(high), float(getattr(params, field))))

    def apply(base: Any, values: Array) -> Any:
        return base.replace(**{channel.name: values[i] for i, channel in enumerate(drifting)})

    return Task(
        name=name or type(env).__name__.lower(),
        family="gymnax",
        env=_Imported(env, params),
        params=params,
        channels=tuple(drifting),
        apply_drift=apply,
        negative_returns=True,
        description=f"gymnax environment {type(env).__name__}",
    )
