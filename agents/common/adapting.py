"""Adaptations of a run inside a training loop.

A state is a `loop.RunState`; its fields `coupling` and `adaptation` belong to this module. A lever that is None costs
nothing, because its presence is decided when a program is traced.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.adaptations import MOST_UPDATES
from aesjax.schedules.rule import Mean, running_mean
from aesjax.seeding import stream
from aesjax.types import Array, Levers
from agents.common.carrier import Carrier, OnPolicyCarrier
from agents.common.plasticity import recycled, refreshed


class Coupling(NamedTuple):
    """The paper's coupling ``eta_t = c lambda_t``, which has no definition for deep carriers.

    Here every learning rate is multiplied by ``lambda_t / mean_{s<=t} lambda_s``, so its average stays as set.
    """

    mean: Mean
    count: Array  # () int32


def levers_of(state: Any) -> Levers:
    """Levers in force; all None without adaptations."""
    return Levers() if state.adaptation is None else state.adaptation.levers


def check(state: Any, carrier: Carrier | OnPolicyCarrier) -> None:
    """Raise a ValueError for a refresh without `networks`, or several gradient steps without a replay."""
    levers = levers_of(state)
    if levers.refresh is not None and not carrier.networks:
        raise ValueError(f"a refresh of parameters needs a carrier with `networks`; {type(carrier).__name__} has none")
    if levers.updates is not None and isinstance(carrier, OnPolicyCarrier):
        raise ValueError("several gradient steps per vector step need a replay, which an on-policy carrier lacks")


def paced(state: Any, run: Any) -> tuple[Any, Any]:
    """State, and the carrier's hyper with the learning rates in force, for one gradient step."""
    hyper, rate = run.hyper, levers_of(state).rate
    if state.coupling is not None:
        weight, count = state.schedule.weight, state.coupling.count + 1
        mean = running_mean(state.coupling.mean, weight, count)
        # A weight of zero from the start (a carrier without entropy bonus) has nothing to couple to.
        ratio = jnp.where(mean.value > 0, weight / jnp.where(mean.value > 0, mean.value, 1.0), 1.0)
        hyper = _scaled(hyper, jnp.where(run.coupling > 0, ratio, 1.0))
        state = state._replace(coupling=Coupling(mean, count))
    return state, hyper if rate is None else _scaled(hyper, rate)


def _scaled(hyper: Any, factor: Array) -> Any:
    """``hyper`` with its ``*learning_rate`` fields multiplied by ``factor``."""
    rates = {name: getattr(hyper, name) * factor for name in hyper._fields if name.endswith("learning_rate")}
    return hyper._replace(**rates)


def repeated(gradient_step: Callable[..., Any], state: Any, run: Any, keys: Array, step: Array) -> Any:
    """Repeat ``gradient_step`` as often as the adaptations choose, at most `MOST_UPDATES` times, on a new batch each.

    Signals and metrics are those of the last one. Under `vmap` the loop ends at the largest count of the runs.
    """
    if levers_of(state).updates is None:
        return gradient_step(state, run, keys, step)
    # As words, because JAX's key-reuse check takes folding an index into a used key for reuse.
    words, wanted = jax.random.key_data(keys), jnp.clip(levers_of(state).updates, 1.0, MOST_UPDATES)

    def keys_of(index: Any) -> Array:
        return jax.vmap(lambda key: jax.random.fold_in(key, index))(jax.random.wrap_key_data(words))

    floor = jnp.floor(wanted)
    count = (floor + (jax.random.uniform(keys_of(0)[0]) < wanted - floor)).astype(jnp.int32)

    def again(carry: Any) -> Any:
        index, agent, coupling, _ = carry
        now = state._replace(agent=agent, coupling=coupling)
        now, out = gradient_step(now, run, keys_of(index), step)
        return index + 1, now.agent, now.coupling, out._replace(state=None)

    first, out = gradient_step(state, run, keys, step)
    start = (jnp.int32(1), first.agent, first.coupling, out._replace(state=None))
    _, agent, coupling, out = jax.lax.while_loop(lambda carry: carry[0] < count, again, start)
    metrics = out.metrics | {"gradient_steps": count.astype(jnp.float32)}
    return state._replace(agent=agent, coupling=coupling), out._replace(state=agent, metrics=metrics)


def in_force(state: Any) -> dict[str, Array]:
    """Logs of the levers in force."""
    if state.adaptation is None:
        return {}
    now, levers = state.adaptation, state.adaptation.levers
    logs = {"response_ratio": now.ratio}
    if levers.window is not None:  # as a share of the stored transitions
        logs |= {"window_share": jnp.minimum(levers.window, now.stored) / now.stored}
    if levers.rate is not None:
        logs |= {"rate_factor": levers.rate}
    return logs


def refresh(
    state: Any,
    carrier: Carrier | OnPolicyCarrier,
    init: Callable[[Array], Any],
    key: Array,
    look: Callable[[Array], tuple[Array, Array]],
) -> tuple[Any, dict[str, Array]]:
    """State after a due refresh of parameters, and the number of refreshes.

    ``init`` maps a key to a new agent, ``look`` to the observations and actions on which dormant units are found.
    """
    levers = levers_of(state)
    if levers.refresh is None:
        return state, {}
    fresh, done = init(stream(key, "refresh")), {"refresh": 0.0, "refresh_actor": 0.0}
    moved = refreshed(carrier.networks, state.agent, fresh, levers.refresh, levers.refresh_actor)
    due = levers.refresh > 0
    if levers.refresh_units is not None:
        moved = recycled(carrier.networks, moved, fresh, *look(stream(key, "recycle")), levers.refresh_units)
        due, done = due | (levers.refresh_units > 0), done | {"refresh_units": 0.0}
    agent = jax.tree.map(lambda new, old: jnp.where(due, new, old), moved, state.agent)
    levers = levers._replace(**{name: jnp.float32(zero) for name, zero in done.items()})
    state = state._replace(agent=agent, adaptation=state.adaptation._replace(levers=levers))
    return state, {"refreshes": due.astype(jnp.float32)}
