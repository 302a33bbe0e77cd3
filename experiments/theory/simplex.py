"""Geometry of the probability simplex in log space: entropy, divergences, mirror steps and the exact projection.

Points are arrays (..., K) whose last axis is the simplex; ``log_x`` is the logarithm of a point, -inf where it is
zero. The truncated simplex is ``{x : x_i >= floor}`` with ``floor <= 1/K``; floor 0 is the full simplex.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy

from aesjax.types import Array


def half_range(v: Array) -> Array:
    """(..., K) -> (...): ``(max v - min v) / 2``, the dual norm that ignores constants added to a loss."""
    return (jnp.max(v, axis=-1) - jnp.min(v, axis=-1)) / 2.0


def negative_entropy(x: Array) -> Array:
    """(..., K) -> (...): ``Psi(x) = sum x log x`` in nats, ``0 log 0 = 0``. AES paper Section 3."""
    return jnp.sum(xlogy(x, x), axis=-1)


def cross_entropy(u: Array, log_x: Array) -> Array:
    """(..., K), (..., K) -> (...): ``-<u, log x>`` in nats; infinite if x lacks a part of u."""
    return -jnp.sum(jnp.where(u > 0.0, u * log_x, 0.0), axis=-1)


def kl(u: Array, log_x: Array) -> Array:
    """(..., K), (..., K) -> (...): Kullback-Leibler divergence of u from x in nats; infinite only where ``log x`` is.

    Every term ``u log u - u log x - u + x`` is at least 0, so that terms do not cancel.
    """
    return jnp.sum(xlogy(u, u) - jnp.where(u > 0.0, u * log_x, 0.0) - u + jnp.exp(log_x), axis=-1)


def path(comparator: Any) -> Any:
    """(T, K) -> (T,): comparator drift ``xi_t = ||u_t - u_{t-1}||_1``, ``xi_1 = 0``; lies in [0, 2].

    An array of NumPy stays one, in its precision.
    """
    xp = np if isinstance(comparator, np.ndarray) else jnp
    return xp.sum(xp.abs(xp.diff(comparator, axis=0, prepend=comparator[:1])), axis=-1)


def largest_log_range(size: int, floor: Array | float) -> Array:
    """() nats: ``L = log((1 - (K-1) floor) / floor)``, the largest range of ``log x`` on the truncated simplex."""
    floor = jnp.asarray(floor)
    return jnp.log1p(-(size - 1) * floor) - jnp.log(floor)


def largest_cross_entropy(floor: Array | float) -> Array:
    """() nats: ``l = log(1 / floor)``, the largest cross-entropy to a point of the truncated simplex."""
    return -jnp.log(jnp.asarray(floor))


def project(log_y: Array, floor: Array | float) -> Array:
    """Exact KL projection onto the truncated simplex, in log space: ``argmin_x KL(x, y)``, the paper's mirror step.

    The solution floors the smallest coordinates and scales the others by one factor. Each pass floors the coordinates
    below the floor, until there are none; fewer than K passes are needed, in a descent rarely more than two.

    (..., K) -> (..., K), both logarithms; ``exp(log_y)`` need not sum to one, and floor () lies in [0, 1/K].
    """
    floor = jnp.asarray(floor, log_y.dtype)
    log_y = log_y - jnp.max(log_y, axis=-1, keepdims=True)
    y = jnp.exp(log_y)  # values that underflow are floored, or negligible in the mass

    def masses(floored: Array) -> tuple[Array, Array]:
        """Mass that the free coordinates have and mass that they must have, (..., 1) each."""
        free = jnp.sum(jnp.where(floored, 0.0, y), axis=-1, keepdims=True)
        return free, 1.0 - floor * jnp.sum(floored, axis=-1, keepdims=True)

    def one_pass(floored: Array) -> Array:
        free, wanted = masses(floored)
        return floored | (y * wanted < floor * free)

    none = jnp.zeros(log_y.shape, bool)
    _, floored = jax.lax.while_loop(
        lambda sets: jnp.any(sets[0] != sets[1]), lambda sets: (sets[1], one_pass(sets[1])), (none, one_pass(none))
    )
    free, wanted = masses(floored)
    return jnp.where(floored, jnp.log(floor), log_y - jnp.log(free) + jnp.log(wanted))


def mirror_step(log_x: Array, gradient: Array, eta: Array | float, floor: Array | float = 0.0) -> Array:
    """One step of entropic mirror descent, ``argmin_z eta <gradient, z> + KL(z, x)`` on the truncated simplex.

    AES paper Section 3; on the full simplex the multiplicative update. Accepts and returns log points (..., K).
    """
    return project(log_x - eta * gradient, floor)
