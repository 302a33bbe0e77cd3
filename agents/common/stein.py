"""Stein variational gradient descent (Liu & Wang 2016) on the particles of one state, with an RBF kernel."""

import math

import chex
import jax
import jax.numpy as jnp

from aesjax.schedules.order import quantile
from aesjax.types import Array


def squared_distances(x: Array, z: Array) -> Array:
    """``|x_j - z_i|^2``, (Kf, A) and (Ku, A) -> (Kf, Ku), squared action units."""
    return jnp.sum((x[:, None, :] - z[None, :, :]) ** 2, -1)


def bandwidth(distances: Array, count: int, floor: float) -> Array:
    """``max(median / log(count + 1), floor)`` of ``distances`` (Kf, Ku), () squared action units, no gradient.

    ``count`` is the number of fixed particles; the reference passes the batch size, an error.
    """
    # The radix select: XLA's sort on a CPU takes ten times as long.
    median = quantile(distances.reshape(-1), 0.5)
    return jax.lax.stop_gradient(jnp.maximum(median / math.log(count + 1), floor))


def rbf_kernel(x: Array, z: Array, h: Array) -> Array:
    """``exp(-|x_j - z_i|^2 / h)``, (Kf, A) and (Ku, A) -> (Kf, Ku)."""
    return jnp.exp(-squared_distances(x, z) / h)


def stein_direction(x: Array, z: Array, score: Array, h: Array) -> Array:
    """``phi_i = mean_j (k_ji g_j + dk_ji)`` with ``dk_ji = -2 (x_j - z_i) k_ji / h``, (Ku, A), no gradient.

    ``dk`` is the kernel's gradient with respect to the *fixed* particle ``x_j``: it pushes ``z_i`` away from ``x_j``.

    Args:
      x: (Kf, A) fixed particles; z: (Ku, A) particles to move; both in action units.
      score: (Kf, A) ``g_j``, gradient of the target's log-density at ``x_j``, nats per action unit.
      h: () bandwidth, squared action units.
    """
    chex.assert_equal_shape([x, score])
    chex.assert_shape(z, (None, x.shape[-1]))
    difference = x[:, None, :] - z[None, :, :]
    terms = rbf_kernel(x, z, h)[:, :, None] * (score[:, None, :] - 2.0 * difference / h)
    return jax.lax.stop_gradient(jnp.mean(terms, 0))


def stein_directions(x: Array, z: Array, score: Array, *, count: int, floor: float) -> Array:
    """`stein_direction` of B states, each with its `bandwidth`: (B, Kf, A), (B, Ku, A), (B, Kf, A) -> (B, Ku, A)."""

    def of_one_state(x: Array, z: Array, score: Array) -> Array:
        return stein_direction(x, z, score, bandwidth(squared_distances(x, z), count, floor))

    return jax.vmap(of_one_state)(*jax.lax.stop_gradient((x, z, score)))


def nearest_neighbour_entropy(x: Array, *, floor: float = 1e-6) -> Array:
    """Kozachenko-Leonenko estimate of the differential entropy from each particle's nearest neighbour, () nats.

    ``psi(n) - psi(1) + log V_A + (A / n) sum_i log d_i`` with V_A the volume of the unit ball. Nearly unbiased for
    small A; biased in many dimensions, where the nearest neighbour is not near.

    Args:
      x: (n, A) samples, n >= 2.
      floor: smallest distance, so that coinciding particles give a very low entropy rather than minus infinity.
    """
    n, size = x.shape
    distances = squared_distances(x, x) + jnp.where(jnp.eye(n, dtype=bool), jnp.inf, 0.0)
    log_nearest = 0.5 * jnp.log(jnp.maximum(jnp.min(distances, 1), floor**2))
    harmonic = sum(1.0 / k for k in range(1, n))  # psi(n) - psi(1)
    log_ball = 0.5 * size * math.log(math.pi) - math.lgamma(0.5 * size + 1.0)
    return harmonic + log_ball + size * jnp.mean(log_nearest)
