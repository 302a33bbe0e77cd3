"""Stein variational gradient descent: kernel, bandwidth, direction, and the laws its particles settle on."""

import jax
import numpy as np
import pytest

from agents.common import stein
from agents.common.stein import nearest_neighbour_entropy, rbf_kernel

# Compiled as a whole: primitive by primitive every test would pay for dozens of small programs.
bandwidth = jax.jit(stein.bandwidth, static_argnums=(1, 2))
stein_direction = jax.jit(stein.stein_direction)
stein_directions = jax.jit(stein.stein_directions, static_argnames=("count", "floor"))


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("fixed", "updated"), [(16, 16), (3, 5)])
def test_bandwidth_is_the_median_over_the_log_of_one_more_particle(fixed, updated):
    distances = normal(0, fixed, updated) ** 2 + 0.1
    expected = np.median(np.asarray(distances, np.float64)) / np.log(fixed + 1)
    np.testing.assert_allclose(bandwidth(distances, fixed, 1e-3), expected, rtol=1e-5)


def test_repulsion_is_the_kernels_gradient_in_its_first_argument():
    x, z, h = normal(1, 5, 3), normal(2, 4, 3), 0.7
    # d k(x_j, z_i) / d x_j by autodiff, (Ku, Kf, A); with a zero score the direction is its mean over j.
    one = jax.grad(lambda x, z: rbf_kernel(x[None], z[None], h)[0, 0])
    gradient = jax.jit(lambda x, z: jax.vmap(lambda z: jax.vmap(lambda x: one(x, z))(x))(z))(x, z)
    phi = stein_direction(x, z, np.zeros_like(x), h)
    np.testing.assert_allclose(phi, np.mean(gradient, 1), atol=1e-6)


def test_entropy_follows_the_scale_exactly_and_stays_finite_at_a_point():
    x = normal(0, 64, 2)
    large, small, point = jax.jit(jax.vmap(nearest_neighbour_entropy))(np.stack([x, x / 4, 0 * x]))
    np.testing.assert_allclose(large - small, 2 * np.log(4), atol=1e-4)
    assert -40 < float(point) < -15  # 2 log 1e-6 and a constant: certain, but not infinitely so
