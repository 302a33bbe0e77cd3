"""The registered schedules, and `build`: several of them as one schedule whose kind is data."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from aesjax.registry import Registry
from aesjax.schedules.accumulated import aes, aes_d, aes_m, aes_prior
from aesjax.schedules.basic import auto, fixed, linear
from aesjax.schedules.change import aes_c
from aesjax.schedules.combine import switch
from aesjax.schedules.cost import budget
from aesjax.schedules.floor import auto_floor
from aesjax.schedules.proxies import PROXIES, ProxyFactory
from aesjax.schedules.relative import aes_r, aes_r_auto, oracle
from aesjax.schedules.schedule import ScheduleFactory
from aesjax.types import Array, EntropySchedule, Proxy, ScheduleState, Signals

_ALL = (
    *(fixed, auto, budget, auto_floor, linear, aes, aes_prior, aes_d, aes_m),
    *(aes_r, aes_r_auto, aes_c, oracle),
)
SCHEDULES: Registry[ScheduleFactory] = Registry("schedule", **{factory.name: factory for factory in _ALL})


class Choice(NamedTuple):
    """A registered schedule and what its proxy is: the structure of one kind of run."""

    schedule: Any  # its name, or a factory
    proxy: Any = "td_quantile"  # likewise
    source: str | None = None  # "update" or "fresh"; None: the schedule's default

    @property
    def factory(self) -> ScheduleFactory:
        """The schedule; raises UnknownNameError where it is not registered."""
        return SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.factory.name

    @property
    def measured(self) -> ProxyFactory:
        """The proxy; likewise."""
        return PROXIES[self.proxy] if isinstance(self.proxy, str) else self.proxy

    @property
    def place(self) -> str:
        """Where the proxy reads, "update" or "fresh"."""
        return self.factory.source if self.source is None else self.source

    @property
    def key(self) -> str:
        """Name of the proxy's value among the measured ones, such as "td_quantile/fresh"."""
        return f"{self.measured.name}/{self.place}"


class ScheduleData(NamedTuple):
    """One run's schedule as data, () float32 each; of runs of one program all have the same structure."""

    index: Any  # () int32, which of the program's schedules
    q: Any  # quantile level of its proxy
    options: Mapping[str, Mapping[str, Any]]  # schedule -> option -> value, of all schedules of the program


def build(
    choices: Sequence[Choice],
    data: ScheduleData,
    record: Sequence[str] = (),
    static: Mapping[str, Any] = MappingProxyType({}),
) -> EntropySchedule:
    """The chosen schedule, or a `switch` over several, each with its proxy.

    A proxy that several schedules share is computed once: order statistics are nearly all of a schedule's cost and
    XLA does not merge equal ones. ``measure`` of the result computes every proxy whose signal is present and
    ``update`` the others, so that a loop which feeds one rollout to many updates need not repeat itself.

    Args:
      choices: one or more; ``data.index`` chooses among several.
      data: complete options, may be traced.
      static: arguments of a single schedule that are no options.
      record: further proxies to measure, such as "td_quantile/update", although no schedule reads them.

    Raises:
      UnknownNameError: unknown schedule or proxy. ValueError: none.

    >>> print(build([Choice("fixed")], ScheduleData(0, 0.9, {"fixed": {"base": 0.1}})).init().weight)
    0.1
    """
    proxies = {c.key: c.measured(data.q, c.place) for c in choices if c.factory.uses_proxy}
    for key in record:
        name, _, where = key.partition("/")
        proxies[key] = PROXIES[name](data.q, where)
    members = [c.factory.build(data.options[c.name], _reader(c, proxies), **static) for c in choices]
    whole = members[0] if len(members) == 1 else switch(members, data.index)

    def measure(signals: Signals) -> Signals:
        measured = dict(signals.measured or {})
        for key, proxy in proxies.items():
            if key not in measured and getattr(signals, proxy.field) is not None:
                measured[key] = proxy(signals)
        return signals._replace(measured=measured)

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        return whole.update(measure(signals), state)

    return EntropySchedule(whole.init, update, measure)


def required_signals(choices: Sequence[Choice]) -> dict[str, str]:
    """The `Signals` fields that `build` of these reads, each with its reader, for error messages.

    >>> required_signals([Choice("auto"), Choice("fixed")])
    {'log_prob': "schedule 'auto'"}
    """
    read = {field: f"schedule '{c.schedule}'" for c in choices for field in sorted(c.factory.needs)}
    for c in choices:
        if c.factory.uses_proxy:
            read.setdefault(c.measured(source=c.place).field, f"proxy '{c.measured.name}'")
    return read


def _reader(choice: Choice, proxies: Mapping[str, Proxy]) -> Proxy:
    """The proxy of a member: its measured value, or the proxy itself, which then says what is missing."""
    if not choice.factory.uses_proxy:
        return cast(Proxy, None)

    def read(signals: Signals) -> Array:
        measured = signals.measured or {}
        return measured[choice.key] if choice.key in measured else proxies[choice.key](signals)

    return read
