"""The registered schedules, and several of them as one schedule whose kind is data, for runs of one program."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.core import Tracer

from aesjax.registry import Registry
from aesjax.schedules.accumulated import aes, aes_d, aes_m, aes_prior
from aesjax.schedules.basic import auto, auto_floor, budget, fixed, linear
from aesjax.schedules.change import aes_c
from aesjax.schedules.proxies import DriftProxy
from aesjax.schedules.relative import aes_r, aes_r_auto, oracle
from aesjax.schedules.returns import trend
from aesjax.schedules.schedule import Schedule, ScheduleFactory
from aesjax.types import Array, EntropySchedule, Proxy, ScheduleState, Signals

_ALL = (
    *(fixed, auto, budget, auto_floor, linear, aes, aes_prior, aes_d, aes_m),
    *(aes_r, aes_r_auto, aes_c, trend, oracle),
)
SCHEDULES: Registry[ScheduleFactory] = Registry("schedule", **{factory.name: factory for factory in _ALL})


def switch(schedules: Sequence[EntropySchedule], index: Array | int) -> EntropySchedule:
    """The schedule at ``index``, () int32, which may be traced and mapped over; equal to that schedule alone.

    All members advance at every step, so every signal that any of them reads must be reported. The index is part of
    the run: changing it half-way hands over a weight, but no member's logs.

    Each member must compute its weight from its inner memory, its counter and the signals, because the weight and logs
    of its state are those of the selected schedule.

    >>> print(switch((fixed(0.1), fixed(0.5)), jnp.int32(1)).init().weight)
    0.5
    """
    if not schedules:
        raise ValueError("switch needs at least one schedule; got none.")
    if not isinstance(index, Tracer) and not 0 <= int(index) < len(schedules):
        raise ValueError(f"switch: index must lie in [0, {len(schedules) - 1}]; got {int(index)}.")
    index = jnp.asarray(index, jnp.int32)

    def select(states: tuple[ScheduleState, ...]) -> ScheduleState:
        shown = [(state.weight, state.count, state.logs) for state in states]
        # Selects fuse with the arithmetic before them; a gather would need a separate array.
        weight, count, logs = functools.reduce(
            lambda best, i: jax.tree.map(lambda a, b: jnp.where(index == i, b, a), best, shown[i]),
            range(1, len(shown)),
            shown[0],
        )
        inner = tuple((state.count, state.inner) for state in states)
        return ScheduleState(weight, count, inner, logs)

    def init() -> ScheduleState:
        return select(tuple(s.init() for s in schedules))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        states = tuple(
            schedule.update(signals, ScheduleState(state.weight, count, inner, state.logs))
            for schedule, (count, inner) in zip(schedules, state.inner, strict=True)
        )
        return select(states)

    return EntropySchedule(init, update)


def together(
    schedules: Sequence[Schedule], index: Array | int = 0, record: Sequence[DriftProxy] = ()
) -> EntropySchedule:
    """The schedule at ``index`` of several schedules; ``index`` and all options may be traced.

    A proxy that several schedules read at one place is computed once, at the quantile level of the schedule in force.
    ``measure`` of the result computes every proxy whose signal is present, and ``update`` the others.

    Args:
      schedules: one or more.
      record: further proxies to measure at that level, such as ``td_quantile(source="fresh")``.

    >>> print(together([fixed(0.1), fixed(0.3)], 1).init().weight)
    0.3
    """
    read = [schedule.reads for schedule in schedules]
    q, *levels = [each.proxy.q if isinstance(each.proxy, DriftProxy) else 0.9 for each in schedules]
    for number, level in enumerate(levels, 1):
        q = jnp.where(index == number, level, q)
    named = [proxy for proxy in (*read, *record) if isinstance(proxy, DriftProxy)]
    proxies = {proxy.key: proxy.factory(q, proxy.place) for proxy in named}

    def reader(proxy: Proxy | None) -> Proxy | None:
        """Measured value of a proxy, or the proxy itself, which raises for a missing signal."""
        if not isinstance(proxy, DriftProxy):
            return proxy

        def value(signals: Signals) -> Array:
            measured = signals.measured or {}
            return measured[proxy.key] if proxy.key in measured else proxies[proxy.key](signals)

        return value

    pairs = [schedule.built(reader(proxy)) for schedule, proxy in zip(schedules, read, strict=True)]
    one = pairs[0] if len(pairs) == 1 else switch(pairs, index)

    def measure(signals: Signals) -> Signals:
        measured = dict(signals.measured or {})
        for key, proxy in proxies.items():
            if key not in measured and getattr(signals, proxy.field) is not None:
                measured[key] = proxy(signals)
        return signals._replace(measured=measured)

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        return one.update(measure(signals), state)

    return EntropySchedule(one.init, update, measure)


def overridden(schedule: EntropySchedule, weights: Array, stride: Array, on: Array) -> EntropySchedule:
    """``schedule``, or where () ``on`` > 0 the recorded weights (T,), each in force for () ``stride`` updates.

    Updates are those that ``schedule`` counts: all of them for `fixed`, and not the ones that others skip (`held`).
    """

    def shown(state: ScheduleState) -> ScheduleState:
        played = weights[jnp.minimum(state.count // stride, weights.shape[0] - 1)]
        weight = jnp.where(on > 0, played, state.weight)
        raw = jnp.where(on > 0, played, state.logs.weight_raw)
        return state._replace(weight=weight, logs=state.logs._replace(weight_raw=raw))

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        return shown(schedule.update(signals, state))

    return EntropySchedule(lambda: shown(schedule.init()), update, schedule.measure)


def required_signals(schedules: Sequence[Schedule]) -> dict[str, str]:
    """`Signals` fields that these schedules read, each with its reader, for error messages.

    >>> required_signals([auto(), fixed()])
    {'log_prob': "schedule 'auto'"}
    """
    read = {field: f"schedule '{s.factory.name}'" for s in schedules for field in sorted(s.factory.needs)}
    for schedule in schedules:
        proxy = schedule.reads
        if isinstance(proxy, DriftProxy):
            read.setdefault(proxy.field, f"proxy '{proxy.factory.name}'")
    return read
