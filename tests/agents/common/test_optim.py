"""One optimiser step with weight decay, and what a refresh does to parameters and optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents.common.networks import TwinCritic
from agents.common.optim import descend


def test_weight_decay_takes_its_share_of_the_parameters_beside_adams_step():
    params, grads = {"w": jnp.array([2.0, -3.0])}, {"w": jnp.array([0.5, 0.5])}
    opt = optax.scale_by_adam().init(params)
    plain, _ = descend(params, grads, opt, 0.1)
    decayed, _ = descend(params, grads, opt, 0.1, decay=0.2)
    np.testing.assert_allclose(decayed["w"], plain["w"] - 0.1 * 0.2 * params["w"], rtol=1e-6)
    np.testing.assert_allclose(plain["w"], params["w"] - 0.1, rtol=1e-6)  # Adam's first step is its rate


def test_a_layer_norm_makes_values_blind_to_the_scale_of_a_hidden_layer():
    obs, action = jnp.linspace(-1.0, 1.0, 8).reshape(4, 2), jnp.zeros((4, 1))
    for norm in (True, False):
        net = TwinCritic((6, 6), norm)
        params = net.init(jax.random.key(0), obs, action)
        layers = params["params"]["VmapMLP_0"]
        scaled = {"params": {"VmapMLP_0": layers | {"Dense_0": jax.tree.map(lambda x: 7.0 * x, layers["Dense_0"])}}}
        same = np.allclose(net.apply(scaled, obs, action), net.apply(params, obs, action), atol=1e-3)
        assert same == norm
