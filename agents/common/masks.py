"""Rows that do not count: a simulator that resets by itself gives some that no learner may see.

Every function takes a mask that is None where all rows count, as in our own tasks, and is then the plain one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.types import Array


def kept(valid: Array | None, rows: Any) -> Any:
    """``rows`` with zeros where they do not count, whatever stood there; leaves (N, ...), ``valid`` (N,)."""
    if valid is None:
        return rows
    mask = lambda x: valid.reshape(valid.shape + (1,) * (x.ndim - valid.ndim))  # noqa: E731
    return jax.tree.map(lambda x: jnp.where(mask(x), x, jnp.zeros_like(x)), rows)


def mean(x: Array, weight: Array | None = None) -> Array:
    """Mean () of the rows that count, 0 if none does; ``x`` finite everywhere, ``weight`` of its shape."""
    return jnp.mean(x) if weight is None else jnp.sum(x * weight) / jnp.maximum(jnp.sum(weight), 1.0)


def std(x: Array, weight: Array | None = None) -> Array:
    """Sample standard deviation (), likewise."""
    if weight is None:
        return jnp.std(x, ddof=1)
    squares = jnp.sum(weight * (x - mean(x, weight)) ** 2)
    return jnp.sqrt(squares / jnp.maximum(jnp.sum(weight) - 1.0, 1.0))


class Ring(NamedTuple):
    """Where a ring of rows continues, for insertions that differ from step to step and from run to run."""

    position: Array  # () int32, the next place
    filled: Array  # () int32, places that hold something


def start() -> Ring:
    """Nothing written yet."""
    return Ring(jnp.int32(0), jnp.int32(0))


def write(ring: Ring, rows: Array, new: Array, counts: Array) -> tuple[Ring, Array]:
    """``rows`` (C, ...) with those of ``new`` (N, ...) that count (N,) bool over its oldest ones; N <= C."""
    capacity = rows.shape[0]
    order = jnp.cumsum(counts.astype(jnp.int32))
    place = jnp.where(counts, (ring.position + order - 1) % capacity, capacity)  # one past the end is dropped
    total = order[-1]
    ring = Ring((ring.position + total) % capacity, jnp.minimum(ring.filled + total, capacity))
    return ring, rows.at[place].set(new, mode="drop")


def spread(rows: Array, filled: Array) -> Array:
    """(C, ...) where the first ``filled`` of ``rows`` (C, ...) stand in for the rest, evenly; as it is when full.

    Statistics of the result are those of the rows that hold something, to 1 / filled.
    """
    size = rows.shape[0]
    share = jnp.maximum(filled, 1).astype(jnp.float32) / size
    at = jnp.floor((jnp.arange(size, dtype=jnp.float32) + 0.5) * share).astype(jnp.int32)
    return rows[jnp.minimum(at, jnp.maximum(filled, 1) - 1)]


def compact(rows: Array, counts: Array | None) -> Array:
    """(B,) in which those of ``rows`` (B,) that count (B,) stand in for the others, evenly (`spread`)."""
    if counts is None:
        return rows
    ring, packed = write(start(), rows, rows, counts)
    return spread(packed, ring.filled)
