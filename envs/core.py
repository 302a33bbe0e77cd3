"""The words every task is written in: environment, drift channel, task, and the step with auto-reset."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
Step = tuple[Array, Any, Array, Array, Array, dict[str, Any]]


class Mask(NamedTuple):
    """Which copies of an environment count, where not all always do; (N,) bool each. A row is one step of one copy."""

    valid: Array  # the newest row took place: losses, statistics, proxies and returns may see it
    stored: Array  # and its successor is known: it may be learned from later
    live: Array  # the next row will count, as far as can be known before it


class EnvSpec(NamedTuple):
    """Static properties of an environment."""

    obs_size: int  # O
    action_size: int  # A
    time_limit: int  # steps of one episode before it is truncated


class Env(Protocol):
    """ONE environment as two pure functions; batch it with ``jax.vmap``.

    Actions are normalised, (A,) in [-1, 1]; the task maps them to its own units and clips what lies outside.
    Everything that may drift or be swept is in ``params``, a pytree. Neither function resets by itself.
    The time limit is the environment's, because the step counter is in its state: ``truncated`` is true where
    the limit is reached and the episode did not terminate. Where both are set, `sound` clears ``truncated``.
    """

    @property
    def spec(self) -> EnvSpec:
        """Sizes and time limit."""
        ...

    # Optional: ``faults(states) -> () int32``, how often a simulator gave up on one of these copies;
    # ``mask(states) -> Mask``, where steps need not count; ``for_evaluation() -> Env`` with copies of its own.

    def reset(self, key: Array, params: Any) -> tuple[Array, Any]:
        """``obs`` (O,) float32 and the state of a new episode."""
        ...

    def step(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """``obs (O,), state, reward (), terminated () bool, truncated () bool, info``."""
        ...


def autoreset_step(env: Env, key: Array, state: Any, action: Array, params: Any) -> Step:
    """One step of ONE environment, followed by a reset where the episode ended.

    Returns the six values of ``Env.step``. ``obs`` and ``state`` belong to the new episode where
    ``terminated | truncated``, drawn with a key of their own (not a replay of the first start);
    ``info["final_observation"]`` (O,) is always present and is the observation *before* that reset: the next
    observation of the transition, and the one to bootstrap from. Whatever must outlive an episode (the drift
    clock) belongs outside ``state``.
    """
    key_step, key_reset = jax.random.split(key)
    return step_with_keys(env, key_step, key_reset, state, action, params)


def sound(env: Env, step: Callable[..., Step], *args: Any) -> Step:
    """``step(*args)`` of one environment with at most one flag: a failure in the step of the time limit is a failure.

    Args:
      step: ``env.step``, or a step with a reset; ``args`` end with the action (A,) and the parameters.

    Raises:
      ValueError: an action, observation, reward or flag of another shape, or a flag that is neither bool nor integer.
    """
    obs, state, reward, *flags, info = step(*args)
    sizes = (env.spec.action_size,), (env.spec.obs_size,), (), (), ()
    names = ("action", "observation", "reward", "terminated", "truncated")
    for name, value, shape in zip(names, (args[-2], obs, reward, *flags), sizes, strict=True):
        dtype, kind = getattr(value, "dtype", np.dtype(type(value))), " and be bool or integer" * (name in names[3:])
        if np.shape(value) != shape or (kind and dtype.kind not in "biu"):
            wanted = f"{name} of {type(env).__name__} must have shape {shape}{kind}"
            raise ValueError(f"{wanted}; got {dtype} of shape {np.shape(value)}")
    terminated, truncated = (jnp.asarray(flag, bool) for flag in flags)
    return obs, state, reward, terminated, truncated & ~terminated, info


def check_unmasked(task: "Task", where: str) -> None:
    """ValueError for a simulator some of whose steps do not count, which ``where`` cannot report."""
    if hasattr(task.env, "mask"):
        raise ValueError(f"{where} cannot mark the steps of task '{task.name}' that do not count; use `envs.Drifting`")


def step_with_keys(env: Env, key_step: Array, key_reset: Array, state: Any, action: Array, params: Any) -> Step:
    """`autoreset_step` with its two keys already drawn, for loops that draw all keys of a step at once.

    An environment whose start costs more than a few numbers may bring an ``autoreset`` of its own.
    """
    if hasattr(env, "autoreset"):
        return sound(env, env.autoreset, key_step, key_reset, state, action, params)  # type: ignore
    final_obs, next_state, reward, terminated, truncated, info = sound(env, env.step, key_step, state, action, params)
    fresh = env.reset(key_reset, params)
    obs, next_state = jax.tree.map(partial(jnp.where, terminated | truncated), fresh, (final_obs, next_state))
    return obs, next_state, reward, terminated, truncated, info | {"final_observation": final_obs}


class Channel(NamedTuple):
    """One quantity that drifts.

    A scalar channel takes values in ``[low, high]``. A planar channel is a displacement in the plane whose
    scale is the radius ``high = -low``, the length of one abrupt relocation; each of its two coordinates has
    range ``high - low``. Units are the task's.
    """

    name: str
    low: float
    high: float
    nominal: float  # value of every coordinate under no drift
    size: int = 1  # coordinates this channel takes in the flat vector of drift values
    kind: Literal["scalar", "planar"] = "scalar"


class Task(NamedTuple):
    """An environment with its constants and what may drift in it.

    D = sum of the channels' sizes; drift values are one flat (D,) float32 vector in the order of
    ``channels``.
    """

    name: str
    family: str  # "toy", "mujoco" or "isaac"
    env: Env
    params: Any  # pytree of constants without drift; host values, so that building a task starts no device
    channels: tuple[Channel, ...]
    apply_drift: Callable[[Any, Array], Any]  # (params, values (D,)) -> params; replaces, never accumulates
    negative_returns: bool  # returns below zero are normal, so ratios of areas mean nothing
    description: str
    #: complete options of the task's builder; ``envs.make(name, **options)`` builds the same task again
    options: Mapping[str, Any] = {}
    #: names of channels that change nothing in this task; drifting them is allowed, and said in tables
    inert: tuple[str, ...] = ()
    #: names of channels whose presence makes it another task even while nothing drifts
    altering: tuple[str, ...] = ()

    def __reduce__(self) -> Any:
        """By its place in the module of its environment, by the name and options of `envs.make`, or by its parts."""
        envs: Any = sys.modules["envs"]  # which imports this module
        module = type(self.env).__module__
        for name, value in vars(sys.modules[module]).items():
            if value is self and module != "__main__":
                return envs.attribute, (f"{module}:{name}",)
        named = isinstance(envs.TASKS.get(self.name), str) or self.name.startswith(tuple(envs.NAMED))
        if named and envs.make(self.name, **self.options) is self:
            return partial(envs.make, self.name, **self.options), ()
        return Task, tuple(self)


def replaced(params: Any, values: Array) -> Array:
    """`Task.apply_drift` where the drift values (D,) are all of the parameters."""
    return values
