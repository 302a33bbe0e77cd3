"""Base types of tasks: environment, drift channel, task, and the step with auto-reset."""

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
    """Validity masks of simulators with invalid steps, (N,) bool each. A row is one step of one copy."""

    valid: Array  # the last row is valid: losses, statistics, proxies and returns may use it
    stored: Array  # the last row is valid and its successor is known: a replay may store it
    live: Array  # the next row is expected to be valid


class EnvSpec(NamedTuple):
    """Static properties of an environment."""

    obs_size: int  # O
    action_size: int  # A
    time_limit: int  # steps of one episode before it is truncated
    discrete: bool = False  # an action is one of A choices, as a one-hot row (A,)


class Env(Protocol):
    """One environment as two pure functions; batch it with ``jax.vmap``.

    Actions are normalised, (A,) in [-1, 1]; the task maps them to its own units and clips values outside.
    A discrete action is a one-hot row (A,), and the task takes its `jnp.argmax`.
    Parameters that may drift or be swept are in ``params``, a pytree. Neither function resets automatically.
    The time limit is the environment's, because the step counter is in its state: ``truncated`` is true where
    the limit is reached and the episode did not terminate. Where both are set, `sound` clears ``truncated``.
    """

    @property
    def spec(self) -> EnvSpec:
        """Sizes and time limit."""
        ...

    # Optional: ``faults(states) -> () int32``, number of simulator failures of these copies;
    # ``mask(states) -> Mask``, if steps may be invalid; ``for_evaluation() -> Env`` with separate copies;
    # ``autoreset(key_step, key_reset, state, action, params) -> Step`` instead of `autoreset_step`.

    def reset(self, key: Array, params: Any) -> tuple[Array, Any]:
        """``obs`` (O,) float32 and the state of a new episode."""
        ...

    def step(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """``obs (O,), state, reward (), terminated () bool, truncated () bool, info``."""
        ...


def random_actions(spec: EnvSpec, key: Array, num: int) -> Array:
    """Uniformly random actions (num, A): in [-1, 1], or one-hot rows of discrete ones."""
    if spec.discrete:
        return jax.nn.one_hot(jax.random.randint(key, (num,), 0, spec.action_size), spec.action_size)
    return jax.random.uniform(key, (num, spec.action_size), minval=-1.0, maxval=1.0)


def autoreset_step(env: Env, key: Array, state: Any, action: Array, params: Any) -> Step:
    """One step of one environment, followed by a reset at the end of an episode.

    Returns the six values of ``Env.step``. ``obs`` and ``state`` belong to the new episode where
    ``terminated | truncated``, drawn with a key of their own (not a replay of the first start);
    ``info["final_observation"]`` (O,) is always present and is the observation *before* that reset: the next
    observation of the transition, used by the bootstrap. Quantities that outlive an episode (the drift clock)
    belong outside ``state``.
    """
    key_step, key_reset = jax.random.split(key)
    return step_with_keys(env, key_step, key_reset, state, action, params)


def sound(env: Env, step: Callable[..., Step], *args: Any) -> Step:
    """``step(*args)`` of one environment with at most one flag; a failure in the step of the time limit is terminated.

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
    """Raise a ValueError for a simulator with invalid steps, which ``where`` cannot report."""
    if hasattr(task.env, "mask"):
        raise ValueError(f"{where} cannot mark the steps of task '{task.name}' that do not count; use `envs.Drifting`")


def check_continuous(task: "Task", where: str) -> None:
    """Raise a ValueError for discrete actions, which ``where`` does not have."""
    if task.env.spec.discrete:
        raise ValueError(f"{where} has continuous actions only; task '{task.name}' has discrete ones")


def step_with_keys(env: Env, key_step: Array, key_reset: Array, state: Any, action: Array, params: Any) -> Step:
    """`autoreset_step` with both keys given, for loops that draw all keys of a step together.

    An environment with an expensive start may define its own ``autoreset``.
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
    size: int = 1  # number of coordinates in the flat vector of drift values
    kind: Literal["scalar", "planar"] = "scalar"


class Task(NamedTuple):
    """An environment with its constants and its drift channels.

    D = sum of the channels' sizes; drift values are one flat (D,) float32 vector in the order of
    ``channels``.
    """

    name: str
    family: str  # "toy", "mujoco", "isaac", or of an adapter "gymnasium", "gymnax", "brax" or "playground"
    env: Env
    params: Any  # pytree of nominal constants; host values, so that building a task initialises no device
    channels: tuple[Channel, ...]
    apply_drift: Callable[[Any, Array], Any]  # (params, values (D,)) -> params; replaces, never accumulates
    description: str
    #: complete options of the task's builder; ``envs.make(name, **options)`` rebuilds the task
    options: Mapping[str, Any] = {}
    #: names of channels without effect in this task; they may drift, and reports list them
    inert: tuple[str, ...] = ()
    #: names of channels whose presence changes the task even without drift
    altering: tuple[str, ...] = ()

    def __reduce__(self) -> Any:
        """Pickle by module and name, by the arguments of `envs.make`, or by fields."""
        envs: Any = sys.modules["envs"]  # which imports this module
        module = type(self.env).__module__
        for name, value in vars(sys.modules[module]).items():
            if value is self and module != "__main__":
                return envs.attribute, (f"{module}:{name}",)
        named = isinstance(envs.TASKS.get(self.name), str) or self.name.startswith(tuple(envs.NAMED))
        if named and envs.make(self.name, **self.options) is self:
            return partial(envs.make, self.name, **self.options), ()
        return Task, tuple(self)


def owned(tree: Any) -> Any:
    """Results of foreign code, with copies of its NumPy arrays, which it may change in place."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


def replaced(params: Any, values: Array) -> Array:
    """`Task.apply_drift` for tasks whose parameters are the drift values (D,)."""
    return values
