"""A method: a carrier, the schedule of its entropy weight, and what else the drift signal adjusts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aesjax.adaptations import ADAPTATIONS, CONTROLS, Adaptation, AdaptationFactory, driver_of
from aesjax.registry import lookup, unknown
from aesjax.schedules import SCHEDULES, DriftProxy, Schedule, fixed
from agents import CarrierSpec
from experiments.study.plugins import find

BASELINE = "baseline"
SOURCES = ("update", "fresh")
COUPLING = "coupling"
BLOCKS = 20  # of time, in which a control permutes a record


@dataclass(frozen=True)
class Control:
    """The record of another method's runs, played.

    Args:
      name: of `aesjax.adaptations.CONTROLS`.
      of: the method; no control.
      blocks: of time, which the control "permuted" puts into random order.

    Raises:
      ValueError, UnknownNameError: an unknown control, no method, or no whole number of blocks of at least 2.
    """

    name: str
    of: "Method"
    blocks: int = BLOCKS

    def __post_init__(self) -> None:
        lookup("control", CONTROLS, self.name)
        if not isinstance(self.of, Method) or self.of.control is not None:
            raise ValueError(f"control '{self.name}' needs the method it is made of, a Method; got {self.of!r}")
        if not isinstance(self.blocks, int) or self.blocks < 2:
            raise ValueError(
                f"option 'blocks' of control '{self.name}' is a whole number, at least 2; got {self.blocks!r}"
            )


@dataclass(frozen=True)
class Method:
    """One method of a study; it holds the objects that it is given, and equal methods train equal runs.

    Args:
      carrier: a name ("sac", "ppo", "sql", "meow"), or a carrier of your own.
      schedule: ``aes(kappa=0.3)``, a name, or a function that returns an `EntropySchedule`; None: the carrier's own.
      adaptations: objects such as ``recent(share=0.1)``, or names.
      proxy: drift proxy of the schedule, an object or a name; None: the schedule's, else the study's.
      label: name of the schedule in tables, as in "SAC+LABEL"; None: the schedule's.
      source: transitions that the proxy reads, "update" or "fresh"; None: the proxy's, else the study's.
      signal: schedule whose ratio drives the adaptations, an object or a name; None: the schedule, or `aes_r`.
      coupling: learning rates follow the entropy weight.
      control: the record of another method, which is played instead of schedule and adaptations.
      hyper: floats of the carrier that differ from the preset's.

    Raises:
      ValueError, UnknownNameError, TypeError: something does not exist, is no option, or is outside its range.
    """

    carrier: CarrierSpec
    schedule: Schedule | None = None
    adaptations: tuple[Adaptation, ...] = ()
    proxy: DriftProxy | None = None
    label: str | None = None
    source: str | None = None
    signal: Schedule | None = None
    coupling: bool = False
    control: Control | None = None
    hyper: Mapping[str, float] = field(default_factory=dict)

    if TYPE_CHECKING:  # names and functions become objects

        def __init__(
            self,
            carrier: str | CarrierSpec,
            schedule: Any = None,
            adaptations: Any = (),
            proxy: Any = None,
            label: str | None = None,
            source: str | None = None,
            signal: Any = None,
            coupling: bool = False,
            control: Control | None = None,
            hyper: Mapping[str, float] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        schedule = None if self.schedule in (None, BASELINE) else find("schedule", self.schedule)
        proxy = None if self.proxy is None else find("proxy", self.proxy)
        if schedule is not None:
            _check_label(schedule)
            proxy = proxy or schedule.proxy
            if proxy is not None:
                proxy = find("proxy", proxy)
            schedule = Schedule(schedule.factory, _numbers(schedule), None)
        source = self.source or (proxy.source if proxy else None)
        if source not in (None, *SOURCES):
            raise ValueError(f"source must be one of {', '.join(SOURCES)}; got '{source}'")
        label = self.label
        if label is not None and (not isinstance(label, str) or not label.strip() or set(label) & set(":,+=[]")):
            raise ValueError(f"a label is text without any of : , + = [ ]; got {label!r}")
        if self.coupling not in (False, True):
            raise ValueError(f"coupling is true or false; got {self.coupling!r}")
        signal = None if self.signal is None else find("schedule", self.signal)
        if signal is not None and signal.proxy is not None:
            raise ValueError(f"{signal} names a proxy; its signal reads the method's, Method(..., proxy=...)")
        carrier = find("carrier", self.carrier)
        for name in self.hyper:
            if name not in carrier.hyper._fields:
                raise ValueError(unknown(f"float of carrier '{carrier.name}'", carrier.hyper._fields, name))
        fields = {
            "carrier": carrier,
            "schedule": schedule,
            "adaptations": _ordered(self.adaptations),
            "proxy": proxy and DriftProxy(proxy.factory, single("option 'q'", proxy.q), None),
            "source": source,
            "signal": signal and Schedule(signal.factory, _numbers(signal)),
            "coupling": bool(self.coupling),
            "hyper": {name: single(f"'{name}'", value) for name, value in self.hyper.items()},
        }
        if self.control is not None:
            played = self.control.name
            given = (schedule, fields["adaptations"], proxy, source, signal, label, self.coupling)
            if any(given):
                raise ValueError(f"control '{played}' plays a record and takes nothing but a carrier and `hyper`")
            if self.control.of.carrier != carrier:
                raise ValueError(f"control '{played}' plays a record of its own carrier, '{carrier.name}'")
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        if self.driver == driver_of(self.in_force, self.adaptations):  # checked, and written in one way alone
            object.__setattr__(self, "signal", None)

    def __repr__(self) -> str:
        parts: list[Any] = [self.carrier.name, self.control or self.schedule or BASELINE, *self.adaptations]
        parts += [f"{name}={value}" for name in ("proxy", "source", "signal", "label", "coupling", "hyper")
                  if (value := getattr(self, name))]  # fmt: skip
        return f"Method({', '.join(map(str, parts))})"

    def __hash__(self) -> int:
        return hash((self.carrier.label, self.schedule, self.adaptations, self.label))

    @property
    def in_force(self) -> Schedule:
        """The schedule, also of a baseline; of a control a constant, which its record replaces."""
        if self.control is not None:
            return fixed()
        return SCHEDULES[self.carrier.baseline]() if self.schedule is None else self.schedule

    @property
    def driver(self) -> Schedule | None:
        """The schedule whose ratio drives the adaptations; None where none of them reads one."""
        return driver_of(self.in_force, self.adaptations, self.signal)

    @property
    def values(self) -> dict[str, Any]:
        """The options that are given by name: of the schedule and its signal, and "window.power" of adaptations."""
        signal = {} if self.signal is None else self.signal.given
        q = {} if self.proxy is None or self.proxy.q == 0.9 else {"q": self.proxy.q}
        own = {f"{each.factory.name}.{o}": value for each in self.adaptations for o, value in each.given.items()}
        return {**self.in_force.given, **signal, **q, **own, **self.hyper}

    @property
    def reads(self) -> set[str]:
        """The numbers that a sweep may vary: the options and the carrier's floats that the method reads."""
        reads = set(self.carrier.hyper._fields)
        if self.control is not None:
            return reads
        for schedule in filter(None, (self.in_force, self.driver)):
            reads |= set(schedule.factory.options)
        reads |= {f"{each.factory.name}.{o}" for each in self.adaptations for o in each.factory.options}
        return reads

    def varied(self, values: Mapping[str, float], proxy: DriftProxy) -> "Method":
        """The same method under other numbers by name.

        Args:
          proxy: of the study, which a level ``q`` belongs to where the method names none.
        """
        schedule, signal, hyper = self.in_force, self.signal, dict(self.hyper)
        adaptations, own = list(self.adaptations), {}
        for name, value in values.items():
            part, _, option = name.rpartition(".")
            if name in self.carrier.hyper._fields:
                hyper[name] = value
            elif part:
                at = next(i for i, each in enumerate(adaptations) if each.factory.name == part)
                adaptations[at] = adaptations[at].factory(**{**adaptations[at].given, option: value})
            elif name == "q":
                proxy = (self.proxy or proxy).factory(value)
            else:
                own[name] = value
        if mine := {name: value for name, value in own.items() if name in schedule.factory.options}:
            schedule = schedule.factory(**{**schedule.given, **mine})
        if other := {name: value for name, value in own.items() if name not in mine}:
            driver: Any = signal or driver_of(schedule, adaptations)
            signal = driver.factory(**{**(signal.given if signal else {}), **other})
        return replace(
            self,
            schedule=schedule if mine else self.schedule,
            adaptations=tuple(adaptations),
            proxy=proxy if "q" in values else self.proxy,
            signal=signal,
            hyper=hyper,
        )


