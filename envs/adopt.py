"""Tasks and patterns of other packages: checked before they are registered."""

import inspect
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp

from envs.core import Channel, Task
from envs.patterns import Leg, Pattern

_CHANNELS = (Channel("scalar", 0.0, 2.0, 1.0), Channel("planar", -1.0, 1.0, 0.0, size=2, kind="planar"))


def adopt_task(name: str, plugin: Any) -> Task | Callable[..., Task]:
    """``plugin`` itself, if it is a `Task` or a function that builds one.

    Raises:
      ValueError: it is neither.
    """
    if not isinstance(plugin, Task) and not callable(plugin):
        raise ValueError(f"task '{name}' must be a Task or a function that builds one; got {type(plugin).__name__}")
    return cast(Task | Callable[..., Task], plugin)


def adopt_pattern(name: str, plugin: Any) -> Pattern:
    """``plugin`` as a `Pattern`; a bare function ``(channel, leg) -> value`` is one that does not jump.

    Raises:
      ValueError: it is neither, or its value is not (channel.size,) float32 of scalar and planar channels.
    """
    pattern = plugin if isinstance(plugin, Pattern) else Pattern(plugin, jumps=False)
    if not callable(pattern.value) or inspect.isclass(pattern.value):
        raise ValueError(f"pattern '{name}' must be a Pattern or a function; got {type(plugin).__name__}")
    for channel in _CHANNELS:
        numbers = jnp.zeros(channel.size)
        try:
            value = jax.eval_shape(
                lambda c=channel, n=numbers: pattern.value(c, Leg(jnp.int32(0), jnp.float32(0), n, n, n, 5))
            )
        except Exception as error:  # whatever a stranger's code raises
            text = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ValueError(f"pattern '{name}' does not work on a {channel.kind} channel: {text}") from None
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape != (channel.size,) or dtype != jnp.float32:
            raise ValueError(
                f"pattern '{name}' must return ({channel.size},) float32 for a {channel.kind} channel; "
                f"got {shape} {dtype}"
            )
    return pattern
