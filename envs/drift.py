"""Drift as a pure function of the step count and of numbers drawn once per run.

Steps are *vector steps*: all parallel environments of a run share one count. The horizon of a run is divided into
``segments`` equal parts (five: 20 % each, AES paper Appendix C).
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.core import Channel, Task
from envs.patterns import PATTERNS, Leg, Pattern, Realisation

Array = jax.Array
Channels = Sequence[Channel]
Patterns = Mapping[str, Pattern]


class DriftData(NamedTuple):
    """Pattern and drift sample of a run; batched along a leading axis."""

    pattern: Array  # () int32, index into the patterns of its world
    realisation: Realisation


class DriftTruth(NamedTuple):
    """Current drift, for calibration, reports and references, not for learners."""

    values: Array  # (D,) float32, task units
    change: Array  # () float32, Euclidean norm of the change since the previous step, in channel ranges
    is_change_point: Array  # () bool, the first step after a jump that the pattern states


def change_points(total: int, segments: int = 5) -> list[int]:
    """Steps ``k * total / segments``, ``1 <= k < segments``, at which a new segment starts.

    Raises:
      ValueError: ``total`` is not a positive multiple of ``segments``, or exceeds the clock, an int32.

    >>> change_points(100, 5)
    [20, 40, 60, 80]
    """
    if segments < 1 or not 0 < total < 2**31 or total % segments:
        raise ValueError(f"total steps must be a positive multiple of segments = {segments} below 2^31; got {total}")
    return [k * (int(total) // segments) for k in range(1, segments)]


def clock(step: Array | int, total: Array | int, segments: int = 5) -> tuple[Array, Array]:
    """Segment and local phase at ``step``, exact at the change points and right-continuous there.

    Args:
      step: () int32, vector steps done.
      total: () int, vector steps of the run, a multiple of ``segments`` (checked unless it is traced).

    Returns:
      ``segment`` () int32 in [0, segments) and ``phase`` () float32 in [0, 1). From ``step = total`` on, the
      left limit: the last segment with phase 1.
    """
    if isinstance(total, int | np.integer):
        change_points(int(total), segments)
    length = jnp.asarray(total, jnp.int32) // segments
    step = jnp.clip(jnp.asarray(step, jnp.int32), 0, length * segments)
    segment = jnp.minimum(step // length, segments - 1)
    phase = (step - segment * length).astype(jnp.float32) / length.astype(jnp.float32)
    return segment, phase


def draw(task: Task, drift_seed: Array | int, segments: int = 5) -> Realisation:
    """Drift sample of ``(task name, drift_seed)``, independent of method, pattern and schedule.

    Scalar channels: levels independent and uniform on [low, high]. Planar channels: consecutive points one
    radius apart and all inside the disc of that radius about nominal, directions uniform among those that
    stay inside (from the centre all; from the rim a cone of 60 degrees either side of the way back). Each
    channel has its own random stream, named after it, so that adding a channel does not change the others.
    ``drift_seed`` may be traced.
    """
    key = jax.random.fold_in(jax.random.key(drift_seed), zlib.crc32(task.name.encode()))
    # An empty part first, for tasks without channels.
    levels, directions = [jnp.zeros((segments + 1, 0))], [jnp.zeros(0)]
    for channel in task.channels:
        key_level, key_direction = jax.random.split(jax.random.fold_in(key, zlib.crc32(channel.name.encode())))
        if channel.kind == "planar":
            angle = jax.random.uniform(key_direction, (), jnp.float32, 0.0, 2.0 * np.pi)
            levels.append(_relocations(key_level, channel, segments))
            directions.append(jnp.stack([jnp.cos(angle), jnp.sin(angle)]))
        else:
            drawn = jax.random.uniform(key_level, (segments, channel.size), jnp.float32, channel.low, channel.high)
            nominal = jnp.full((1, channel.size), channel.nominal, jnp.float32)
            levels.append(jnp.concatenate([nominal, drawn]))
            directions.append(jnp.zeros(channel.size, jnp.float32))
    return Realisation(jnp.concatenate(levels, axis=1), jnp.concatenate(directions))


def _relocations(key: Array, channel: Channel, segments: int) -> Array:
    """Points ``P_0 .. P_segments`` of a planar channel, (segments + 1, 2)."""
    start = jnp.zeros(2, jnp.float32)
    _, points = jax.lax.scan(_relocate, start, jax.random.uniform(key, (segments,), jnp.float32))
    return channel.nominal + (channel.high - channel.low) / 2.0 * jnp.concatenate([start[None], points])


def _relocate(point: Array, uniform: Array) -> tuple[Array, Array]:
    """One unit step inside the unit disc."""
    # |P + e| <= 1 for a unit step e means an angle of at most arccos(|P| / 2) from the way back; at the centre
    # every direction qualifies.
    reach = jnp.sqrt(jnp.sum(point**2))
    cone = jnp.where(reach < 1e-6, jnp.pi, jnp.arccos(jnp.minimum(reach, 1.0) / 2.0))
    angle = jnp.arctan2(-point[1], -point[0]) + cone * (2.0 * uniform - 1.0)
    point = point + jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return point, point


def _at(
    channels: Channels, pattern: Array | int, realisation: Realisation, step: Any, total: Any, patterns: Patterns
) -> Array:
    """Drift values (D,) float32 in task units at one step of one run."""
    size = sum(channel.size for channel in channels)
    chex.assert_shape(realisation.levels, (None, size), custom_message="a drift sample has the channels of one task")
    segments = realisation.levels.shape[0] - 1
    segment, phase = clock(step, total, segments)
    start, end = realisation.levels[segment], realisation.levels[segment + 1]
    stops = np.cumsum([channel.size for channel in channels])

    def evaluate(entry: Pattern) -> Array:
        parts = [jnp.zeros(0)]
        for channel, stop in zip(channels, stops, strict=True):
            at = slice(stop - channel.size, stop)
            leg = Leg(segment, phase, start[at], end[at], realisation.directions[at], segments)
            parts.append(entry.value(channel, leg))
        return jnp.concatenate(parts)

    branches = [lambda entry=entry: evaluate(entry) for entry in patterns.values()]
    return jax.lax.switch(jnp.asarray(pattern, jnp.int32), branches)


def truth(
    channels: Channels,
    pattern: Array | int,
    realisation: Realisation,
    step: Array | int,
    total: Array | int,
    patterns: Patterns = PATTERNS,
) -> DriftTruth:
    """Drift at ``step`` of ``total``, and its change since the step before.

    ``pattern``, a () int32 index into ``patterns``, may be traced. ``change`` is the Euclidean norm over coordinates of
    (value now - value one step before) / (high - low), 0 at step 0. It is a difference of float32 values: a gradual
    drift slower than 1e-5 of the range per step is reported to about 1 %. ``is_change_point`` is true at the stated
    changes of patterns that jump.
    """
    step = jnp.asarray(step, jnp.int32)
    now, before = (_at(channels, pattern, realisation, at, total, patterns) for at in (step, step - 1))
    spans = per_coordinate(channels, lambda channel: channel.high - channel.low)
    change = jnp.sqrt(jnp.sum(((now - before) / spans) ** 2))
    starts = [jnp.any(entry.change_steps(realisation, total) == step) & entry.jumps for entry in patterns.values()]
    return DriftTruth(now, change, jnp.stack(starts)[pattern])


def normalised(channels: Channels, values: Array) -> Array:
    """Drift values (D,) scaled to -1 at the low end and 1 at the high end of each channel's range.

    The coordinates of a planar channel reach -1 and 1 at its radius, beyond which `mixed` may go.
    """
    low = per_coordinate(channels, lambda channel: channel.low)
    high = per_coordinate(channels, lambda channel: channel.high)
    return 2.0 * (values - low) / (high - low) - 1.0


def per_coordinate(channels: Channels, of: Callable[[Channel], float]) -> np.ndarray:
    """The value ``of`` each channel, repeated for each of its coordinates: (D,) float32."""
    parts = [np.full(channel.size, of(channel), np.float32) for channel in channels]
    return np.concatenate([np.zeros(0, np.float32), *parts])
