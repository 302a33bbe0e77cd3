"""Masks for invalid transitions of simulators that reset internally.

Every function takes a mask, which is None where all rows are valid, as in the tasks of this package.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.schedules.fresh import Ring, spread, write
from aesjax.schedules.rule import Mean
from aesjax.types import Array


def kept(valid: Array | None, rows: Any) -> Any:
    """``rows`` with invalid entries replaced by zeros; leaves (N, ...), ``valid`` (N,)."""
    if valid is None:
        return rows
    mask = lambda x: valid.reshape(valid.shape + (1,) * (x.ndim - valid.ndim))  # noqa: E731
    return jax.tree.map(lambda x: jnp.where(mask(x), x, jnp.zeros_like(x)), rows)


def mean(x: Array, weight: Array | None = None) -> Array:
    """Mean () of the valid rows, 0 if there are none; ``x`` is finite everywhere, ``weight`` has its shape."""
    return jnp.mean(x) if weight is None else jnp.sum(x * weight) / jnp.maximum(jnp.sum(weight), 1.0)


def std(x: Array, weight: Array | None = None) -> Array:
    """Sample standard deviation () of the valid rows, 0 for one of them; ValueError for ``x`` of one value."""
    if x.size < 2:
        raise ValueError(f"a standard deviation needs at least two values; got shape {x.shape}")
    if weight is None:
        return jnp.std(x, ddof=1)
    squares = jnp.sum(weight * (x - mean(x, weight)) ** 2)
    return jnp.sqrt(squares / jnp.maximum(jnp.sum(weight) - 1.0, 1.0))


def compact(rows: Array, counts: Array | None) -> Array:
    """Replace the invalid rows of (B,) evenly by the valid ones, as in `spread`; (B,)."""
    if counts is None:
        return rows
    ring, packed = write(Ring.empty(), rows, rows, counts)
    return spread(packed, ring.filled)


class Moments(NamedTuple):
    """Mean and variance of all values merged so far; from 2^24 on every new value has the fixed weight 2^-24."""

    count: Array  # () float32, at most 2^24, from where a float32 cannot count on
    mean: Array  # (...,) float32
    var: Array  # (...,) float32
    lost: Array  # (2, ...) float32, rounding errors of mean and variance so far, as in `Mean`


def empty(shape: tuple[int, ...] = ()) -> Moments:
    """Mean 0 and variance 1 with almost no weight."""
    return Moments(jnp.float32(1e-4), jnp.zeros(shape), jnp.ones(shape), jnp.zeros((2, *shape)))


def merge(moments: Moments, values: Array, valid: Array | None = None) -> Moments:
    """Moments after a batch of values (B, ...), by the parallel formula of Chan et al. (1979).

    Args:
      valid: (B,) bool; None: all are valid.
    """
    if valid is None:
        size, mean, var = values.shape[0], jnp.mean(values, 0), jnp.var(values, 0)
    else:
        values, size = kept(valid, values), jnp.sum(valid.astype(jnp.float32))
        count = jnp.maximum(size, 1.0)
        mean = jnp.sum(values, 0) / count
        var = jnp.sum(kept(valid, (values - mean[None]) ** 2), 0) / count
    total = moments.count + size
    delta = mean - moments.mean
    steps = jnp.stack([delta, var - moments.var + delta**2 * (moments.count / total)]) * (size / total)
    after = Mean(jnp.stack([moments.mean, moments.var]), moments.lost).moved(steps)
    return Moments(jnp.minimum(total, 2.0**24), after.value[0], after.value[1], after.lost)


def normalise(moments: Moments, values: Array, clip: float) -> Array:
    """``(x - mean) / sqrt(var + 1e-8)`` within +-clip, for values (..., *shape)."""
    shape = (1,) * (values.ndim - moments.mean.ndim) + moments.mean.shape
    centred = values - moments.mean.reshape(shape)
    return jnp.clip(centred / jnp.sqrt(moments.var.reshape(shape) + 1e-8), -clip, clip)


def denormalise(moments: Moments, values: Array) -> Array:
    """Inverse of `normalise` within its clip, for moments of a scalar."""
    return values * jnp.sqrt(moments.var + 1e-8) + moments.mean
