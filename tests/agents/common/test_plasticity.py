"""Recycling of dormant units."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agents.common.carrier import Network
from agents.common.networks import MLP
from agents.common.optim import ADAM, descend
from agents.common.plasticity import recycled
from tests.quick import quick

THRESHOLD = 0.025
X = jnp.asarray(np.random.default_rng(0).normal(size=(32, 3)), jnp.float32)


class State(NamedTuple):
    params: Any
    opt: Any


def trained(net, optimiser, *inputs):
    """Parameters whose units are all awake with the optimiser's state after one step, and other parameters."""
    params, fresh = (net.init(jax.random.key(k), *inputs) for k in (0, 1))
    params = jax.tree.map_with_path(lambda path, x: x + 1.0 if "bias" in jax.tree_util.keystr(path) else x, params)
    grads = jax.tree.map(jnp.ones_like, params)
    return State(*descend(params, grads, optimiser.init(params), 0.0, optimiser=optimiser)), State(fresh, None)


def asleep_at(params, layer, unit):
    """``params`` in which a rectified unit never wakes up."""
    dense = params["params"][layer]
    bias, kernel = dense["bias"].at[..., unit].set(-1e3), dense["kernel"].at[..., unit].set(0.0)
    return {"params": params["params"] | {layer: {"kernel": kernel, "bias": bias}}}


@pytest.mark.parametrize(("optimiser", "moment"), [(ADAM, "mu"), (ADAM, "nu"), (optax.trace(0.9), "trace")])
def test_a_dormant_unit_begins_anew_and_the_network_computes_what_it_did(optimiser, moment):
    net = MLP((8, 6), 2)
    state, fresh = trained(net, optimiser, X)
    state = state._replace(params=asleep_at(asleep_at(state.params, "Dense_0", 3), "Dense_1", 5))
    networks = [Network(net, "actor", lambda obs, action: (obs,))]
    after = quick(lambda *args: recycled(networks, *args, X, X[:, :1], THRESHOLD))(state, fresh)
    old, new, other, moments = *(each.params["params"] for each in (state, after, fresh)), after.opt
    for layer, unit in (("Dense_0", 3), ("Dense_1", 5)):
        np.testing.assert_array_equal(new[layer]["bias"][unit], other[layer]["bias"][unit])
    np.testing.assert_array_equal(new["Dense_0"]["kernel"][:, 3], other["Dense_0"]["kernel"][:, 3])
    np.testing.assert_array_equal(new["Dense_1"]["kernel"][3], np.zeros(6))  # where it leads to: nothing of it is felt
    kept = np.delete(np.arange(8), 3)
    np.testing.assert_array_equal(new["Dense_1"]["kernel"][kept, 5], other["Dense_1"]["kernel"][kept, 5])
    np.testing.assert_array_equal(new["Dense_2"]["kernel"][5], np.zeros(2))
    np.testing.assert_array_equal(new["Dense_0"]["kernel"][:, kept], old["Dense_0"]["kernel"][:, kept])
    np.testing.assert_array_equal(new["Dense_2"]["bias"], old["Dense_2"]["bias"])
    before, after = (net.apply({"params": p}, X) for p in (old, new))
    np.testing.assert_allclose(after, before, atol=1e-6)
    first = getattr(moments, moment)["params"]["Dense_0"]["kernel"]
    assert np.all(first[:, 3] == 0.0)
    assert np.all(first[:, kept] != 0.0)
    if optimiser is ADAM:
        assert moments.count == state.opt.count
