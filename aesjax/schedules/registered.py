"""The registered schedules, and `together`: several of them as one schedule whose kind is data."""

from collections.abc import Sequence

import jax.numpy as jnp

from aesjax.registry import Registry
from aesjax.schedules.accumulated import aes, aes_d, aes_m, aes_prior
from aesjax.schedules.basic import auto, fixed, linear
from aesjax.schedules.change import aes_c
from aesjax.schedules.combine import switch
from aesjax.schedules.cost import budget
from aesjax.schedules.floor import auto_floor
from aesjax.schedules.proxies import DriftProxy
from aesjax.schedules.relative import aes_r, aes_r_auto, oracle
from aesjax.schedules.schedule import Schedule, ScheduleFactory
from aesjax.types import Array, EntropySchedule, Proxy, ScheduleState, Signals

_ALL = (
    *(fixed, auto, budget, auto_floor, linear, aes, aes_prior, aes_d, aes_m),
    *(aes_r, aes_r_auto, aes_c, oracle),
)
SCHEDULES: Registry[ScheduleFactory] = Registry("schedule", **{factory.name: factory for factory in _ALL})


def together(
    schedules: Sequence[Schedule], index: Array | int = 0, record: Sequence[DriftProxy] = ()
) -> EntropySchedule:
    """One of several schedules, of which ``index`` is in force; ``index`` and all options may be traced.

    A proxy that several schedules read at one place is computed once, at the quantile level of the schedule in force:
    order statistics are nearly all of a schedule's cost and XLA does not merge equal ones. ``measure`` of the result
    computes every proxy whose signal is present and ``update`` the others, so that a loop which feeds one rollout to
    many updates need not repeat them.

    Args:
      schedules: one or more.
      record: further proxies to measure at that level, such as ``td_quantile(source="fresh")``.

    Raises:
      ValueError: no schedule.

    >>> print(together([fixed(0.1), fixed(0.3)], 1).init().weight)
    0.3
    """
    if not schedules:
        raise ValueError("together needs at least one schedule")
    read = [schedule.reads for schedule in schedules]
    q, *levels = [each.proxy.q if isinstance(each.proxy, DriftProxy) else 0.9 for each in schedules]
    for number, level in enumerate(levels, 1):
        q = jnp.where(index == number, level, q)
    proxies: dict[str, DriftProxy] = {
        proxy.key: proxy.factory(q, proxy.place) for proxy in read if isinstance(proxy, DriftProxy)
    }
    proxies |= {proxy.key: proxy.factory(q, proxy.place) for proxy in record}

    def reader(proxy: Proxy) -> Proxy:
        """A proxy as its schedule reads it: its measured value, or the proxy itself, which reports a missing signal."""
        if not isinstance(proxy, DriftProxy):
            return proxy

        def value(signals: Signals) -> Array:
            measured = signals.measured or {}
            return measured[proxy.key] if proxy.key in measured else proxies[proxy.key](signals)

        return value

    pairs = [
        schedule.built(None if proxy is None else reader(proxy))
        for schedule, proxy in zip(schedules, read, strict=True)
    ]
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


def required_signals(schedules: Sequence[Schedule]) -> dict[str, str]:
    """The `Signals` fields that these schedules read, each with its reader, for error messages.

    >>> required_signals([auto(), fixed()])
    {'log_prob': "schedule 'auto'"}
    """
    read = {field: f"schedule '{s.factory.name}'" for s in schedules for field in sorted(s.factory.needs)}
    for schedule in schedules:
        proxy = schedule.reads
        if isinstance(proxy, DriftProxy):
            read.setdefault(proxy.field, f"proxy '{proxy.factory.name}'")
    return read
