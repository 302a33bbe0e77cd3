"""Requested drift: names and ranges of channels, and the mapping from their values to parameters."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from aesjax.registry import listed, lookup
from aesjax.typed import several
from envs.core import Channel


class Range(NamedTuple):
    """Default range of a scalar drifting parameter, and its largest allowed range."""

    low: float
    high: float
    nominal: float = 1.0
    least: float = -math.inf
    most: float = math.inf


def chosen(channels: Iterable[str], known: Iterable[str], sets: Mapping[str, Sequence[str]] | None = None) -> tuple:
    """Requested channels as a tuple of names, each with an optional range, ``body_mass=0.5:1.5``.

    Args:
      known: names for the error message; they are not checked here.
      sets: names that stand for several channels.

    Raises:
      ValueError: no name, or a repeated name.
    """
    sets = sets or {}
    items = tuple(item for text in texts_of(channels) for item in sets.get(text, (text,)))
    names = [item.partition("=")[0] for item in items]
    if not items or len(set(names)) != len(names):
        both = listed((*known, *sets))
        raise ValueError(f"channels must be one or more different names of {both}; got {listed(names) or 'none'}")
    return items


def channels_of(task: str, items: Sequence[str], known: Mapping[str, Range]) -> tuple[Channel, ...]:
    """Channels of ``items``, as in `chosen`.

    Raises:
      UnknownNameError: (a ``KeyError``) a name that is not ``known``.
      ValueError: an invalid range, or one that excludes the nominal value or exceeds its limits.
    """
    return tuple(_channel(task, item, known) for item in items)


def _channel(task: str, item: str, known: Mapping[str, Range]) -> Channel:
    name, equals, text = item.partition("=")
    usual = lookup(f"drift channel of {task}", known, name)
    low, high = usual.low, usual.high
    if equals:
        low, *middle, high = ranges_of([item])[name]
        within = usual.least <= low <= usual.nominal <= high <= usual.most and low < high
        if not within or middle not in ([], [usual.nominal]):
            raise ValueError(
                f"the range of channel '{name}' of {task} must lie in {usual.least:g} to {usual.most:g}, contain its "
                f"nominal value {usual.nominal:g}, and have LOW < HIGH; got {text}"
            )
    return Channel(name, low, high, usual.nominal)


def texts_of(channels: Any) -> tuple[str, ...]:
    """Channels as texts, from a mapping of names to ranges, a comma-separated text, or texts and `Channel` objects.

    Numbers have their shortest form, so that -5, -5.0 and "-5.0" are equal.
    """
    if isinstance(channels, str):
        channels = [part.strip() for part in channels.split(",") if part.strip()]
    items = channels if several(channels) else [channels]
    named = (
        channels.items() if isinstance(channels, Mapping) else [(getattr(item, "name", item), item) for item in items]
    )
    return tuple(_shortest(text) for name, ends in named for text in _spelt(name, ends))


def _spelt(name: Any, ends: Any) -> list[str]:
    """``name=low:high`` or ``name=low:nominal:high``, of each element for arrays (K,); ValueError for another kind."""
    if isinstance(ends, str):
        return [ends if ends is name else f"{name}={ends}"]
    with suppress(TypeError, ValueError):
        numbers = (ends.low, ends.nominal, ends.high) if isinstance(ends, Channel) and ends.size == 1 else ends
        rows = np.array(numbers, float).T
        if rows.ndim in (1, 2) and rows.shape[-1] in (2, 3):
            names = [name] if rows.ndim == 1 else [f"{name}[{i}]" for i in range(len(rows))]
            texts = [":".join(map(repr, row)) for row in np.atleast_2d(rows).tolist()]
            return [f"{part}={text}" for part, text in zip(names, texts, strict=True)]
    allowed = "NAME=LOW:HIGH, a scalar Channel, or NAME: (low, high) or (low, nominal, high), numbers or arrays"
    raise ValueError(f"channel {name!r} must be {allowed}; got {ends!r:.60}")


def _shortest(text: str) -> str:
    name, equals, ends = text.partition("=")
    with suppress(ValueError):
        numbers = [float(end) for end in ends.split(":")]
        ends = ":".join(f"{x:g}" if float(f"{x:g}") == x else repr(x) for x in numbers)
    return f"{name}{equals}{ends}"


def ranges_of(texts: Sequence[str]) -> Mapping[str, Sequence[float]]:
    """Parse texts with ranges to name -> lowest and highest value, or lowest, nominal, highest."""
    ranges = {}
    with suppress(ValueError):
        ranges = {name: [float(end) for end in ends.split(":")] for name, ends in (text.split("=") for text in texts)}
    if len(ranges) != len(texts) or not {len(ends) for ends in ranges.values()} <= {2, 3}:
        first = texts[0].partition("=")[0]
        raise ValueError(f"channels must be NAME=LOW:HIGH, such as {first}=0.5:1.5, each once; got {', '.join(texts)}")
    return ranges


def set_by_name(channels: Sequence[Channel]) -> Callable[[Any, Any], Any]:
    """`Task.apply_drift` for scalar channels that are fields of the parameters, a NamedTuple."""
    return partial(_set_by_name, [channel.name for channel in channels])


def _set_by_name(names: Sequence[str], params: Any, values: Any) -> Any:
    return params._replace(**{name: values[i] for i, name in enumerate(names)})
