"""Tasks and patterns of other packages, checked before use."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp

from envs.core import Channel, Task
from envs.patterns import POINTS, Leg, Pattern

#: Supported libraries: module of the base class -> "module:attribute" of the function that makes a task.
ADAPTERS = {
    "gymnasium": "envs.adapters.gym_tasks:from_gymnasium",
    "gymnax": "envs.adapters.gymnax:from_gymnax",
    "brax.envs": "envs.adapters.brax:from_brax",
    "mujoco_playground": "envs.adapters.playground:from_playground",
}
_QUOTED = 200, 250  # characters of a quoted error: its beginning and its end


def adapter_of(thing: Any) -> str | None:
    """Entry of `ADAPTERS` for an environment, or class of environments, of another library; else None."""
    bases = [f"{base.__module__}." for base in getattr(thing, "__mro__", type(thing).__mro__)]
    return next((place for name, place in ADAPTERS.items() if any(b.startswith(f"{name}.") for b in bases)), None)


def adopt_task(name: str, plugin: Any) -> Task | Callable[..., Task]:
    """Return ``plugin`` if it is a `Task`, an environment or a function that makes one of these; else ValueError."""
    if isinstance(plugin, Task) or (adapter_of(plugin) and not callable(plugin)):
        return plugin
    if not callable(plugin):
        raise ValueError(f"task '{name}' must be a Task or a function that builds one; got {type(plugin).__name__}")

    @functools.wraps(plugin)
    def build(**options: Any) -> Task:
        with trying(f"task '{name}' cannot be built"):
            return cast(Task, plugin(**options))

    return build


@contextmanager
def trying(what: str) -> Iterator[None]:
    """Raise a ValueError that begins with ``what`` for any error of user code in the block."""
    try:
        yield
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{what}: {kind}{_quoted(error)}") from error


def _quoted(error: BaseException) -> str:
    """The text of an error in one line, without the middle of a long one."""
    text, (head, tail) = " ".join(str(error).split()), _QUOTED
    return text if len(text) <= head + tail else f"{text[:head]} ... {text[-tail:]}"


def adopt_pattern(name: str, plugin: Any) -> Pattern:
    """``plugin`` as a `Pattern`; a bare function ``(channel, leg) -> value`` is one that does not jump.

    Raises:
      ValueError: neither a `Pattern` nor a function, or its value is not (channel.size,) float32.
    """
    pattern = plugin if isinstance(plugin, Pattern) else Pattern(plugin, jumps=False)
    if not callable(pattern.value) or inspect.isclass(pattern.value):
        raise ValueError(f"pattern '{name}' must be a Pattern or a function; got {type(plugin).__name__}")
    kinds: tuple[tuple[Literal["scalar", "planar"], int], ...] = (("scalar", 1), ("planar", 2))
    for kind, size in kinds:
        channel, drawn = Channel(kind, -1.0, 1.0, 0.0, size, kind), jnp.zeros(size)
        leg = Leg(jnp.int32(0), jnp.float32(0), drawn, drawn, drawn, 5, jnp.float32(0), jnp.zeros((POINTS, size)))
        with trying(f"pattern '{name}' does not work on a {kind} channel"):
            value = jax.eval_shape(lambda leg=leg, channel=channel: pattern.value(channel, leg))
        found = getattr(value, "shape", None), getattr(value, "dtype", None)
        if found != ((size,), jnp.float32):
            wanted = f"must return ({size},) float32 for a {kind} channel"
            raise ValueError(f"pattern '{name}' {wanted}; got {found[0]} {found[1]}")
    return pattern