def single(what: str, value: Any) -> float:
    """A number that the programs, which compute in float32, can hold; a NumPy number is read as it prints.

    Raises:
      ValueError: it is none.
    """
    try:
        number = float(str(value)) if isinstance(value, np.floating) else float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{what} takes a number; got {value!r}") from None
    with np.errstate(over="ignore", under="ignore"):
        short = np.float32(number)
    if np.isinf(short) != np.isinf(number) or 0.0 < abs(number) < np.finfo(np.float32).tiny:
        raise ValueError(f"{what} takes a number that single precision can hold (1.2e-38 to 3.4e38); got {value!r}")
    return number


def _numbers(schedule: Schedule) -> dict[str, float]:
    name = schedule.factory.name
    if schedule.static:
        raise ValueError(
            f"'{next(iter(schedule.static))}' of schedule '{name}' is part of its structure, which a study cannot "
            "vary; wrap it in a function of your own, as_schedule"
        )
    return {o: single(f"option '{o}' of schedule '{name}'", value) for o, value in schedule.options.items()}


def _check_label(schedule: Schedule) -> None:
    for name, own in SCHEDULES.items():
        if own.label == schedule.factory.label and own is not schedule.factory:
            mine = schedule.factory.name
            raise ValueError(f"schedule '{mine}': its label '{own.label}' is that of '{name}'; declare another")


def _ordered(given: Iterable[Any] | str | Adaptation | AdaptationFactory) -> tuple[Adaptation, ...]:
    """Adaptations in the order of the registry, those from outside behind."""
    parts: Sequence[Any] = [given] if isinstance(given, str | Adaptation | AdaptationFactory) else list(given)
    found: dict[str, Adaptation] = {}
    for part in parts:
        adaptation = find("adaptation", part)
        name = adaptation.factory.name
        if name in found:
            raise ValueError(f"adaptation '{name}' is given twice")
        numbers = {o: single(f"option '{o}' of adaptation '{name}'", v) for o, v in adaptation.given.items()}
        found[name] = adaptation.factory(**numbers)
    rank = {name: at for at, name in enumerate(ADAPTATIONS)}
    return tuple(sorted(found.values(), key=lambda each: rank.get(each.factory.name, len(rank))))
