"""Isometries of hidden kernels."""

import functools
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agents.common.carrier import Network
from agents.common.networks import TwinCritic
from agents.common.plasticity import isometric, isometry
from tests.quick import quick


class State(NamedTuple):
    params: Any
    target: Any
    opt: Any


@pytest.mark.parametrize("shape", [(64, 64), (5, 48), (48, 5), (256, 256)])
def test_an_isometry_is_the_nearest_orthogonal_matrix_times_its_scale(shape):
    kernel = np.random.default_rng(0).uniform(-1, 1, (2, *shape)).astype(np.float32)
    scale = (shape[1] / shape[0]) ** 0.5
    unit = np.asarray(quick(isometry)(kernel)) / scale
    square = unit.mT @ unit if shape[0] >= shape[1] else unit @ unit.mT
    np.testing.assert_allclose(square, np.broadcast_to(np.eye(min(shape)), square.shape), atol=1e-5)
    u, _, v = np.linalg.svd(np.float64(kernel), full_matrices=False)  # Procrustes
    np.testing.assert_allclose(unit, u @ v, atol=1e-3)


def test_directions_that_are_gone_stay_so_and_a_run_that_is_not_due_keeps_its_kernel():
    kernel = jnp.float32(np.random.default_rng(0).normal(size=(3, 8, 6))).at[1, :, 2:4].set(0.0).at[2].set(0.0)
    done = np.asarray(quick(jax.vmap(isometry))(kernel, jnp.array([False, True, True])))
    np.testing.assert_array_equal(done[0], kernel[0])
    np.testing.assert_allclose(np.linalg.svd(done[1])[1], (6 / 8) ** 0.5 * np.array([1, 1, 1, 1, 0, 0]), atol=1e-5)
    np.testing.assert_array_equal(done[2], 0.0)


def test_hidden_kernels_of_network_and_target_move_and_the_optimiser_restarts():
    net = TwinCritic((8, 6))
    params, target, fresh = (net.init(jax.random.key(k), jnp.ones((1, 3)), jnp.ones((1, 2))) for k in range(3))
    adam = optax.scale_by_adam()
    state = State(params, target, adam.init(params)._replace(count=jnp.int32(7)))
    networks = [Network("critic", target="target")]
    moved = quick(functools.partial(isometric, networks))
    new = State(fresh, fresh, adam.init(fresh))
    chex.assert_trees_all_equal(moved(state, new, jnp.float32(0.0)), state)
    half, whole = (moved(state, new, jnp.float32(step)) for step in (0.5, 1.0))
    for field in ("params", "target"):
        old, middle, after = (getattr(each, field)["params"]["VmapMLP_0"] for each in (state, half, whole))
        for layer in old:
            chex.assert_trees_all_equal(after[layer]["bias"], old[layer]["bias"])
            kernel = after[layer]["kernel"]
            wanted = old[layer]["kernel"] if layer == "Dense_2" else isometry(old[layer]["kernel"])
            np.testing.assert_allclose(kernel, wanted, atol=1e-5)
            np.testing.assert_allclose(middle[layer]["kernel"], (old[layer]["kernel"] + kernel) / 2, atol=1e-6)
    assert (int(whole.opt.count), int(half.opt.count)) == (0, 0)
