"""`build`: adaptations by name as one, driven by one signal, with all that differs between runs as data."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from aesjax import schedules
from aesjax.adaptations.controls import Played
from aesjax.adaptations.rules import ADAPTATIONS, Now, Supply
from aesjax.schedules import SCHEDULES, Choice, ScheduleData
from aesjax.types import AdaptationState, Array, DriftAdaptation, Levers, Signals

DEFAULT_SIGNAL = "aes_r"
#: Values that change nothing.
NEUTRAL = Levers(window=jnp.inf, refresh=0.0, refresh_actor=0.0, rate=1.0, refresh_units=0.0, updates=1.0)  # type: ignore
#: Rule that combines two adaptations of one quantity.
_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "window": jnp.minimum,
    "refresh": jnp.maximum,
    "refresh_actor": jnp.maximum,
    "refresh_units": jnp.maximum,
    "rate": jnp.multiply,
    "updates": jnp.maximum,
}


class AdaptationData(NamedTuple):
    """One run's adaptations as data."""

    signal: ScheduleData  # which of the program's signals drives them, and its options
    on: Mapping[str, Any]  # adaptation -> () float32, 1 where the run has it
    options: Mapping[str, Mapping[str, Any]]  # adaptation -> option -> () float32
    updates: Any  # () float32, planned number of updates


def signal_of(schedule: str, given: str | None = None) -> str:
    """The schedule whose ratio turns the levers beside ``schedule``: itself, if its weight is its base times one.

    Raises:
      ValueError: ``given`` is a schedule without a ratio.
    """
    if given is None:
        return schedule if SCHEDULES[schedule].relative else DEFAULT_SIGNAL
    if not SCHEDULES[given].relative:
        known = ", ".join(name for name, spec in SCHEDULES.items() if spec.relative)
        raise ValueError(f"schedule '{given}' has no ratio that could turn levers; signals: {known}")
    return given


def build(
    names: Sequence[str],
    signals: Sequence[Choice],
    run: AdaptationData,
    supply: Supply,
    played: Played | None = None,
) -> DriftAdaptation:
    """The named adaptations as one; ``run.on`` says which of them a run has.

    The ratio is the weight of a relative schedule over the base 1 without clip: scale-free, and equal to the ratio of
    that schedule itself. Its proxy is taken from ``Signals.measured`` where it was computed already.

    Args:
      names: registered adaptations, all that some run of the program has.
      signals: relative schedules that drive them; may be empty where only the clock does.
      supply: static sizes of the run's replay.
      played: levers of a record; where it is on they are turned as the record says and not by ``names``.

    >>> options = SCHEDULES["aes_r"].filled({"base": 1.0, "updates": 1e4}, {})
    >>> data = ScheduleData(0, 0.9, {"aes_r": options})
    >>> run = AdaptationData(data, {"window": 1.0}, {"window": {"power": 2.0}}, 1e4)
    >>> supply = Supply(stored=1000, arriving=4, capacity=5000, floor=512)
    >>> build(["window"], [Choice("aes_r")], run, supply).init().levers.window
    Array(inf, dtype=float32)
    """
    names = tuple(names)
    signal = schedules.build(signals, _unclipped(run.signal)) if signals else None
    used = {ADAPTATIONS[name].lever for name in names}
    used |= {
        name for name, value in (Levers() if played is None else played.levers)._asdict().items() if value is not None
    }
    used |= {"refresh_actor"} if "refresh" in used else set()
    used |= {"refresh_units"} if any(ADAPTATIONS[name].units for name in names) else set()
    neutral = Levers(**{k: jnp.float32(v) for k, v in NEUTRAL._asdict().items() if k in used})
    updates = jnp.asarray(run.updates, jnp.float32)

    def init() -> AdaptationState:
        memory = tuple(ADAPTATIONS[name].start() for name in names)
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
        for name, memory in zip(names, state.memory, strict=True):
            options = {k: jnp.asarray(v, jnp.float32) for k, v in run.options[name].items()}
            turned, memory = ADAPTATIONS[name].adjust(now, memory, **options)
            memories.append(memory)
            for lever, value in turned._asdict().items():
                if value is not None:
                    mine = jnp.where(jnp.asarray(run.on[name]) > 0, value, getattr(NEUTRAL, lever))
                    values[lever] = _JOIN[lever](values[lever], mine.astype(jnp.float32))
        if played is not None:
            values = _playing(values, played, count, stored)
        if values["window"] is not None:
            narrow = values["window"] < stored
            values["window"] = jnp.where(narrow, jnp.maximum(values["window"], supply.floor), jnp.inf)
        for lever in ("refresh", "refresh_actor", "refresh_units"):  # stays due until it is done
            if values[lever] is not None:
                values[lever] = jnp.maximum(values[lever], getattr(state.levers, lever))
        return AdaptationState(Levers(**values), ratio, stored, count, ticked, tuple(memories))

    return DriftAdaptation(init, update)


def _unclipped(data: ScheduleData) -> ScheduleData:
    """The same schedules over the base 1 without clip: their weights are their ratios."""
    neutral = {"base": 1.0, "lambda_min": 0.0, "lambda_max": jnp.inf}
    options = {
        name: {option: neutral.get(option, value) for option, value in own.items()}
        for name, own in data.options.items()
    }
    return data._replace(options=options)


def _playing(values: dict[str, Any], played: Played, count: Array, stored: Array) -> dict[str, Any]:
    """``values``, or where the record is on its entry for the update after ``count``."""
    at = jnp.minimum(count // played.stride, played.weight.shape[0] - 1)
    begins = count % played.stride == 0  # a refresh is due once, when its sample begins
    for lever, values_of in played.levers._asdict().items():
        if values_of is not None:
            value = values_of[at]
            value = value * stored if lever == "window" else value
            value = jnp.where(begins, value, 0.0) if lever.startswith("refresh") else value
            values[lever] = jnp.where(played.on > 0, value, values[lever])
    return values
