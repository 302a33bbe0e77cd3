"""A method: an agent, the schedule of its entropy weight, and what else the drift signal adjusts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from aesjax.adaptations import ADAPTATIONS, Adaptation, AdaptationFactory, signal_of
from aesjax.schedules import SCHEDULES, DriftProxy, ProxyFactory, Schedule, ScheduleFactory
from agents import CARRIERS, CarrierSpec
from experiments.study.plugins import name_of

BASELINE = "baseline"
SOURCES = ("update", "fresh")
COUPLING = "coupling"
ABSOLUTE = ("base", "lambda_min", "lambda_max", "updates")  # on which a ratio does not depend, though a weight does
BLOCKS = 20  # of time, in which a control permutes a record


class Control(NamedTuple):
    """The record of another method's runs, played."""

    name: str  # registered
    of: "Method"
    blocks: int = BLOCKS


@dataclass(frozen=True, init=False)
class Method:
    """One method of a study: a carrier, a schedule, adaptations.

    Equal methods train equal runs. Objects are stored by their registered name; one that is not registered (of a
    notebook cell or a script) is registered under its own.
    """

    carrier: str
    schedule: str = BASELINE
    values: tuple[tuple[str, float], ...] = ()  # options of the schedule, and of adaptations as "window.power"
    adaptations: tuple[str, ...] = ()
    proxy: str | None = None  # None: the study's
    source: str | None = None
    signal: str | None = None  # schedule whose ratio drives the adaptations; None: the default
    label: str | None = None  # in tables instead of the schedule's
    control: Control | None = None  # then the schedule is `fixed`, and not used
    typed: str | None = field(default=None, compare=False, repr=False)  # the string it was parsed from, if any

    def __init__(
        self,
        carrier: str | CarrierSpec,
        schedule: Any = BASELINE,
        adaptations: Sequence[str | Adaptation | AdaptationFactory] | str = (),
        *,
        label: str | None = None,
        signal: str | ScheduleFactory | None = None,
        coupling: bool = False,
        proxy: str | ProxyFactory | DriftProxy | None = None,
        source: str | None = None,
        control: Control | None = None,
        options: Mapping[str, float] | None = None,
    ):
        """Describe a method.

        Args:
          carrier: "sac", "ppo", "sql", "meow", or a carrier of your own.
          schedule: a registered name, ``aes(kappa=0.3)``, or a function that returns an `EntropySchedule`.
          adaptations: registered names, or objects such as ``recent(share=0.1)``.
          label: name of the schedule in tables, as in "SAC+LABEL".
          signal: schedule whose ratio drives the adaptations; by default the method's own, or `aes_r`.
          coupling: learning rates follow the entropy weight.
          proxy, source: of the schedule, instead of the study's.
          control: the record of another method that is played instead.
          options: of the schedule by name, besides those of the object.

        Raises:
          ValueError, UnknownNameError, TypeError: something is not registered, not an option, or outside its range.
        """
        given: dict[str, Any] = {}
        chosen_proxy: Any = proxy
        if isinstance(schedule, Schedule):
            if schedule.static:
                raise ValueError(
                    f"'{next(iter(schedule.static))}' of schedule '{schedule.factory.name}' is part of its structure, "
                    "which a study cannot vary; wrap it in a function of your own, as_schedule"
                )
            given, chosen_proxy = schedule.options, schedule.proxy if proxy is None else proxy
            schedule = schedule.factory
        name = schedule if schedule == BASELINE else name_of("schedule", schedule)
        if isinstance(chosen_proxy, DriftProxy):
            source = chosen_proxy.source if source is None else source
            if float(chosen_proxy.q) != 0.9:
                given["q"] = chosen_proxy.q
            chosen_proxy = chosen_proxy.factory
        given |= dict(options or {})
        parts = [adaptations] if isinstance(adaptations, str | Adaptation | AdaptationFactory) else adaptations
        chosen: dict[str, Mapping[str, float]] = {}
        for part in parts:
            factory, own = part if isinstance(part, Adaptation) else (part, {})
            adaptation = name_of("adaptation", factory)
            if adaptation in chosen:
                raise ValueError(f"adaptation '{adaptation}' is given twice")
            ADAPTATIONS[adaptation].check(own)
            chosen[adaptation] = own
        ordered = tuple(each for each in ADAPTATIONS if each in chosen)
        adjusted = [(f"{each}.{option}", value) for each in ordered for option, value in chosen[each].items()]
        values = [(option, single(f"option '{option}' of schedule '{name}'", value)) for option, value in given.items()]
        values += [(COUPLING, 1.0)] if coupling else []
        values += [(option, single(f"option '{option}'", value)) for option, value in adjusted]
        fields = {
            "carrier": name_of("carrier", carrier),
            "schedule": name,
            "values": tuple(values),
            "adaptations": ordered,
            "proxy": None if chosen_proxy is None else name_of("proxy", chosen_proxy),
            "source": source,
            "signal": None if signal is None else name_of("schedule", signal),
            "label": label,
            "control": control,
            "typed": None,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check(given)

    def _check(self, given: Mapping[str, Any]) -> None:
        if self.source is not None and self.source not in SOURCES:
            raise ValueError(f"source must be one of {', '.join(SOURCES)}; got '{self.source}'")
        if self.label is not None and (not self.label.strip() or set(self.label) & set(":,+=[]")):
            raise ValueError(f"a label is text without any of : , + = [ ]; got '{self.label}'")
        if self.signal is not None:
            signal_of(BASELINE, self.signal)
            if not any(ADAPTATIONS[name].uses_signal for name in self.adaptations):
                rule = "+".join((self.schedule, *self.adaptations))
                raise ValueError(f"signal '{self.signal}' drives adaptations, and '{rule}' has none that reads one")
        reads = self.options
        for option in given:
            if option not in reads:
                allowed = ", ".join(sorted({"proxy", "source", *reads, COUPLING})) if reads else "none"
                raise ValueError(f"schedule '{self.schedule}' has no option '{option}'; allowed: {allowed}")
        if self.schedule != BASELINE:
            SCHEDULES[self.schedule].check(given)
        if self.driver is not None:
            SCHEDULES[self.driver].check(given)

    @property
    def own_schedule(self) -> str:
        """The registered schedule, also of a baseline."""
        return CARRIERS[self.carrier].baseline if self.schedule == BASELINE else self.schedule

    @property
    def driver(self) -> str | None:
        """The schedule whose ratio drives the adaptations; None where the clock alone does."""
        if not any(ADAPTATIONS[name].uses_signal for name in self.adaptations):
            return None
        return signal_of(self.own_schedule, self.signal)

    @property
    def options(self) -> set[str]:
        """Names of the options that the method's schedules have."""
        own = set() if self.schedule == BASELINE else set(SCHEDULES[self.schedule].options)
        if self.adaptations:
            # Also where only the clock drives them, as recorded studies have it.
            own |= set(SCHEDULES[signal_of(self.own_schedule, self.signal)].options) - set(ABSOLUTE)
        return own


def replace_fields(method: Method, **fields: Any) -> Method:
    """``method`` with other fields, which are taken as they are."""
    new = object.__new__(Method)
    for name in Method.__dataclass_fields__:
        object.__setattr__(new, name, fields.get(name, getattr(method, name)))
    return new


def single(what: str, value: Any) -> float:
    """A number that the programs, which compute in float32, can hold.

    Raises:
      ValueError: it is none.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{what} takes a number; got {value!r}") from None
    with np.errstate(over="ignore", under="ignore"):
        short = np.float32(number)
    if np.isinf(short) != np.isinf(number) or 0.0 < abs(number) < np.finfo(np.float32).tiny:
        raise ValueError(f"{what} takes a number that single precision can hold (1.2e-38 to 3.4e38); got {value!r}")
    return number
