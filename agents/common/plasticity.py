"""Plasticity of networks: dormant units, effective rank and norms. They are logged and never used for learning."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from aesjax.types import Array

DORMANT = 0.025  # of a layer's mean activity: Sokar et al. 2023


class Probe(NamedTuple):
    """One network on a batch."""

    params: Any
    layers: Sequence[Sequence[Array]]  # per part (a trunk, a coupling) its hidden layers in order, (..., B, units)


def hidden(net: nn.Module, params: Any, *args: Any) -> list[tuple[Array, ...]]:
    """The hidden activations of ``net`` on a batch, part by part."""
    _, seen = net.apply(params, *args, mutable=["intermediates"])
    return jax.tree.leaves(seen, is_leaf=lambda node: isinstance(node, tuple))


def seen_by_actor(obs: Array, action: Array, noisy: bool) -> Array:
    """Inputs of an actor; a ``noisy`` one takes noise of the action's shape beside the observation, here zero."""
    return jnp.concatenate([obs, jnp.zeros_like(action)], -1) if noisy else obs


def probe_networks(actor: nn.Module, critic: nn.Module, *, noisy: bool = False) -> Callable[..., dict[str, Probe]]:
    """`agents.common.carrier.Look` of `agents.common.optim.Networks`; ``noisy`` as in `seen_by_actor`."""

    def probe(state: Any, obs: Array, action: Array) -> dict[str, Probe]:
        seen = seen_by_actor(obs, action, noisy)
        critics = Probe(state.critic, hidden(critic, state.critic, obs, action))
        return {"critic": critics, "actor": Probe(state.actor, hidden(actor, state.actor, seen))}

    return probe


def probe_heads(net: nn.Module, state: Any, obs: Array, action: Array) -> dict[str, Probe]:
    """`agents.common.carrier.Look` of one network with the parts "policy" and "value", or a shared "trunk"."""
    del action
    parts, params = hidden(net, state.params, obs), state.params["params"]
    if "trunk" in params:
        return {"critic": Probe(params, parts)}
    return {"critic": Probe(params["value"], parts[1:]), "actor": Probe(params["policy"], parts[:1])}


def asleep(layer: Array, threshold: Array | float) -> Array:
    """Which units (..., units) of a layer (..., B, units) have mean |activity| of at most ``threshold`` of all."""
    activity = jnp.mean(jnp.abs(layer), -2)
    return activity <= threshold * jnp.mean(activity, -1, keepdims=True)


def dormant_share(layers: Sequence[Array]) -> Array:
    """Share () of all units whose mean absolute activity is at most `DORMANT` of their layer's mean (..., B, units)."""
    units = [jnp.ravel(asleep(layer, DORMANT)) for layer in layers]
    return jnp.mean(jnp.concatenate(units).astype(jnp.float32))


def effective_rank(features: Array) -> Array:
    """Participation ratio ``(sum s_i)^2 / sum s_i^2`` of the eigenvalues of the covariance of features (..., B, units).

    () mean over the leading axes, 1 to the number of units. Of the measures of rank the one that needs no
    decomposition: traces. About the mean, which in rectified features is larger than all else.
    """
    features = features - jnp.mean(features, -2, keepdims=True)
    gram = jnp.einsum("...bi,...bj->...ij", features, features)
    total = jnp.trace(gram, axis1=-2, axis2=-1)
    return jnp.mean(total**2 / jnp.maximum(jnp.sum(gram**2, (-2, -1)), jnp.finfo(jnp.float32).tiny))


def measures(probes: Mapping[str, Probe]) -> dict[str, Array]:
    """``NAME_dormant`` (share of units), ``NAME_rank`` (of the last hidden layer) and ``NAME_norm`` (of the weights).

    () float32 each.
    """
    found = {}
    for name, probe in probes.items():
        found[f"{name}_dormant"] = dormant_share([layer for part in probe.layers for layer in part])
        found[f"{name}_rank"] = jnp.mean(jnp.stack([effective_rank(part[-1]) for part in probe.layers]))
        found[f"{name}_norm"] = optax.tree.norm(probe.params)
    return found
