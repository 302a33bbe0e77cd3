"""Partial resets and isometries of a carrier's networks."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from aesjax.types import Array
from agents.common.carrier import Network
from agents.common.optim import polyak, restarted

_MOST, _EXACT = 60, 5e-6  # iterations of `isometry`, and largest error at which it ends earlier
_TINY = 1e-30


def refreshed(networks: Sequence[Network], state: Any, fresh: Any, critic: Any, actor: Any) -> Any:
    """Shrink-and-perturb, ``p + step (p_fresh - p)``, with () steps of the critic (and target) and of the actor.

    The optimiser state of moved parameters is reset. Other fields stay, such as the moments of
    observations; statistics inside of moved networks, such as those of batch renormalisation, move as well.
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


def isometric(networks: Sequence[Network], state: Any, fresh: Any, step: Array) -> Any:
    """Hidden kernels, moved by () ``step`` to their `isometry` (FIRE, Han et al. 2026); optimisers restart.

    A hidden kernel is one whose output another layer of the same part reads.
    """

    def moved(params: Any) -> Any:
        result = dict(params)
        for name, inner in params.items():
            prefix, _, index = name.rpartition("_")
            if prefix == "Dense" and f"Dense_{int(index) + 1}" in params:
                result[name] = inner | {"kernel": polyak(inner["kernel"], isometry(inner["kernel"], step > 0), step)}
            elif prefix != "Dense" and isinstance(inner, Mapping):
                result[name] = moved(inner)
        return result

    changed = {}
    for each in networks:
        for field in (name for name in (each.params, each.target) if name):
            changed[field] = getattr(state, field) | {"params": moved(getattr(state, field)["params"])}
        changed[each.opt] = restarted(getattr(state, each.opt), getattr(fresh, each.opt), step)
    return state._replace(**changed)


def isometry(kernel: Array, due: Array | bool = True) -> Array:
    """``sqrt(out / in)`` times the nearest orthogonal matrices of kernels (..., in, out), unless () ``due`` is False.

    Columns are orthonormal, or rows where there are fewer. By Newton-Schulz, as LAPACK's batched SVD waits for threads
    that wait for it; directions of singular value zero stay zero.
    """
    rows, columns = kernel.shape[-2:]
    tall = kernel if rows >= columns else jnp.swapaxes(kernel, -2, -1)
    eye = jnp.broadcast_to(jnp.eye(tall.shape[-1]), (*tall.shape[:-2], *2 * tall.shape[-1:]))

    def product(x: Array, y: Array) -> Array:
        return jnp.matmul(x, y, precision="highest")

    def going_on(carry: Any) -> Array:
        _, gram, count = carry
        return due & (count < _MOST) & (jnp.max(jnp.abs(gram - eye)) > _EXACT)

    def iterate(carry: Any) -> Any:
        x, gram, count = carry
        x = 1.5 * x - 0.5 * product(x, gram)
        return x, product(jnp.swapaxes(x, -2, -1), x), count + 1

    x = tall / jnp.maximum(jnp.sqrt(jnp.sum(tall**2, (-2, -1), keepdims=True)), _TINY)
    start = (x, product(jnp.swapaxes(x, -2, -1), x), jnp.int32(0))
    # A loop of no iteration where no run is due, also under `vmap`.
    x = (columns / rows) ** 0.5 * jax.lax.while_loop(going_on, iterate, start)[0]
    return jnp.where(due, x if rows >= columns else jnp.swapaxes(x, -2, -1), kernel)
