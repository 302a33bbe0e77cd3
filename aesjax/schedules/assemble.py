"""`build`: schedules by name, each with its proxy, as one schedule whose kind is data."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from aesjax.schedules.catalogue import SCHEDULES, ScheduleHyper, check
from aesjax.schedules.combine import switch
from aesjax.schedules.proxies import PROXIES
from aesjax.types import Array, EntropySchedule, Proxy, ScheduleState, Signals


class Choice(NamedTuple):
    """A registered schedule and what feeds it."""

    schedule: str
    proxy: str = "td_quantile"
    source: str | None = None  # "update" or "fresh"; None: the schedule's default

    @property
    def key(self) -> str:
        """Name of the proxy's value among the measured ones, such as "td_quantile/fresh"."""
        source = SCHEDULES[self.schedule].default_source if self.source is None else self.source
        return f"{self.proxy}/{source}"


_Choices = Sequence[str | Choice] | str | Choice


def build(
    names: _Choices,
    hyper: ScheduleHyper,
    index: Array | int | None = None,
    proxy: str = "td_quantile",
    source: str | None = None,
    record: Sequence[str] = (),
) -> EntropySchedule:
    """The named schedule, or a `switch` over several, each fed by a proxy.

    A proxy that several schedules share is computed once: order statistics are nearly all of a schedule's cost and
    XLA does not merge equal ones. ``measure`` of the result computes every proxy whose signal is present and
    ``update`` the others, so that a loop which feeds one rollout to many updates need not repeat itself.

    Args:
      names: registered schedules, or `Choice`s where they differ in what feeds them.
      hyper: their hyper-parameters, may be traced; concrete ones are checked.
      index: () int32 into ``names``, may be traced; needed for more than one name.
      proxy, source: for those given by name only; source None: each schedule's default.
      record: further proxies to measure, such as "td_quantile/update", although no schedule reads them.

    Raises:
      UnknownNameError: unknown schedule or proxy. ValueError: no names, no index, or a value out of range.

    >>> print(build("fixed", ScheduleHyper(base=0.1)).init().weight)
    0.1
    """
    choices = _choices(names, proxy, source)
    check(hyper)
    wanted = {**_sources(choices), **{key: _proxy_of(key) for key in record}}
    proxies = {key: PROXIES[name].build(hyper.q, where) for key, (name, where) in wanted.items()}
    if len(choices) > 1 and index is None:
        raise ValueError(f"build needs an index to choose among {len(choices)} schedules: {_listed(choices)}.")
    members = [SCHEDULES[c.schedule].build(hyper, _reader(c, proxies)) for c in choices]
    whole = members[0] if index is None else switch(members, index)

    def measure(signals: Signals) -> Signals:
        measured = dict(signals.measured or {})
        for key, (name, where) in wanted.items():
            if key not in measured and getattr(signals, PROXIES[name].fields[where]) is not None:
                measured[key] = proxies[key](signals)
        return signals._replace(measured=measured)

    def update(signals: Signals, state: ScheduleState) -> ScheduleState:
        return whole.update(measure(signals), state)

    return EntropySchedule(whole.init, update, measure)


def required_signals(names: _Choices, proxy: str = "td_quantile", source: str | None = None) -> dict[str, str]:
    """The `Signals` fields that `build` with these arguments reads, each with who reads it, for error messages.

    >>> required_signals(["auto", "fixed"])
    {'log_prob': "schedule 'auto'"}
    """
    choices = _choices(names, proxy, source)
    read = {field: f"schedule '{c.schedule}'" for c in choices for field in sorted(SCHEDULES[c.schedule].needs)}
    for name, where in _sources(choices).values():
        read.setdefault(PROXIES[name].fields[where], f"proxy '{name}'")
    return read


def _choices(names: _Choices, proxy: str, source: str | None) -> tuple[Choice, ...]:
    items = (names,) if isinstance(names, str | Choice) else tuple(names)
    if not items:
        raise ValueError(f"at least one schedule is needed; registered: {', '.join(SCHEDULES)}.")
    choices = tuple(Choice(item, proxy, source) if isinstance(item, str) else item for item in items)
    for choice in choices:
        for registry, name in ((SCHEDULES, choice.schedule), (PROXIES, choice.proxy)):
            registry[name]  # an unknown one raises
    return choices


def _listed(choices: Sequence[Choice]) -> str:
    return ", ".join(choice.schedule for choice in choices)


def _proxy_of(key: str) -> tuple[str, str]:
    """Proxy and source of a key such as "td_quantile/update"."""
    name, _, where = key.partition("/")
    fields = PROXIES[name].fields
    if where not in fields:
        raise ValueError(f"proxy '{name}' has no source '{where}'; sources: {', '.join(fields)}")
    return name, where


def _sources(choices: Sequence[Choice]) -> dict[str, tuple[str, str]]:
    return {c.key: _proxy_of(c.key) for c in choices if SCHEDULES[c.schedule].uses_proxy}


def _reader(choice: Choice, proxies: dict[str, Proxy]) -> Proxy:
    """The proxy of a member: its measured value, or the proxy itself, which then says what is missing."""
    if not SCHEDULES[choice.schedule].uses_proxy:
        return cast(Proxy, None)

    def read(signals: Signals) -> Array:
        measured = signals.measured or {}
        return measured[choice.key] if choice.key in measured else proxies[choice.key](signals)

    return read
