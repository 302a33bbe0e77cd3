"""The conditional flow: it inverts, its log-determinants are those of autodiff, and it starts as the reference's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.common.flow import COUPLINGS, ConditionalFlow, dropout_masks

S, A, N = 3, 3, 64
HIDDEN = (8, 8)
NET = ConditionalFlow(A, HIDDEN, (8, 8), -2.0, 1.0)


@functools.cache
def compiled(net, method):
    return jax.jit(lambda params, *args: net.apply(params, *args, method=method))


def apply(params, method, *args, net=NET):
    return compiled(net, method)(params, *args)


def randomised(net, obs_size, seed=0):
    """Parameters with noise on all of them, so that zero kernels and unit scales hide nothing."""
    shapes = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros((1, obs_size)), jnp.zeros((1, net.action_size)))
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        gain = 1.0 if path[-1].key in ("scale", "beta") else 0.0
        spread = leaf.shape[-2] ** -0.5 if path[-1].key == "kernel" else 0.3
        return jnp.asarray(gain + spread * rng.normal(size=leaf.shape), jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


@pytest.fixture(scope="module")
def params():
    return randomised(NET, S)


@pytest.fixture(scope="module")
def obs():
    return jax.random.normal(jax.random.key(5), (N, S))


def test_infer_undoes_generate_and_generate_undoes_infer(params, obs):
    latent = 0.7 * jax.random.normal(jax.random.key(6), (N, A))
    action, forward = apply(params, "generate", latent, obs)
    back, inverse = apply(params, "infer", action, obs)
    inner = np.all(np.abs(np.asarray(action)) < 0.95, axis=1)  # float32 resolves less near the border
    assert inner.sum() > N // 4
    np.testing.assert_allclose(np.asarray(back)[inner], np.asarray(latent)[inner], atol=1e-4)
    np.testing.assert_allclose(np.asarray(inverse)[inner], -np.asarray(forward)[inner], atol=1e-4)
    stored = jnp.tanh(jax.random.normal(jax.random.key(7), (N, A)))
    again = apply(params, "generate", apply(params, "infer", stored, obs)[0], obs)[0]
    np.testing.assert_allclose(again, stored, atol=1e-5)


def test_the_log_determinant_is_that_of_the_autodiff_jacobian(params):
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)
        z, s = jnp.array([0.3, -0.5, 0.2], jnp.float64), jnp.array([[0.1, 0.4, -1.0]], jnp.float64)

        def generate(z):
            return apply(wide, "generate", z[None], s)[0][0]

        action, log_det = apply(wide, "generate", z[None], s)
        jacobian = jax.jit(jax.jacfwd(generate))(z)
        np.testing.assert_allclose(np.linalg.slogdet(jacobian)[1], log_det[0], atol=1e-10)
        np.testing.assert_allclose(log_det[0], np.sum(np.log(1 - np.asarray(action) ** 2)), atol=1e-10)
        couplings = np.asarray(jacobian) / (1 - np.asarray(action[0]) ** 2)[:, None]
        np.testing.assert_allclose(abs(np.linalg.det(couplings)), 1.0, atol=1e-10)
        assert np.abs(couplings - np.eye(A)).max() > 0.05


def test_stored_actions_on_the_border_are_clipped_and_carry_the_references_epsilon(params, obs):
    border = jnp.ones((N, A))
    latent, log_det = apply(params, "infer", border, obs)
    np.testing.assert_allclose(latent, apply(params, "infer", (1 - 1e-5) * border, obs)[0])
    a = np.float32(1 - 1e-5)
    np.testing.assert_allclose(log_det, -A * np.log(1 - a * a + np.float32(1.19e-7)), rtol=1e-4)


def test_dropout_keeps_nine_in_ten_and_draws_every_unit_and_half_apart():
    masks = jax.jit(lambda key: dropout_masks(key, 0.1, 256, (32, 16)))(jax.random.key(3))
    assert [[m.shape for m in layers] for layers in masks] == [[(2, 256, 32), (2, 256, 16)]] * COUPLINGS
    flat = np.stack([np.asarray(layers[0]) for layers in masks])  # (4, 2, 256, 32)
    assert set(np.unique(flat)) == {np.float32(0.0), np.float32(1.0) / np.float32(0.9)}
    kept = flat > 0
    np.testing.assert_allclose(kept.mean(), 0.9, atol=0.006)  # 65 536 draws: 5 standard errors
    np.testing.assert_allclose(kept.mean((0, 1, 2)), 0.9, atol=0.035)  # every unit
    centred = (kept - 0.9).reshape(8, -1) / 0.3
    correlation = centred @ centred.T / centred.shape[1]
    assert np.abs(correlation - np.diag(np.diag(correlation))).max() < 0.05  # couplings and halves
