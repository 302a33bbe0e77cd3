"""`together`: several adaptations as one, driven by one signal; the differences between runs are data."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from aesjax import schedules
from aesjax.adaptations.controls import Played
from aesjax.adaptations.rules import ONCE, Adaptation, Now, Supply
from aesjax.schedules import SCHEDULES, Schedule, aes_r
from aesjax.types import AdaptationState, Array, DriftAdaptation, Levers, Signals

#: Lever values without effect.
_INACTIVE: Any = {"window": jnp.inf, "recency": jnp.inf, "rate": 1.0, "updates": 1.0, **dict.fromkeys(ONCE, 0.0)}
NEUTRAL = Levers(**_INACTIVE)
#: Rules that combine two adaptations of one lever; of the others the larger value is in force.
_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "window": jnp.minimum,
    "recency": jnp.minimum,
    "rate": jnp.multiply,
}


def driver_of(schedule: Schedule, adaptations: Sequence[Adaptation], given: Schedule | None = None) -> Schedule | None:
    """The schedule whose ratio drives the adaptations of a run; None if none of them reads a ratio.

    It is ``given``, else ``schedule`` if that is relative, else `aes_r`. Options that it does not set are taken from
    ``schedule``, if they have the same name and range there.

    Raises:
      ValueError: ``given`` is a schedule without a ratio, or no adaptation reads one.
    """
    reads = any(adaptation.factory.uses_signal for adaptation in adaptations)
    if given is None:
        given = schedule if schedule.factory.relative else aes_r()
    elif not given.factory.relative:
        known = ", ".join(name for name, factory in SCHEDULES.items() if factory.relative)
        raise ValueError(f"schedule '{given.factory.name}' has no ratio that could drive adaptations; signals: {known}")
    elif not reads:
        rule = "+".join((schedule.factory.name, *(each.factory.name for each in adaptations)))
        raise ValueError(f"signal '{given.factory.name}' drives adaptations, and '{rule}' has none that reads one")
    if not reads or given is None:
        return None
    theirs, ours = ({**each.factory.known_ranges, **each.factory.ranges} for each in (schedule, given))
    alike = [name for name in given.factory.signature.names if theirs.get(name) == ours.get(name)]
    shared = {name: value for name, value in schedule.options.items() if name in alike}
    return Schedule(given.factory, {**shared, **given.given}, schedule.proxy if given.proxy is None else given.proxy)


def together(
    adaptations: Sequence[Adaptation],
    signals: Sequence[Schedule],
    driver: Any,
    updates: Any,
    supply: Supply,
    played: Played | None = None,
) -> DriftAdaptation:
    """Several adaptations as one; each acts where its ``on`` is above 0. All numbers may be traced.

    The ratio is the weight of a relative schedule over the base 1 without clip.

    Args:
      adaptations: union over the runs of the program, with complete options.
      signals: relative schedules with complete options that drive them; empty if all act at fixed intervals.
      driver: () int32, index into ``signals``.
      updates: () planned number of updates.
      supply: static sizes of the run's replay.
      played: values of a record, which replace those of ``adaptations``.

    >>> from aesjax.adaptations import window
    >>> facts = {"base": 1.0, "updates": 1e4}
    >>> supply = Supply(stored=1000, arriving=4, capacity=5000, floor=512)
    >>> together([window(power=2.0)], [aes_r().filled(facts)], 0, 1e4, supply).init().levers.window
    Array(inf, dtype=float32)
    """
    adaptations = tuple(adaptations)
    signal = schedules.together([_unclipped(each) for each in signals], driver) if signals else None
    used = {each.factory.lever for each in adaptations}
    used |= {
        name for name, value in (Levers() if played is None else played.levers)._asdict().items() if value is not None
    }
    used |= {"refresh_actor"} if "refresh" in used else set()
    neutral = Levers(**{k: jnp.float32(v) for k, v in NEUTRAL._asdict().items() if k in used})
    updates = jnp.asarray(updates, jnp.float32)

    def init() -> AdaptationState:
        memory = tuple(each.factory.start() for each in adaptations)
        signalled = signal.init() if signal else ()
        return AdaptationState(neutral, jnp.float32(1), jnp.float32(supply.stored), jnp.int32(0), signalled, memory)

    def update(seen: Signals, state: AdaptationState) -> AdaptationState:
        count = state.count + 1
        ticked = signal.update(seen, state.signal) if signal else ()
        ratio = jnp.float32(1) if signal is None else jnp.maximum(ticked.weight, 1.0)  # type: ignore
        done = count.astype(jnp.float32)
        stored = jnp.minimum(supply.stored + supply.arriving * done, supply.capacity)
        now = Now(ratio, count, updates, stored, supply)
        values, memories = neutral._asdict(), []
        for each, memory in zip(adaptations, state.memory, strict=True):
            options = {k: jnp.asarray(v, jnp.float32) for k, v in each.given.items()}
            turned, memory = each.factory.make(now, memory, **options)
            memories.append(memory)
            for lever, value in turned._asdict().items():
                if value is not None:
                    mine = jnp.where(jnp.asarray(each.on) > 0, value, getattr(NEUTRAL, lever))
                    values[lever] = _JOIN.get(lever, jnp.maximum)(values[lever], mine.astype(jnp.float32))
        if played is not None:
            values = _playing(values, played, count, stored)
        if values["window"] is not None:
            narrow = values["window"] < stored
            values["window"] = jnp.where(narrow, jnp.maximum(values["window"], supply.floor), jnp.inf)
        if values["recency"] is not None:
            values["recency"] = jnp.maximum(values["recency"], supply.floor / math.e)
        for lever in ONCE:  # stays due until it is done
            if values[lever] is not None:
                values[lever] = jnp.maximum(values[lever], getattr(state.levers, lever))
        return AdaptationState(Levers(**values), ratio, stored, count, ticked, tuple(memories))

    return DriftAdaptation(init, update)


def _unclipped(signal: Schedule) -> Schedule:
    """The schedule over the base 1 without clip; its weight is the ratio."""
    neutral = {"base": 1.0, "lambda_min": 0.0, "lambda_max": jnp.inf}
    given = {name: neutral.get(name, value) for name, value in signal.given.items()}
    return Schedule(signal.factory, given, signal.proxy)


def _playing(values: dict[str, Any], played: Played, count: Array, stored: Array) -> dict[str, Any]:
    """``values``, or the recorded values for the update after ``count`` if a record is played."""
    # The values are those after update ``count``; a refresh is due once, after the first update of its sample.
    begins = (count - 1) % played.stride == 0
    for lever, values_of in played.levers._asdict().items():
        if values_of is not None:
            sample = (count - (lever in ONCE)) // played.stride
            value = values_of[jnp.minimum(sample, played.weight.shape[0] - 1)]
            value = value * stored if lever in ("window", "recency") else value
            value = jnp.where(begins, value, 0.0) if lever in ONCE else value
            values[lever] = jnp.where(played.on > 0, value, values[lever])
    return values
