"""Recycling of dormant units: which begin anew, that the others do not notice, and that it is so in every carrier."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agents import CARRIERS
from agents.common.carrier import OnPolicyCarrier
from agents.common.networks import MLP, TwinCritic
from agents.common.optim import descend
from agents.common.recycle import recycled
from tests.quick import quick

THRESHOLD = 0.025
X = jnp.asarray(np.random.default_rng(0).normal(size=(32, 3)), jnp.float32)


def trained(net, *inputs):
    """Parameters whose units are all awake, Adam's state after one step, and other parameters."""
    params, fresh = (net.init(jax.random.key(k), *inputs) for k in (0, 1))
    params = jax.tree.map_with_path(lambda path, x: x + 1.0 if "bias" in jax.tree_util.keystr(path) else x, params)
    grads = jax.tree.map(jnp.ones_like, params)
    return (*descend(params, grads, optax.scale_by_adam().init(params), 0.0), fresh)


def asleep_at(params, layer, unit):
    """``params`` in which a rectified unit never wakes up."""
    dense = params["params"][layer]
    bias, kernel = dense["bias"].at[..., unit].set(-1e3), dense["kernel"].at[..., unit].set(0.0)
    return {"params": params["params"] | {layer: {"kernel": kernel, "bias": bias}}}


def test_a_dormant_unit_begins_anew_and_the_network_computes_what_it_did():
    net = MLP((8, 6), 2)
    params, opt, fresh = trained(net, X)
    params = asleep_at(asleep_at(params, "Dense_0", 3), "Dense_1", 5)
    new, moments = quick(lambda *args: recycled(net, *args, X))(params, fresh, opt, THRESHOLD)
    old, new, other = (tree["params"] for tree in (params, new, fresh))
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
    first = moments.mu["params"]["Dense_0"]["kernel"]
    assert np.all(first[:, 3] == 0.0)
    assert np.all(first[:, kept] != 0.0)
    assert moments.count == opt.count


def test_what_is_awake_or_not_asked_for_stays_to_the_bit():
    net = TwinCritic((8, 8))
    action = X[:, :1]
    params, opt, fresh = trained(net, X, action)
    step = quick(lambda *args: recycled(net, *args, X, action))
    _, seen = net.apply(params, X, action, mutable=["intermediates"])
    means = [jnp.mean(jnp.abs(layer), -2) for layer in jax.tree.leaves(seen)]
    least = min(float(jnp.min(mean / jnp.mean(mean, -1, keepdims=True))) for mean in means)
    assert least > 0.0
    for threshold in (0.0, 0.5 * least):
        jax.tree.map(np.testing.assert_array_equal, step(params, fresh, opt, threshold), (params, opt))
    changed, _ = step(params, fresh, opt, 10.0)  # all are less active than that
    kernel, other = (tree["params"]["VmapMLP_0"]["Dense_0"]["kernel"] for tree in (changed, fresh))
    np.testing.assert_array_equal(kernel, other)
    assert np.all(changed["params"]["VmapMLP_0"]["Dense_2"]["kernel"] == 0.0)


@pytest.mark.parametrize("name", CARRIERS)
def test_every_carrier_recycles_and_keeps_its_shapes(name):
    spec = CARRIERS[name]
    sizes = {"hidden": (8,)} if name != "meow" else {"flow_hidden": (8,), "shift_hidden": (8,)}
    carrier = spec.make(3, 2, spec.config(**sizes))
    extra = (4,) if isinstance(carrier, OnPolicyCarrier) else ()
    state, fresh = (carrier.init(jax.random.key(k), *extra) for k in (0, 1))
    obs, action = X, jnp.tanh(X[:, :2])
    step = quick(carrier.recycle)
    jax.tree.map(np.testing.assert_array_equal, step(state, fresh, obs, action, jnp.float32(0)), state)
    new = step(state, fresh, obs, action, jnp.float32(10))
    assert jax.tree.map(jnp.shape, new) == jax.tree.map(jnp.shape, state)
    changed = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), new, state)
    assert sum(jax.tree.leaves(changed)) >= 4
