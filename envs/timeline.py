"""The time base of a run: steps without drift up to the onset, then the segments of the drift."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

CHANGES = EVEN, RANDOM = "even", "random"
SHORTEST = 1 / 4  # of random segments, of the equal length


@dataclass(frozen=True)
class Timeline:
    """Steps are *vector steps*: all parallel environments of a run share one count.

    Raises:
      ValueError: ``total`` is not a positive multiple of ``segments`` or exceeds the clock, an int32; no time is left.

    >>> Timeline(100).bounds(None, jumps=True).tolist()
    [0, 20, 40, 60, 80, 100]
    """

    total: int  # vector steps of a run
    segments: int = 5  # of the part with drift; of the complete run, 20 % each (AES paper, Appendix C)
    onset: float = 0.0  # share of the run before the drift
    changes: str = EVEN  # lengths of the segments of patterns that jump: equal, or drawn (`RANDOM`)

    def __post_init__(self) -> None:
        total, segments = self.total, self.segments
        if segments < 1 or not 0 < total < 2**31 or total % segments:
            text = f"total steps must be a positive multiple of segments = {segments} below 2^31"
            raise ValueError(f"{text}; got {total}")
        if self.changes not in CHANGES:
            raise ValueError(f"changes must be one of {', '.join(CHANGES)}; got '{self.changes}'")
        if not 0.0 <= self.onset < 1.0 or self.length < segments:
            text = "onset must be a share of the run, at least 0, that leaves a step for each"
            raise ValueError(f"{text} of {segments} segments; got {self.onset:g}")

    @property
    def start(self) -> int:
        """Vector step at which the drift begins."""
        return round(self.onset * self.total)

    @property
    def length(self) -> int:
        """Vector steps with drift."""
        return self.total - self.start

    def bounds(self, times: Any, *, jumps: bool) -> Array:
        """First vector step of every segment, and the end of the run, (segments + 1,) int32.

        Args:
          times: (segments,) float32, increasing from 0 and below 1, unused unless `RANDOM`: the part of the time beyond
            the shortest segments, a quarter of the equal length each, that has passed when a segment starts.
          jumps: whether the pattern jumps; others have equal segments.
        """
        count, drawn = self.segments, jumps and self.changes == RANDOM
        shortest = math.ceil(self.length * SHORTEST / count) if drawn else self.length // count
        spare, shares = self.length - count * shortest, times if drawn else np.arange(count) / count
        passed = jnp.minimum(jnp.floor(jnp.asarray(shares * spare)).astype(jnp.int32), spare)  # a float32 may round up
        starts = self.start + shortest * jnp.arange(count, dtype=jnp.int32) + passed
        return jnp.append(starts, jnp.int32(self.total))

    def at(self, step: Array, times: Any, *, jumps: bool) -> tuple[Array, Array]:
        """Segment () int32 and local phase () float32 in [0, 1) at ``step``, right-continuous at the `bounds`.

        Before the onset the first segment with phase 0; from ``total`` on the last one with phase 1, its left limit.
        """
        step, bounds = jnp.clip(step, self.start, self.total), self.bounds(times, jumps=jumps)
        segment = jnp.sum(step >= bounds[1:-1], dtype=jnp.int32)
        first, size = bounds[segment], bounds[segment + 1] - bounds[segment]
        if self.length % self.segments == 0 and not (jumps and self.changes == RANDOM):
            size = jnp.int32(self.length // self.segments)  # a constant divisor has another rounding
        return segment, (step - first).astype(jnp.float32) / size.astype(jnp.float32)

    def progress(self, step: Array) -> Array:
        """Share () float32 of the steps with drift that have passed."""
        return (jnp.clip(step, self.start, self.total) - self.start).astype(jnp.float32) / self.length
