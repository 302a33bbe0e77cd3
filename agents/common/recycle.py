"""Recycling of dormant units (ReDo, Sokar et al. 2023): units that hardly answer to anything get fresh incoming weights
and outgoing weights of zero, so that what the network computes stays nearly as it was."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from aesjax.types import Array
from agents.common.carrier import Recycle
from agents.common.plasticity import asleep, seen_by_actor


def recycled(net: nn.Module, params: Any, fresh: Any, opt: Any, threshold: Array, *inputs: Array) -> tuple[Any, Any]:
    """Parameters and Adam's state of ``net`` in which units asleep on a batch begin anew; their moments are zero.

    Hidden layers are those that the modules of `agents` sow, ``Dense_0``, ``Dense_1``, ... of each part. The last one
    of a trunk, whose outgoing weights belong to several heads, is left as it is. Deviations from the reference: the
    bias begins anew like the kernel, and the target network is left to follow.

    Args:
      fresh: parameters just initialised.
      opt: Adam's state.
      threshold: () of a unit's mean absolute activity, as a share of its layer's mean; at 0 nothing is recycled.
      inputs: of ``net``, (B, ...) each.
    """
    _, seen = net.apply(params, *inputs, mutable=["intermediates"])
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), params["params"])
    renew, clear = _marks(seen["intermediates"], nothing, nothing, threshold)

    def through(renewed: Any, old: Any) -> Any:
        changed = jax.tree.map(lambda r, c, new, p: jnp.where(c, 0.0, jnp.where(r, new, p)), renew, clear, renewed, old)
        return {"params": changed}

    zero = jax.tree.map(jnp.zeros_like, params["params"])
    moments = {name: through(zero, getattr(opt, name)["params"]) for name in ("mu", "nu")}
    return through(fresh["params"], params["params"]), opt._replace(**moments)


def _marks(seen: Any, renew: Any, clear: Any, threshold: Array) -> tuple[Any, Any]:
    """Which parameters of a part to take from a fresh network and which to set to zero, True each."""
    for name, inner in seen.items():
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


def recycle_networks(actor: nn.Module, critic: nn.Module, *, noisy: bool = False) -> Recycle:
    """`agents.common.carrier.Recycle` of `agents.common.optim.Networks`.

    Args:
      noisy: the actor takes noise of the action's shape beside the observation.
    """

    def recycle(state: Any, fresh: Any, obs: Array, action: Array, threshold: Array) -> Any:
        seen = seen_by_actor(obs, action, noisy)
        first, first_opt = recycled(actor, state.actor, fresh.actor, state.actor_opt, threshold, seen)
        other, other_opt = recycled(critic, state.critic, fresh.critic, state.critic_opt, threshold, obs, action)
        return state._replace(actor=first, actor_opt=first_opt, critic=other, critic_opt=other_opt)

    return recycle


def recycle_tree(net: nn.Module, *, acts: bool = False) -> Recycle:
    """The same of a state with one network and one optimiser; ``acts``: actions are among the network's inputs."""

    def recycle(state: Any, fresh: Any, obs: Array, action: Array, threshold: Array) -> Any:
        inputs = (obs, action) if acts else (obs,)
        params, opt = recycled(net, state.params, fresh.params, state.opt, threshold, *inputs)
        return state._replace(params=params, opt=opt)

    return recycle
