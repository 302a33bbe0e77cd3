"""Exact quantiles without a sort, safe under ``jit``, ``vmap`` and ``scan``."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from aesjax.types import Array

# Largest N for which comparing all pairs (N*N compares, one fused reduction) is used off the CPU. XLA's CPU
# backend writes the N*N mask to memory (256 values: 98 us against 4 us for the radix select), so never there.
_ALL_PAIRS_LIMIT = 1024
# Two bits a pass need 3 N compares but half the passes of one bit: better while a pass is overhead, not work.
_TWO_BIT_LIMIT = 1024
# Counts are sums of float32 ones, exact up to here.
_LARGEST_N = 2**24


def quantile(x: Array, q: Array | float) -> Array:
    """The ``q``-quantile with linear interpolation; ``jnp.quantile(x, q)`` to float32 rounding, without its sort.

    Args:
      x: (N,) float32; 1 <= N < 2**24.
      q: () float32 in [0, 1], may be traced; clipped to that range.

    Returns:
      () float32 in the units of ``x``; NaN when any ``x`` is NaN or infinite.

    >>> import jax.numpy as jnp
    >>> print(quantile(jnp.array([0.0, 1.0, 2.0, 3.0]), 0.5))
    1.5
    """
    x = _checked("quantile", x)
    n = x.shape[0]
    poison = jnp.dot(x - x, jnp.ones(n, jnp.float32))  # 0, or NaN if any element is not finite; no extra reduction
    if n == 1:
        return x[0] + poison
    position = jnp.clip(jnp.asarray(q, jnp.float32), 0.0, 1.0) * (n - 1)
    # Stopping at N - 2 keeps the upper neighbour real at q = 1, where the share is then 1.
    k = jnp.clip(jnp.floor(position).astype(jnp.int32), 0, n - 2)
    share = position - k.astype(jnp.float32)
    low, high = neighbours(x, k)
    return low * (1.0 - share) + high * share + poison


# Compiled once per length also outside a compiled function, where every loop would be compiled again; inside one,
# ``inline`` leaves that program as it was.
@partial(jax.jit, inline=True)
def neighbours(x: Array, k: Array) -> tuple[Array, Array]:
    """The ``k``-th and ``k+1``-th smallest of (N,) ``x``, from one set of counts; ``k`` in [0, N - 2].

    At ``k = N - 1`` the second value is meaningless. NaN sort by their bits, so callers must check for them.
    """
    other = _all_pairs if x.shape[0] <= _ALL_PAIRS_LIMIT else _radix_select(bits=4)
    return lax.platform_dependent(x, k, cpu=_radix_select(bits=2 if x.shape[0] <= _TWO_BIT_LIMIT else 1), default=other)


def _all_pairs(x: Array, k: Array) -> tuple[Array, Array]:
    """Counting: the k-th smallest is the smallest value with more than k values at or below it."""
    image = _to_ordered(x)
    below = jnp.sum(image[None, :] <= image[:, None], axis=1, dtype=jnp.int32)
    top = jnp.uint32(0xFFFFFFFF)
    low, high = (jnp.min(jnp.where(below > i, image, top)) for i in (k, k + 1))
    return _from_ordered(low), _from_ordered(high)


def _radix_select(bits: int) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Select from the highest bits down, ``bits`` per pass, on the order-preserving integer image of the floats."""

    def select(x: Array, k: Array) -> tuple[Array, Array]:
        image = _to_ordered(x)
        rank = k.astype(jnp.float32)
        digits = jnp.arange(1, 1 << bits, dtype=jnp.uint32)

        def one_pass(i: Array, prefix: Array) -> Array:
            shift = (32 - bits * (i + 1)).astype(jnp.uint32)
            trials = prefix + (digits << shift)
            counts = _count(image[None, :] < trials[:, None])
            # Counts grow with the trial, so the digit is the number of trials that are not too high.
            return prefix + (jnp.sum(counts <= rank, dtype=jnp.uint32) << shift)

        # A loop runs as fast as the passes written out, and compiles six times faster.
        prefix = lax.fori_loop(0, 32 // bits, one_pass, jnp.uint32(0))
        above = jnp.min(jnp.where(image > prefix, image, jnp.uint32(0xFFFFFFFF)))
        next_is_tie = _count(image <= prefix) > rank + 1.0
        return _from_ordered(prefix), _from_ordered(jnp.where(next_is_tie, prefix, above))

    return select


def _count(mask: Array) -> Array:
    # A product with ones, because XLA's CPU backend vectorises it and does not vectorise a sum of booleans
    # (twice the speed at 25 x 512). 0, 1 and their sums up to 2**24 are exact at every matmul precision.
    ones = jnp.ones(mask.shape[-1], jnp.float32)
    return jnp.dot(mask.astype(jnp.float32), ones, preferred_element_type=jnp.float32)


def _to_ordered(x: Array) -> Array:
    """uint32 image with the order of the floats: flip all bits of a negative number, the sign bit of the others."""
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return bits ^ jnp.where(bits >> 31 == 1, jnp.uint32(0xFFFFFFFF), jnp.uint32(0x80000000))


def _from_ordered(image: Array) -> Array:
    bits = image ^ jnp.where(image >> 31 == 1, jnp.uint32(0x80000000), jnp.uint32(0xFFFFFFFF))
    return lax.bitcast_convert_type(bits, jnp.float32)


def _checked(name: str, x: Array) -> Array:
    x = jnp.asarray(x)
    if x.ndim != 1 or not 0 < x.shape[0] < _LARGEST_N:
        raise ValueError(f"{name} needs x of shape (N,), 1 <= N < 2**24; got {x.shape}. Use jax.vmap over rows.")
    if not jnp.issubdtype(x.dtype, jnp.floating) or jnp.finfo(x.dtype).bits > 32:
        raise ValueError(f"{name} needs x of float32 or narrower; got {x.dtype}.")
    return lax.stop_gradient(x.astype(jnp.float32))
