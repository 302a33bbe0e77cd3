"""Running mean and variance, merged batch by batch, and what PPO normalises with them."""

from typing import NamedTuple

import jax.numpy as jnp

from aesjax.types import Array
from agents.common.masks import kept


class Moments(NamedTuple):
    """Mean and variance of everything merged so far.

    In float32 a count stops growing at 2^24: from there on the newest value has that fixed weight.
    """

    count: Array  # () float32
    mean: Array  # (...,) float32
    var: Array  # (...,) float32


def empty(shape: tuple[int, ...] = ()) -> Moments:
    """Mean 0 and variance 1 with next to no weight."""
    return Moments(jnp.float32(1e-4), jnp.zeros(shape), jnp.ones(shape))


def merge(moments: Moments, values: Array, valid: Array | None = None) -> Moments:
    """The moments after a batch of values (B, ...), by the parallel formula of Chan et al. (1979).

    Args:
      valid: (B,) bool, which of them count; None: all.
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
    spread = moments.var * moments.count + var * size + delta**2 * (moments.count * size / total)
    return Moments(total, moments.mean + delta * (size / total), spread / total)


def normalise(moments: Moments, values: Array, clip: float) -> Array:
    """``(x - mean) / sqrt(var + 1e-8)`` within +-clip, for values (..., *shape)."""
    shape = (1,) * (values.ndim - moments.mean.ndim) + moments.mean.shape
    centred = values - moments.mean.reshape(shape)
    return jnp.clip(centred / jnp.sqrt(moments.var.reshape(shape) + 1e-8), -clip, clip)


def denormalise(moments: Moments, values: Array) -> Array:
    """Inverse of `normalise` within its clip, for moments of a scalar."""
    return values * jnp.sqrt(moments.var + 1e-8) + moments.mean
