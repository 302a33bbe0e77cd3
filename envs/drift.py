"""Drift as a pure function of the step count and of numbers drawn once per run; steps are those of a `Timeline`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from aesjax.seeding import stream
from envs.core import Channel, Task
from envs.patterns import PATTERNS, POINTS, Leg, Pattern, Realisation
from envs.timeline import Timeline

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


def draw(task: Task, drift_seed: Array | int, segments: int = 5) -> Realisation:
    """Drift sample of ``(task name, drift_seed)``, independent of method, pattern and schedule.

    Scalar channels: levels independent and uniform on [low, high]. Planar channels: consecutive points one
    radius apart and all inside the disc of that radius about nominal, directions uniform among those that
    stay inside (from the centre all; from the rim a cone of 60 degrees either side of the way back). Random change
    times divide what the shortest segments leave uniformly, by ordered independent uniform numbers. Each channel
    has its own random stream, named after it, so that adding a channel does not change the others.
    ``drift_seed`` may be traced.
    """
    key = stream(jax.random.key(drift_seed), task.name)
    times = jnp.sort(jax.random.uniform(stream(key, "random changes"), (segments - 1,), jnp.float32))
    # An empty part first, for tasks without channels.
    levels, directions, noise = [jnp.zeros((segments + 1, 0))], [jnp.zeros(0)], [jnp.zeros((POINTS, 0))]
    for channel in task.channels:
        noise.append(jax.random.normal(stream(key, f"noise of {channel.name}"), (POINTS, channel.size)))
        key_level, key_direction = jax.random.split(stream(key, channel.name))
        if channel.kind == "planar":
            angle = jax.random.uniform(key_direction, (), jnp.float32, 0.0, 2.0 * np.pi)
            levels.append(_relocations(key_level, channel, segments))
            directions.append(jnp.stack([jnp.cos(angle), jnp.sin(angle)]))
        else:
            drawn = jax.random.uniform(key_level, (segments, channel.size), jnp.float32, channel.low, channel.high)
            nominal = jnp.full((1, channel.size), channel.nominal, jnp.float32)
            levels.append(jnp.concatenate([nominal, drawn]))
            directions.append(jnp.zeros(channel.size, jnp.float32))
    return Realisation(
        jnp.concatenate(levels, axis=1),
        jnp.concatenate(directions),
        jnp.concatenate([jnp.zeros(1), times]),
        jnp.concatenate(noise, axis=1),
    )


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


def _value(channels: Channels, entry: Pattern, sample: Realisation, step: Array, timeline: Timeline) -> Array:
    """Drift values (D,) float32 of one pattern in task units at one step of one run."""
    segment, phase = timeline.at(step, sample.times, jumps=entry.jumps)
    start, end, progress = sample.levels[segment], sample.levels[segment + 1], timeline.progress(step)
    parts, stop = [jnp.zeros(0)], 0
    for channel in channels:
        at = slice(stop, stop := stop + channel.size)
        drawn = sample.directions[at], timeline.segments, progress, sample.noise[:, at]
        parts.append(entry.value(channel, Leg(segment, phase, start[at], end[at], *drawn)))
    value = jnp.concatenate(parts)
    return jnp.where(step < timeline.start, sample.levels[0], value) if timeline.start else value


def change_steps(channels: Channels, entry: Pattern, sample: Realisation, timeline: Timeline) -> Array:
    """(K,) int32 vector steps at which the drift of a run changes under one pattern; empty if not stated.

    With an onset the first of them is the onset, at which a pattern that does not begin at nominal jumps, or -1.
    """
    bounds = timeline.bounds(sample.times, jumps=entry.jumps)
    times = jnp.zeros(0)
    if entry.changes is not None:
        times = jnp.asarray(entry.changes(sample, timeline.segments), jnp.float32)
    whole = times.astype(jnp.int32)
    length = bounds[whole + 1] - bounds[whole]
    # The first step at or after the time; the factor covers rounding of the time.
    steps = bounds[whole] + jnp.ceil((times - whole) * length * (1.0 - 1e-6)).astype(jnp.int32)
    if not timeline.start:
        return steps
    begin, spans = jnp.int32(timeline.start), per_coordinate(channels, lambda channel: channel.high - channel.low)
    jumps = jnp.any(jnp.abs(_value(channels, entry, sample, begin, timeline) - sample.levels[0]) > 1e-6 * spans)
    return jnp.append(jnp.where(jumps, begin, -1), steps)


def jump_steps(channels: Channels, entry: Pattern, sample: Realisation, timeline: Timeline) -> Array:
    """The `change_steps` at which the drift jumps: all of a pattern that jumps, of others only the onset."""
    steps = change_steps(channels, entry, sample, timeline)
    return steps if entry.jumps else steps[: timeline.start > 0]


def truth(
    channels: Channels,
    pattern: Array | int,
    realisation: Realisation,
    step: Array | int,
    timeline: Timeline,
    patterns: Patterns = PATTERNS,
) -> DriftTruth:
    """Drift at ``step`` of a run, and its change since the step before.

    ``pattern``, a () int32 index into ``patterns``, may be traced. ``change`` is the Euclidean norm over coordinates of
    (value now - value one step before) / (high - low), 0 at step 0. ``is_change_point`` is true at the stated changes
    of patterns that jump, and at an onset at which the drift jumps.

    ``change`` is a difference of float32 values, so a slow drift has a rounding error that grows with the run. It is
    larger for `ou` and `walk`, whose position on the path is a float32 up to 500. On a straight part of the path the
    standard deviation of ``change``, in per cent of its mean, is about

    ============  ======  ============
    vector steps  linear  ou and walk
    ============  ======  ============
    1 million     1       up to 3
    5 million     3 to 5  up to 14
    ============  ======  ============
    """
    size = sum(channel.size for channel in channels)
    chex.assert_shape(realisation.levels, (None, size), custom_message="a drift sample has the channels of one task")
    step, pattern = jnp.asarray(step, jnp.int32), jnp.asarray(pattern, jnp.int32)

    def value(at: Array) -> Array:
        branches = [partial(_value, channels, entry, realisation, at, timeline) for entry in patterns.values()]
        return jax.lax.switch(pattern, branches)

    now, before = jax.vmap(value)(jnp.stack([step, step - 1]))
    spans = per_coordinate(channels, lambda channel: channel.high - channel.low)
    change = jnp.sqrt(jnp.sum(((now - before) / spans) ** 2))
    jumps = [jnp.any(jump_steps(channels, entry, realisation, timeline) == step) for entry in patterns.values()]
    return DriftTruth(now, change, jnp.stack(jumps)[pattern])


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
