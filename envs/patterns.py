"""The drift patterns: pure functions ``pattern(channel, leg) -> (channel.size,) float32``.

The training loop selects among them by a traced index, so runs with different patterns share one program.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.registry import lookup
from envs.core import Channel

Array = jax.Array


POINTS = 500  # evenly spaced points of a drawn path, between which it is a straight line
_CORRELATION = 0.1  # time in which the correlation of `ou` falls to 1 / e, share of the part with drift
_SPREAD = 0.2  # stationary standard deviation of `ou`, share of the range
_NOISE = 0.05  # standard deviation of the noise of `noisy_sine`, share of the range
_WANDER = 1.0  # standard deviation of `walk` over the part with drift, before reflections, share of the range


class Realisation(NamedTuple):
    """Drift sample of one run, used by every pattern; batched along a leading axis."""

    levels: Array  # (segments + 1, D) float32, s_k or P_k per coordinate; row 0 is nominal
    directions: Array  # (D,) float32, unit vector of a planar channel's ramp; 0 for scalars
    times: Array  # (segments,) float32 in [0, 1), of random changes, see `Timeline.bounds`
    noise: Array  # (POINTS, D) float32, independent standard normal numbers


class Leg(NamedTuple):
    """Position within the part of a run with drift, and the values drawn for this segment and channel of size C."""

    segment: Array  # () int32, k
    phase: Array  # () float32 in [0, 1], local phase tau
    start: Array  # (C,) float32, drawn value s_k or point P_k; k = 0 is nominal
    end: Array  # (C,) float32, s_{k+1} or P_{k+1}
    direction: Array  # (C,) float32, unit vector of a planar channel; 0 for a scalar one
    segments: int
    progress: Array  # () float32 in [0, 1], share of the steps with drift that have passed
    noise: Array  # (POINTS, C) float32, independent standard normal numbers of the run


class Pattern(NamedTuple):
    """A pattern and its properties for reports.

    ``changes(sample, segments)`` states the times (K,) of a run's changes in segments, increasing and inside
    (0, segments): 1.5 is the middle of the second segment. Without it a pattern has no change points and no recovery.
    """

    value: Callable[[Channel, Leg], Array]
    jumps: bool  # the value jumps at the change points
    holds: bool = False  # the value is constant between jumps, so that recovery times are defined
    in_all: bool = True  # part of `--patterns all`
    changes: Callable[[Realisation, int], Any] | None = None

    @property
    def summary(self) -> str:
        """First line of the function's docstring, for listings."""
        return (inspect.getdoc(self.value) or "").partition("\n")[0]


def segment_starts(sample: Realisation, segments: int) -> Array:
    """A change at the beginning of every segment but the first."""
    return jnp.arange(1.0, segments)


def steady(channel: Channel, leg: Leg) -> Array:
    """No drift: the nominal value."""
    return jnp.full((channel.size,), channel.nominal, jnp.float32)


def abrupt(channel: Channel, leg: Leg) -> Array:
    """Piecewise constant: the drawn value of the segment, nominal in segment 0."""
    return leg.start


def linear(channel: Channel, leg: Leg) -> Array:
    """Straight lines without a jump.

    Scalar: ``low -> high`` in even segments and back in odd ones. Planar: from ``P_k`` to ``P_{k+1}``.
    """
    if channel.kind == "planar":
        return leg.start + leg.phase * (leg.end - leg.start)
    rise = jnp.where(leg.segment % 2 == 0, leg.phase, 1.0 - leg.phase)
    return (channel.low + (channel.high - channel.low) * rise)[None]


def periodic(channel: Channel, leg: Leg) -> Array:
    """One full cycle per segment.

    Scalar: a sine of amplitude ``(high - low) / 2`` about the middle. Planar: ``radius / 2 * (sin, cos)``,
    the same amplitude on both axes, so opposite points are one radius apart.
    """
    angle = 2.0 * jnp.pi * leg.phase
    half = (channel.high - channel.low) / 2.0
    if channel.kind == "planar":
        return half / 2.0 * jnp.stack([jnp.sin(angle), jnp.cos(angle)])
    return ((channel.low + channel.high) / 2.0 + half * jnp.sin(angle))[None]


