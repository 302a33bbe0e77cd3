"""Measures of plasticity on features whose answer is known."""

import jax
import jax.numpy as jnp
import numpy as np

from agents.common.networks import TwinCritic
from agents.common.plasticity import dormant_share, effective_rank, hidden


def test_a_unit_that_hardly_moves_is_dormant():
    quiet = jnp.ones((6, 4)).at[:, 1].set(0.0).at[:, 2].set(1e-3)
    assert dormant_share([quiet]) == 0.5
    assert dormant_share([quiet, jnp.ones((6, 4))]) == 0.25
    assert dormant_share([jnp.stack([quiet, -jnp.ones((6, 4))])]) == 0.25  # two networks stacked
    assert dormant_share([jnp.zeros((6, 4))]) == 1.0


def test_the_rank_of_features_is_that_of_their_spectrum():
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(np.c_[np.ones(50), rng.normal(size=(50, 5))])
    left = left[:, 1:]  # columns without a mean
    right, _ = np.linalg.qr(rng.normal(size=(8, 5)))
    for spectrum, rank in (([1, 1, 1, 1, 1], 5.0), ([3, 0, 0, 0, 0], 1.0), ([2, 1, 0, 0, 0], 25 / 17)):
        features = jnp.float32(left @ np.diag(spectrum) @ right.T + rng.normal(size=8))
        np.testing.assert_allclose(effective_rank(features), rank, rtol=1e-4)
    assert effective_rank(jnp.zeros((4, 3))) == 0.0


def test_hidden_layers_are_seen_in_order_and_change_nothing():
    net = TwinCritic((16, 4))
    obs, action = jnp.ones((3, 2)), jnp.zeros((3, 1))
    params = net.init(jax.random.key(0), obs, action)
    assert set(params) == {"params"}
    ((first, second),) = hidden(net, params, obs, action)
    assert (first.shape, second.shape) == ((2, 3, 16), (2, 3, 4))
    assert np.all(np.asarray(first) >= 0)
    out = params["params"]["VmapMLP_0"]["Dense_2"]
    values = jnp.einsum("cbi,cio->cbo", second, out["kernel"]) + out["bias"][:, None]
    np.testing.assert_allclose(values[..., 0], net.apply(params, obs, action), rtol=1e-5)
