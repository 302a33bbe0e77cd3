"""Partial resets and recycled units of a carrier's networks."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp

from aesjax.types import Array
from agents.common.carrier import Network
from agents.common.optim import polyak, restarted


def refreshed(networks: Sequence[Network], state: Any, fresh: Any, critic: Any, actor: Any) -> Any:
    """Shrink-and-perturb, ``p + step (p_fresh - p)``, with () steps of the critic (and target) and of the actor.

    The optimiser state of moved parameters is reset. Other fields, such as running statistics, stay.
    """
    by, moved = {"critic": critic, "actor": actor}, {}
    for each in networks:
        steps = {name: by[each.role_of(name)] for name in getattr(state, each.params)["params"]}
        for field in (name for name in (each.params, each.target) if name):
            moved[field] = _stepped(getattr(state, field), getattr(fresh, field), steps)
        largest = reduce(jnp.maximum, (by[role] for role in sorted({each.role_of(name) for name in steps})))
        moved[each.opt] = restarted(getattr(state, each.opt), getattr(fresh, each.opt), largest)
    return state._replace(**moved)


def _stepped(old: Any, new: Any, steps: Any) -> Any:
    """Variables of a network, of every collection, moved by the step () of their top-level name."""

    def moved(kind: str) -> Any:
        return {name: polyak(leaf, new[kind][name], steps[name]) for name, leaf in old[kind].items()}

    return {kind: moved(kind) for kind in old}


def recycled(
    networks: Sequence[Network], state: Any, fresh: Any, obs: Array, action: Array, threshold: Array | float
) -> Any:
    """Give dormant units fresh incoming weights and outgoing weights of zero (ReDo, Sokar et al. 2023).

    The optimiser's moments of these weights are zeroed. The last layer of a shared trunk stays, because several heads
    read it. Deviations: the bias is fresh like the kernel, and the target network follows its online network.

    Args:
      threshold: () largest mean absolute activity of a dormant unit, as a share of its layer's mean; 0: none.
    """
    changed = {}
    for each in networks:
        params, opt = getattr(state, each.params)["params"], getattr(state, each.opt)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), params)
        renew, clear = _marks(_sown(each, state, obs, action), nothing, nothing, threshold)

        def through(renewed: Any, old: Any, renew: Any = renew, clear: Any = clear) -> Any:
            replaced = lambda r, c, new, p: jnp.where(c, 0.0, jnp.where(r, new, p))  # noqa: E731
            return {"params": jax.tree.map(replaced, renew, clear, renewed, old)}

        zero = jax.tree.map(jnp.zeros_like, params)
        changed[each.params] = getattr(state, each.params) | through(getattr(fresh, each.params)["params"], params)
        changed[each.opt] = _moments(opt, params, partial(through, zero))
    return state._replace(**changed)


def _moments(opt: Any, params: Any, change: Callable[[Any], Any]) -> Any:
    """Optimiser state after ``change`` of each part that has a number per parameter, such as Adam's moments."""
    shapes = {"params": jax.tree.map(jnp.shape, params)}

    def per_parameter(part: Any) -> bool:
        return isinstance(part, dict) and jax.tree.map(jnp.shape, part) == shapes

    return jax.tree.map(lambda x: change(x["params"]) if per_parameter(x) else x, opt, is_leaf=per_parameter)


def _sown(each: Network, state: Any, obs: Array, action: Array) -> Any:
    """Hidden activations of a network: a tuple (..., B, units) of layers per part, nested like the parameters."""
    params = getattr(state, each.params)
    return each.net.apply(params, *each.inputs(obs, action), mutable=["intermediates"])[1]["intermediates"]


def _marks(sown: Any, renew: Any, clear: Any, threshold: Any) -> tuple[Any, Any]:
    """Parameters of a part to take from a fresh network, and to set to zero; True each."""
    for name, inner in sown.items():
        if name != "hidden":
            new, zero = _marks(inner, renew[name], clear[name], threshold)
            renew, clear = renew | {name: new}, clear | {name: zero}
            continue
        for index, layer in enumerate(inner):
            here, after = f"Dense_{index}", f"Dense_{index + 1}"
            if after not in renew:
                continue
            units = asleep(layer, threshold) & (threshold > 0)
            incoming = renew[here]["kernel"] | jnp.expand_dims(units, -2)
            renew = renew | {here: renew[here] | {"kernel": incoming, "bias": renew[here]["bias"] | units}}
            outgoing = clear[after]["kernel"] | jnp.expand_dims(units, -1)
            clear = clear | {after: clear[after] | {"kernel": outgoing}}
    return renew, clear


def asleep(layer: Array, threshold: Array | float) -> Array:
    """Units (..., units) of a layer (..., B, units) with mean absolute activity of at most ``threshold`` of all."""
    activity = jnp.mean(jnp.abs(layer), -2)
    return activity <= threshold * jnp.mean(activity, -1, keepdims=True)