def mixed(channel: Channel, leg: Leg) -> Array:
    """The jumps of abrupt drift plus a gradual part that is continuous, so nothing else jumps.

    The gradual part ``g`` is 0 in segment 0. The odd segments share one ramp from 0 to ``amp``, each taking an equal
    part of it; the even ones from 2 on add one cycle about the current value of the ramp. Scalar: ``amp = (high
    - low) / 2``, the cycle a sine of amplitude ``amp / 2``, the sum clipped to the bounds. Planar: the ramp
    goes ``radius / 2`` along the drawn direction, the cycle is a circle of radius ``radius / 4`` that starts
    at the current point with its centre towards the origin, which keeps ``|g| <= radius / 2``.
    """
    odd = leg.segment % 2 == 1
    ramps = max(leg.segments // 2, 1)
    ramp = ((leg.segment // 2).astype(jnp.float32) + jnp.where(odd, leg.phase, 0.0)) / ramps
    angle = jnp.where(odd | (leg.segment == 0), 0.0, 2.0 * jnp.pi * leg.phase)
    half = (channel.high - channel.low) / 2.0
    if channel.kind == "planar":
        x, y = leg.direction
        turned = jnp.cos(angle) * leg.direction + jnp.sin(angle) * jnp.stack([-y, x])
        return leg.start + half / 2.0 * ramp * leg.direction + half / 4.0 * (turned - leg.direction)
    return jnp.clip(leg.start + half * ramp + half / 2.0 * jnp.sin(angle), channel.low, channel.high)


def sawtooth(channel: Channel, leg: Leg) -> Array:
    """The release's `linear`: from low to high in every segment, jumping back at each change point.

    Nominal in segment 0. Planar: from nominal to one radius along x. Source: github.com/WtxwNs/AES.
    """
    if channel.kind == "planar":
        ramp = channel.high * leg.phase * jnp.array([1.0, 0.0])
    else:
        ramp = (channel.low + (channel.high - channel.low) * leg.phase)[None]
    return jnp.where(leg.segment == 0, steady(channel, leg), ramp)


def mixed_release(channel: Channel, leg: Leg) -> Array:
    """The release's `mixed`: half a switch between two levels plus half a ramp.

    Nominal in segment 0. Scalar: ``low + (high - low) (s + phase) / 2``, s = 0 in odd and 1 in even segments, which is
    continuous at even change points. Planar: half a radius back (odd) and forth along x, a ramp of half along y.
    """
    even = (leg.segment % 2 == 0).astype(jnp.float32)
    if channel.kind == "planar":
        value = channel.high / 2.0 * jnp.stack([2.0 * even - 1.0, leg.phase])
    else:
        value = (channel.low + (channel.high - channel.low) * (even + leg.phase) / 2.0)[None]
    return jnp.where(leg.segment == 0, steady(channel, leg), value)


def _range(channel: Channel) -> tuple[float, float]:
    """Bounds of every coordinate: the range, or the square inside the disc of a planar channel."""
    scale = 2.0**-0.5 if channel.kind == "planar" else 1.0
    return scale * channel.low, scale * channel.high


def _along(path: Array, progress: Array) -> Array:
    """Point (C,) of a path (POINTS + 1, C) after a share of its length."""
    at = progress * POINTS
    point = jnp.minimum(at.astype(jnp.int32), POINTS - 1)
    return path[point] + (at - point) * (path[point + 1] - path[point])


def ou(channel: Channel, leg: Leg) -> Array:
    """Ornstein-Uhlenbeck process about the middle of the range, from nominal.

    In shares of the part with drift the correlation time is 0.1; the stationary standard deviation is 0.2 of the range,
    at whose bounds the value is cut (2.5 standard deviations, which lowers it by 1 %). Planar: both coordinates, in the
    square inside the disc. Exact at 501 points (Uhlenbeck and Ornstein 1930).
    """
    low, high = _range(channel)
    decay = jnp.exp(-jnp.arange(POINTS + 1) / (POINTS * _CORRELATION))[:, None]
    kicks = jnp.cumsum(leg.noise / decay[1:], 0) * _SPREAD * (high - low) * jnp.sqrt(1.0 - decay[1, 0] ** 2)
    path = decay * (channel.nominal - (low + high) / 2.0 + jnp.pad(kicks, ((1, 0), (0, 0))))
    return jnp.clip((low + high) / 2.0 + _along(path, leg.progress), low, high)


def walk(channel: Channel, leg: Leg) -> Array:
    """Random walk from nominal, reflected at the bounds of the range.

    Its standard deviation over the part with drift is one range, before reflections. Planar: both coordinates, in the
    square inside the disc. Straight lines between 501 points.
    """
    low, high = _range(channel)
    path = jnp.pad(jnp.cumsum(leg.noise, 0), ((1, 0), (0, 0))) * _WANDER / POINTS**0.5
    place = (channel.nominal - low) / (high - low) + _along(path, leg.progress)
    return low + (high - low) * (1.0 - jnp.abs(1.0 - place % 2.0))


def redrawn(channel: Channel, leg: Leg) -> Array:
    """Piecewise constant like abrupt, but drawn in segment 0 too, and log-uniform where the range is positive.

    Source: friction of Slippery Ant (Dohare et al. 2024).
    """
    if channel.kind == "planar" or channel.low <= 0.0:
        return leg.end
    share = (leg.end - channel.low) / (channel.high - channel.low)
    return channel.low * (channel.high / channel.low) ** share


def noisy_sine(channel: Channel, leg: Leg) -> Array:
    """The cycle of periodic plus noise, cut at the bounds of the range.

    The noise has a standard deviation of 0.05 of the range and straight lines between 501 points. Planar: on both axes,
    in the square inside the disc. Source: mass of Chua et al. (2026), without lines between their points.
    """
    noise = _NOISE * (channel.high - channel.low) * jnp.pad(leg.noise, ((1, 0), (0, 0)))
    return jnp.clip(periodic(channel, leg) + _along(noise, leg.progress), *_range(channel))


PATTERNS: dict[str, Pattern] = {
    "steady": Pattern(steady, jumps=False, changes=segment_starts),
    "abrupt": Pattern(abrupt, jumps=True, holds=True, changes=segment_starts),
    "linear": Pattern(linear, jumps=False, changes=segment_starts),
    "periodic": Pattern(periodic, jumps=False, changes=segment_starts),
    "mixed": Pattern(mixed, jumps=True, changes=segment_starts),
    "sawtooth": Pattern(sawtooth, jumps=True, in_all=False, changes=segment_starts),
    "mixed_release": Pattern(mixed_release, jumps=True, in_all=False, changes=segment_starts),
    "ou": Pattern(ou, jumps=False, in_all=False),
    "walk": Pattern(walk, jumps=False, in_all=False),
    "redrawn": Pattern(redrawn, jumps=True, holds=True, in_all=False, changes=segment_starts),
    "noisy_sine": Pattern(noisy_sine, jumps=False, in_all=False, changes=segment_starts),
}


def compiled(names: Iterable[str], known: Mapping[str, Pattern] = PATTERNS) -> dict[str, Pattern]:
    """Patterns of one program by name: `steady` and `abrupt`, which evaluations hold, and those of its runs.

    A program evaluates all of its patterns for every run, and each takes time to compile.

    Raises:
      UnknownNameError: a name is not in ``known``.
    """
    return {name: lookup("pattern", known, name) for name in ("steady", "abrupt", *names)}


def pattern_index(name: str) -> int:
    """Position of ``name`` in ``PATTERNS``, the traced index of the drift functions.

    Raises:
      UnknownNameError: ``name`` is not registered.

    >>> pattern_index("abrupt")
    1
    """
    lookup("pattern", PATTERNS, name)
    return list(PATTERNS).index(name)
