"""The adaptations of a run as wrappers: each takes a plain function of a loop and returns one that also adapts.

A loop composes the wrappers that its program uses before it trains; the functions inside do not know of them. A state
is a `loop.RunState`, of which `coupling` and `adaptation` belong to this module.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.schedules.rule import Mean, running_mean
from aesjax.seeding import stream
from aesjax.types import Array
from agents.common.carrier import Carrier, OnPolicyCarrier
from agents.common.loop import AdaptationOf, LoopConfig, Run
from agents.common.plasticity import measures

_Plain = Callable[..., Any]


class Coupling(NamedTuple):
    """The paper's coupling ``eta_t = c lambda_t`` for deep carriers, where it has no definition of its own.

    Our reading: every learning rate of the carrier is multiplied by ``lambda_t / mean_{s<=t} lambda_s``, so that its
    average stays what the carrier's settings say. Scaling the rate is scaling the optimiser's update.
    """

    mean: Mean
    count: Array  # () int32


def _scaled(hyper: Any, factor: Array) -> Any:
    """``hyper`` with its ``*learning_rate`` fields multiplied by ``factor``."""
    rates = {name: getattr(hyper, name) * factor for name in hyper._fields if name.endswith("learning_rate")}
    return hyper._replace(**rates)


def started(init: _Plain, adaptation_of: AdaptationOf | None, config: LoopConfig) -> _Plain:
    """`init` with the state of the adaptations."""

    def adapted(run: Run) -> Any:
        coupling = Coupling(Mean(jnp.zeros(()), jnp.zeros(())), jnp.int32(0)) if config.coupling else None
        adaptation = None if adaptation_of is None else adaptation_of(run).init()
        return init(run)._replace(coupling=coupling, adaptation=adaptation)

    return adapted


def windowed(sample: _Plain) -> _Plain:
    """`sample` from the newest transitions only, as many as the adaptations allow."""
    return lambda state, key, step: sample(state, key, step, state.adaptation.levers.window)


def rated(update: _Plain) -> _Plain:
    """`update` with the learning rates that the adaptations choose."""

    def adapted(state: Any, run: Run, *batch: Any) -> Any:
        rate = state.adaptation.levers.rate
        return update(state, run if rate is None else run._replace(hyper=_scaled(run.hyper, rate)), *batch)

    return adapted


def coupled(update: _Plain) -> _Plain:
    """`update` with learning rates that follow the entropy weight in the runs that couple them: `Coupling`."""

    def adapted(state: Any, run: Run, *batch: Any) -> Any:
        weight, count = state.schedule.weight, state.coupling.count + 1
        mean = running_mean(state.coupling.mean, weight, count)
        # A weight of zero from the start (a carrier without entropy bonus) has nothing to couple to.
        ratio = jnp.where(mean.value > 0, weight / jnp.where(mean.value > 0, mean.value, 1.0), 1.0)
        hyper = _scaled(run.hyper, jnp.where(run.coupling > 0, ratio, 1.0))
        return update(state._replace(coupling=Coupling(mean, count)), run._replace(hyper=hyper), *batch)

    return adapted


def repeated(gradient_step: _Plain, most: int) -> _Plain:
    """`gradient_step` as often as the adaptations choose, at most ``most`` times, each on a batch of its own.

    Signals and metrics are those of the last one, so that a schedule's clock counts vector steps. Under `vmap` the loop
    ends at the largest count of the runs; a run that is done stays as it is. The first step needs no such selection.
    """

    def adapted(state: Any, run: Run, keys: Array, step: Array) -> Any:
        # As words, because JAX's key-reuse check takes folding an index into a used key for reuse.
        words, wanted = jax.random.key_data(keys), jnp.clip(state.adaptation.levers.updates, 1.0, most)

        def keys_of(index: Any) -> Array:
            return jax.vmap(lambda key: jax.random.fold_in(key, index))(jax.random.wrap_key_data(words))

        whole = jnp.floor(wanted)
        count = (whole + (jax.random.uniform(keys_of(0)[0]) < wanted - whole)).astype(jnp.int32)

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

    return adapted


def adjusted(tick: _Plain, adaptation_of: AdaptationOf) -> _Plain:
    """`tick` that also adjusts the adaptations by the update's signals, and logs those that were in force."""

    def adapted(state: Any, run: Run, signals: Any, *more: Any) -> Any:
        state, logs = tick(state, run, signals, *more)
        before, levers = state.adaptation, state.adaptation.levers
        logs |= {"response_ratio": before.ratio}
        if levers.window is not None:  # as a share of what is stored
            logs |= {"window_share": jnp.minimum(levers.window, before.stored) / before.stored}
        if levers.rate is not None:
            logs |= {"rate_factor": levers.rate}
        return state._replace(adaptation=adaptation_of(run).update(signals, before)), logs

    return adapted


def refreshing(part: _Plain, carrier: Any, init: _Plain, look: _Plain | None) -> _Plain:
    """`part` of a run, then the refresh of parameters that is due.

    Args:
      init: key -> an agent just initialised.
      look: state, key, last step, what else `part` reads -> observations (B, S) and actions (B, A) on which units are
        asleep or not; None: no unit is ever recycled.
    """

    def adapted(state: Any, run: Run, key: Array, steps: Array, *data: Any) -> Any:
        state, outputs, more = part(state, run, key, steps, *data)
        last, levers = jax.random.fold_in(key, steps[-1]), state.adaptation.levers
        fresh, done = init(stream(last, "refresh")), {"refresh": 0.0, "refresh_actor": 0.0}
        moved, due = carrier.refresh(state.agent, fresh, levers.refresh, levers.refresh_actor), levers.refresh > 0
        if look is not None and levers.refresh_units is not None:
            seen = look(state, stream(last, "recycle"), steps[-1], *data)
            moved = carrier.recycle(moved, fresh, *seen, levers.refresh_units)
            due, done = due | (levers.refresh_units > 0), done | {"refresh_units": 0.0}
        agent = jax.tree.map(lambda new, old: jnp.where(due, new, old), moved, state.agent)
        levers = levers._replace(**{name: jnp.float32(zero) for name, zero in done.items()})
        state = state._replace(agent=agent, adaptation=state.adaptation._replace(levers=levers))
        return state, outputs, more | {"refreshes": due.astype(jnp.float32)}

    return adapted


def measuring(part: _Plain, carrier: Any, look: _Plain) -> _Plain:
    """`part` of a run, then the plasticity of its agent, measured on what `look` returns (as in `refreshing`)."""

    def adapted(state: Any, run: Run, key: Array, steps: Array, *data: Any) -> Any:
        state, outputs, more = part(state, run, key, steps, *data)
        seen = look(state, stream(key, "plasticity"), steps[-1], *data)
        return state, outputs, more | measures(carrier.probe(state.agent, *seen))

    return adapted


def check_adaptations(
    carrier: Carrier | OnPolicyCarrier, adaptation_of: AdaptationOf | None, config: LoopConfig
) -> None:
    """Refuse, with a ValueError, adaptations that the carrier cannot follow and measures that it cannot take."""
    if config.plasticity and carrier.probe is None:
        raise ValueError("measures of plasticity need a carrier with a function `probe`")
    if config.refresh and (carrier.refresh is None or adaptation_of is None):
        raise ValueError("a refresh of parameters needs a carrier with a function `refresh`, and adaptations that ask")
    if config.updates > 1 and isinstance(carrier, OnPolicyCarrier):
        raise ValueError("several gradient steps per vector step need a replay, which an on-policy carrier lacks")
    if config.recycle and carrier.recycle is None:
        raise ValueError("recycling units needs a carrier with a function `recycle`")
