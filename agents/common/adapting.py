"""Adaptations of a run inside a training loop.

A state is a `loop.RunState`; its fields `coupling` and `adaptation` belong to this module. A lever that is None costs
nothing, because its presence is decided when a program is traced.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.adaptations import MOST_UPDATES, ONCE
from aesjax.schedules.rule import Mean, running_mean
from aesjax.seeding import stream
from aesjax.types import Array, Levers
from agents.common.buffer import effective_size
from agents.common.carrier import Carrier, OnPolicyCarrier
from agents.common.plasticity import isometric, refreshed


class Coupling(NamedTuple):
    """The paper's coupling ``eta_t = c lambda_t``, which has no definition for deep carriers.

    Here every learning rate is multiplied by ``lambda_t / mean_{s<=t} lambda_s``, so its average stays as set.
    """

    mean: Mean
    count: Array  # () int32


def levers_of(state: Any) -> Levers:
    """Levers in force; all None without adaptations."""
    return Levers() if state.adaptation is None else state.adaptation.levers


def refreshes(state: Any) -> bool:
    """Whether the program has runs whose parameters are refreshed."""
    return any(value is not None for value in (levers_of(state).refresh, levers_of(state).isometry))


def check(state: Any, carrier: Carrier | OnPolicyCarrier) -> None:
    """Raise a ValueError for a refresh without `networks`, or several gradient steps without a replay."""
    levers = levers_of(state)
    if refreshes(state) and not carrier.networks:
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

    Signals and metrics are those of the last one, but ``fresh_critic_drift`` is that of all together. Under `vmap` the
    loop ends at the largest count of the runs.
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
    if levers.window is not None or levers.recency is not None:  # effective size of the sampling distribution
        size = now.stored if levers.window is None else jnp.minimum(levers.window, now.stored)
        size = size if levers.recency is None else effective_size(levers.recency, size)
        logs |= {"window_share": size / now.stored}
    if levers.rate is not None:
        logs |= {"rate_factor": levers.rate}
    return logs


def refresh(
    state: Any,
    carrier: Carrier | OnPolicyCarrier,
    init: Callable[[Array], Any],
    key: Array,
) -> tuple[Any, dict[str, Array]]:
    """State after a due refresh of parameters, and the number of refreshes.

    ``init`` maps a key to a new agent.
    """
    levers = levers_of(state)
    if not refreshes(state):
        return state, {}
    fresh, moved, due = init(stream(key, "refresh")), state.agent, jnp.bool_(False)
    if levers.refresh is not None:
        moved = refreshed(carrier.networks, moved, fresh, levers.refresh, levers.refresh_actor)
        due |= levers.refresh > 0
    if levers.isometry is not None:
        moved = isometric(carrier.networks, moved, fresh, levers.isometry)
        due |= levers.isometry > 0
    agent = jax.tree.map(lambda new, old: jnp.where(due, new, old), moved, state.agent)
    done = {name: jnp.float32(0.0) for name in ONCE if getattr(levers, name) is not None}
    levers = levers._replace(**done)
    state = state._replace(agent=agent, adaptation=state.adaptation._replace(levers=levers))
    return state, {"refreshes": due.astype(jnp.float32)}
