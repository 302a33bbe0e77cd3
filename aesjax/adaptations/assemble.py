"""`build`: responses by name as one, driven by one signal, with all that differs between runs as data."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from aesjax import schedules
from aesjax.adaptations.catalogue import RESPONSES
from aesjax.adaptations.controls import Played
from aesjax.adaptations.rules import Now, Supply
from aesjax.schedules import SCHEDULES, Choice, ScheduleHyper
from aesjax.types import Array, DriftResponse, Levers, ResponseState, Signals

DEFAULT_SIGNAL = "aes_r"
#: What leaves all as it is.
NEUTRAL = Levers(window=jnp.inf, refresh=0.0, refresh_actor=0.0, rate=1.0, refresh_units=0.0)  # type: ignore
#: How two responses that turn the same lever agree.
_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "window": jnp.minimum,
    "refresh": jnp.maximum,
    "refresh_actor": jnp.maximum,
    "refresh_units": jnp.maximum,
    "rate": jnp.multiply,
}


class ResponseHyper(NamedTuple):
    """One run's responses as data."""

    signal: Any  # () int32, which of the program's signals drives them
    on: Mapping[str, Any]  # response -> () float32, 1 where the run has it
    options: Mapping[str, Mapping[str, Any]]  # response -> option -> () float32


def signal_of(schedule: str, given: str | None = None) -> str:
    """The schedule whose ratio turns the levers beside ``schedule``: itself if its weight is its base times one.

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
    hyper: ScheduleHyper,
    run: ResponseHyper,
    supply: Supply,
    played: Played | None = None,
) -> DriftResponse:
    """The named responses as one; a run that has only some of them is told so by ``run.on``.

    The ratio is the weight of a relative schedule over the base 1 without clip: scale-free, and equal to the ratio of
    that schedule itself. Its proxy is taken from ``Signals.measured`` where it was computed already.

    Args:
      names: registered responses; those that the program's runs have among them.
      signals: what drives them, relative schedules; may be empty where only the clock does.
      hyper: of the run's schedule.
      supply: static sizes of the run's replay.
      played: levers of a record; where it is on they are turned as the record says and not by ``names``.

    >>> run = ResponseHyper(0, {"window": 1.0}, {"window": {"power": 2.0}})
    >>> supply = Supply(stored=1000, arriving=4, capacity=5000, floor=512)
    >>> build(["window"], [Choice("aes_r")], ScheduleHyper(), run, supply).init().levers.window
    Array(inf, dtype=float32)
    """
    names = tuple(names)
    relative = hyper._replace(base=1.0, lambda_min=0.0, lambda_max=jnp.inf)
    signal = schedules.build(signals, relative, run.signal if len(signals) > 1 else None) if signals else None
    used = {RESPONSES[name].lever for name in names}
    used |= {
        name for name, value in (Levers() if played is None else played.levers)._asdict().items() if value is not None
    }
    used |= {"refresh_actor"} if "refresh" in used else set()
    used |= {"refresh_units"} if any(RESPONSES[name].units for name in names) else set()
    neutral = Levers(**{k: jnp.float32(v) for k, v in NEUTRAL._asdict().items() if k in used})
    updates = jnp.asarray(hyper.updates, jnp.float32)

    def init() -> ResponseState:
        memory = tuple(RESPONSES[name].start() for name in names)
        signalled = signal.init() if signal else ()
        return ResponseState(neutral, jnp.float32(1), jnp.float32(supply.stored), jnp.int32(0), signalled, memory)

    def update(seen: Signals, state: ResponseState) -> ResponseState:
        count = state.count + 1
        ticked = signal.update(seen, state.signal) if signal else ()
        ratio = jnp.float32(1) if signal is None else jnp.maximum(ticked.weight, 1.0)  # type: ignore
        done = count.astype(jnp.float32)
        stored = jnp.minimum(supply.stored + supply.arriving * done, supply.capacity)
        now = Now(ratio, count, updates, stored, supply)
        values, memories = neutral._asdict(), []
        for name, memory in zip(names, state.memory, strict=True):
            options = {k: jnp.asarray(v, jnp.float32) for k, v in run.options[name].items()}
            turned, memory = RESPONSES[name].turn(now, memory, **options)
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
        return ResponseState(Levers(**values), ratio, stored, count, ticked, tuple(memories))

    return DriftResponse(init, update)


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
