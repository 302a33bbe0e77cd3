"""Drift of a physics task: which channels were asked for, and how their values become its parameters."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from envs.core import Channel

__all__ = ["chosen", "set_by_name"]


def chosen(channels: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """The names asked for, as a tuple.

    Args:
      known: for the text of the error; whether a name is among them is left to who looks it up.

    Raises:
      ValueError: none, or one twice.
    """
    names = tuple(channels)
    if not names or len(set(names)) != len(names):
        raise ValueError(f"channels needs one or more different names of {', '.join(known)}; got {names}")
    return names


def set_by_name(channels: Sequence[Channel]) -> Callable[[Any, Any], Any]:
    """`Task.apply_drift` for scalar channels that are fields of the parameters, a NamedTuple."""

    def apply_drift(params: Any, values: Any) -> Any:
        return params._replace(**{channel.name: values[i] for i, channel in enumerate(channels)})

    return apply_drift
