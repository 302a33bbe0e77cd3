"""Gymnax environments (1.0) as drifting tasks whose parameters drift."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.registry import lookup
from envs.core import Channel, EnvSpec, Step, Task, owned
from envs.physics.channels import ranges_of, texts_of

Array = jax.Array
_LIMIT = "max_steps_in_episode"  # gymnax's name of the time limit


class _Imported:
    """A gymnax environment as an `envs.core.Env`; ``params`` are its parameters."""

    def __init__(self, env: Any, params: Any) -> None:
        self.gymnax = env
        from gymnax.environments.spaces import Box, Discrete  # pyright: ignore[reportMissingImports]

        space, seen = env.action_space(params), env.observation_space(params)
        name = type(env).__name__
        discrete, self.places = isinstance(space, Discrete), seen.n if isinstance(seen, Discrete) else 0
        if not discrete and (not isinstance(space, Box) or len(space.shape) != 1):
            raise ValueError(f"only Discrete actions or continuous ones (A,) can be imported; {name} has {space}")
        if not self.places and not isinstance(seen, Box):
            raise ValueError(f"only observations of a Box or Discrete can be imported; {name} observes {seen}")
        self.choice = space.dtype if discrete else None  # type of a discrete action
        if not discrete:
            low, high = (np.broadcast_to(np.asarray(x, np.float32), space.shape) for x in (space.low, space.high))
            if not (np.isfinite(high - low) & (low < high)).all():
                raise ValueError(f"actions must have finite bounds, low < high, to be scaled to; {name} has {space}")
            self.low, self.high = low, high
        actions = space.n if isinstance(space, Discrete) else space.shape[0]
        self.spec = EnvSpec(self.places or int(np.prod(seen.shape)), actions, int(getattr(params, _LIMIT)), discrete)

    def _seen(self, obs: Any) -> Array:
        """Observation (S,), flattened, or one-hot if it is Discrete."""
        if self.places:
            return jax.nn.one_hot(obs, self.places, dtype=jnp.float32)
        return jnp.asarray(obs, jnp.float32).reshape(-1)

    def reset(self, key: Array, params: Any) -> tuple[Array, Any]:
        """A new episode under ``params``."""
        with jax.numpy_rank_promotion("allow"):
            obs, state = owned(self.gymnax.reset_env(key, params))
        return self._seen(obs), state

    def step(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """One step without reset; actions in [-1, 1] span the environment's own range, discrete ones are one-hot."""
        with jax.numpy_rank_promotion("allow"):
            if self.choice is not None:
                own = jnp.argmax(action).astype(self.choice)
            else:
                own = self.low + 0.5 * (jnp.clip(action, -1.0, 1.0) + 1.0) * (self.high - self.low)
            obs, after, reward, terminated, info = owned(self.gymnax.step_env(key, state, own, params))
            truncated = self.gymnax.is_truncated(after, params)
        after = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), after, state)
        terminated = jnp.asarray(terminated, bool)
        truncated = jnp.asarray(truncated, bool) & ~terminated
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        return self._seen(obs), after, reward, terminated, truncated, dict(info)


def from_gymnax(
    env: Any,
    params: Any = None,
    *,
    name: str | None = None,
    channels: Any = (),
) -> Task:
    """A gymnax environment as a task; fields of its parameters drift.

    Args:
      env: with continuous or discrete actions; observations are flattened.
      params: its parameters without drift; by default its own.
      name: of the task, part of the seed of its drift; by default the environment's class.
      channels: fields of the parameters and their ranges, ``{"g": (5.0, 15.0)}`` or ``["g=5:15"]``; without
        channels the pattern is ``steady``.

    Raises:
      UnknownNameError: a channel that is not a field of the parameters.
      ValueError: a wrapper, an environment written for gymnax below 1.0, with unbounded actions, without a time limit,
        or with other spaces; a channel that is not a real number, or is the time limit.

    >>> import gymnax  # doctest: +SKIP
    >>> task = from_gymnax(gymnax.make("Pendulum-v1")[0], channels={"g": (5.0, 15.0)})  # doctest: +SKIP
    """
    from gymnax.environments.environment import Environment  # pyright: ignore[reportMissingImports]

    kind = type(env).__name__
    own = {name for base in type(env).__mro__ if base is not Environment for name in vars(base)}
    if not isinstance(env, Environment) or {"step", "reset"} & own:
        raise ValueError(f"import without wrappers: step_env and reset_env are called, not step and reset of {kind}")
    if "is_terminal" in own and "is_terminated" not in own:
        raise ValueError(f"{kind} has its time limit in is_terminal, as before gymnax 1.0; define is_terminated")
    params = env.default_params if params is None else params
    if not hasattr(params, _LIMIT):
        raise ValueError(f"the parameters of {kind} need {_LIMIT}, gymnax's time limit; got {params}")
    fields = dict(getattr(params, "__dataclass_fields__", {}))
    drifting = []
    for field, (low, *middle, high) in ranges_of(texts_of(channels)).items():
        lookup(f"parameter of {kind}", fields, field)
        value = getattr(params, field)
        if field == _LIMIT or np.ndim(value) or fields[field].type in (int, bool, "int", "bool"):
            raise ValueError(f"only a real number other than the time limit can drift; {field} of {kind} is {value!r}")
        drifting.append(Channel(field, low, high, middle[0] if middle else float(value)))

    return Task(
        name=name or kind.lower(),
        family="gymnax",
        env=_Imported(env, params),
        params=params,
        channels=tuple(drifting),
        apply_drift=partial(_set, [channel.name for channel in drifting]),
        description=f"gymnax environment {kind}",
    )


def _set(names: Sequence[str], params: Any, values: Array) -> Any:
    return params.replace(**{name: values[i] for i, name in enumerate(names)})
