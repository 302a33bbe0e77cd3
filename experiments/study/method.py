"""A method: a carrier, its entropy schedule and its adaptations; parts are found by name.

A name is a registered name, an entry point of an installed package, or ``module:attribute``. Custom objects are not
registered: the study stores them, and their text form is their module and attribute.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import numpy as np

import envs
from aesjax.adaptations import ADAPTATIONS, CONTROLS, Adaptation, AdaptationFactory, driver_of
from aesjax.registry import UnknownNameError, lookup, unknown
from aesjax.schedules import PROXIES, SCHEDULES, DriftProxy, Schedule, as_proxy, as_schedule, fixed
from aesjax.typed import require, several, typed
from agents import CARRIERS, CarrierSpec
from envs.adopt import adopt_pattern, adopt_task, trying
from experiments.study.sources import definitions

BASELINE = "baseline"
SOURCES = ("update", "fresh")
BLOCKS = 20  # blocks of time in a permuted record


@dataclass(frozen=True)
class Control:
    """A control, which plays the records of another method's runs.

    Args:
      name: of `aesjax.adaptations.CONTROLS`.
      of: the method, not a control.
      blocks: number of time blocks, which the control "permuted" puts into random order.

    Raises:
      ValueError, UnknownNameError: an unknown control, a missing method, or not a whole number of blocks >= 2.
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
    """One method of a study; equal methods train equal runs.

    Args:
      carrier: a name ("sac", "ppo", "sql", "meow") or a custom carrier.
      schedule: ``aes(kappa=0.3)``, a name, or a function that returns an `EntropySchedule`; None: the carrier's own. A
        schedule that names no proxy reads the study's, and a proxy without a source the study's, or the schedule's.
      adaptations: objects such as ``recent(share=0.1)``, or names.
      signal: schedule whose ratio drives the adaptations, an object or a name; None: the schedule, or `aes_r`. It reads
        the proxy of a schedule that has one.
      label: name of the schedule in tables, as in "SAC+LABEL"; None: the schedule's.
      coupling: learning rates follow the entropy weight.
      control: a record of another method, which replaces schedule and adaptations.
      hyper: floats of the carrier that differ from the preset's.

    Raises:
      ValueError, UnknownNameError, TypeError: an unknown name or option, or a value outside its range.
    """

    carrier: CarrierSpec
    schedule: Schedule | None = None
    adaptations: tuple[Adaptation, ...] = ()
    signal: Schedule | None = None
    label: str | None = None
    coupling: bool = False
    control: Control | None = None
    hyper: Mapping[str, float] = field(default_factory=dict)

    if TYPE_CHECKING:  # names and functions become objects

        def __init__(
            self,
            carrier: str | CarrierSpec,
            schedule: Any = None,
            adaptations: Any = (),
            signal: Any = None,
            label: str | None = None,
            coupling: bool = False,
            control: Control | None = None,
            hyper: Mapping[str, float] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        plain: Mapping[str, Any] = {"label": None, "coupling": False, "hyper": {}, "adaptations": ()}
        for name, default in plain.items():
            value, hint = getattr(self, name), Any if name == "adaptations" else _HINTS[name]
            object.__setattr__(self, name, default if value is None else typed(hint, value, name))
        own = isinstance(self.schedule, str) and self.schedule == BASELINE
        schedule = None if self.schedule is None or own else _plain(find("schedule", self.schedule))
        label = self.label
        if label is not None and set(label) & set(":,+=[]"):
            raise ValueError(f"a label must not contain : , + = [ ]; got {label!r}")
        signal = None if self.signal is None else _plain(find("schedule", self.signal))
        if signal is not None and signal.proxy is not None and schedule is not None and schedule.factory.uses_proxy:
            raise ValueError(f"signal {signal} must not name a proxy, because it reads that of {schedule}")
        carrier = find("carrier", self.carrier)
        for name in self.hyper:
            if name not in carrier.hyper._fields:
                raise ValueError(unknown(f"float of carrier '{carrier.name}'", carrier.hyper._fields, name))
        fields = {
            "carrier": carrier,
            "schedule": schedule,
            "adaptations": _ordered(self.adaptations),
            "signal": signal,
            "hyper": {name: single(f"'{name}'", value) for name, value in self.hyper.items()},
        }
        if self.control is not None:
            require(isinstance(self.control, Control), "control", "a Control", self.control)
            played = self.control.name
            given = (schedule, fields["adaptations"], signal, label, self.coupling)
            if any(given):
                raise ValueError(f"control '{played}' plays a record and takes only a carrier and `hyper`")
            if self.control.of.carrier != carrier:
                raise ValueError(f"control '{played}' plays a record of its own carrier, '{carrier.name}'")
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        if self.driver == driver_of(self.in_force, self.adaptations):  # checked and normalised
            object.__setattr__(self, "signal", None)

    def __repr__(self) -> str:
        parts: list[Any] = [self.carrier.name, self.control or self.schedule or BASELINE, *self.adaptations]
        named = {n: getattr(self, n) for n in ("signal", "label", "coupling", "hyper")}
        return f"Method({', '.join([*map(str, parts), *(f'{n}={value}' for n, value in named.items() if value)])})"

    def __hash__(self) -> int:
        return hash((self.carrier.label, self.schedule, self.adaptations, self.label))

    @property
    def in_force(self) -> Schedule:
        """The schedule, also of a baseline; for a control a constant, which its record replaces."""
        if self.control is not None:
            return fixed()
        return SCHEDULES[self.carrier.baseline]() if self.schedule is None else self.schedule

    @property
    def is_baseline(self) -> bool:
        """Whether the method is its carrier alone."""
        return self.schedule is None and not self.adaptations and self.control is None

    def follows(self, schedule: str) -> bool:
        """Whether the weight follows this registered schedule and nothing else is adjusted."""
        alone = self.control is None and not self.adaptations
        return alone and self.in_force.factory is SCHEDULES[schedule]

    @property
    def driver(self) -> Schedule | None:
        """The schedule whose ratio drives the adaptations; None if they read no ratio."""
        return driver_of(self.in_force, self.adaptations, self.signal)

    @property
    def parts(self) -> Iterator[tuple[str, Any]]:
        """Its objects, each after its kind."""
        yield "carrier", self.carrier
        yield from (("schedule", each.factory) for each in (self.schedule, self.signal) if each is not None)
        yield from (("adaptation", each.factory) for each in self.adaptations)
        yield from () if self.proxy is None else [("proxy", self.proxy.factory)]
        yield from () if self.control is None else self.control.of.parts

    @property
    def proxy(self) -> DriftProxy | None:
        """The proxy that its schedule, or else the driver of its adaptations, names; None: the study's."""
        proxy: Any = (self.driver or self.in_force).proxy  # `find` has made an object of a function
        return proxy

    def reading(self, proxy: DriftProxy) -> "Method":
        """The method whose schedule, or else the driver of its adaptations, names this proxy.

        Raises:
          ValueError: neither reads a proxy.
        """
        schedule, driver = self.in_force, self.driver
        if schedule.factory.uses_proxy:
            return replace(self, schedule=Schedule(schedule.factory, schedule.given, proxy))
        if driver is None or not driver.factory.uses_proxy:
            raise ValueError(f"{self} reads no proxy; got {proxy}")
        given = {} if self.signal is None else self.signal.given
        return replace(self, signal=Schedule(driver.factory, given, proxy))

    @property
    def values(self) -> dict[str, Any]:
        """Given options by name: of the schedule and its signal, and of adaptations as "window.power"."""
        signal = {} if self.signal is None else self.signal.given
        q = {} if self.proxy is None or self.proxy.q == 0.9 else {"q": self.proxy.q}
        own = {f"{each.factory.name}.{o}": value for each in self.adaptations for o, value in each.given.items()}
        return {**self.in_force.given, **signal, **q, **own, **self.hyper}

    @property
    def reads(self) -> set[str]:
        """Numbers that a sweep may vary: options and the carrier's floats that the method reads."""
        reads = set(self.carrier.hyper._fields)
        if self.control is not None:
            return reads
        for schedule in filter(None, (self.in_force, self.driver)):
            reads |= set(schedule.factory.options)
        reads |= {f"{each.factory.name}.{o}" for each in self.adaptations for o in each.factory.options}
        return reads

    def varied(self, values: Mapping[str, float], proxy: DriftProxy) -> "Method":
        """The method with other numbers by name.

        Args:
          proxy: proxy of the study, which ``q`` applies to if the method names no proxy.
        """
        schedule, signal, hyper = self.in_force, self.signal, dict(self.hyper)
        adaptations, own = list(self.adaptations), {}
        for name, value in values.items():
            part, _, option = name.rpartition(".")
            if name in self.carrier.hyper._fields:
                hyper[name] = value
            elif part:
                at = next(i for i, each in enumerate(adaptations) if each.factory.name == part)
                adaptations[at] = adaptations[at].updated({option: value})
            elif name != "q":
                own[name] = value
        if mine := {name: value for name, value in own.items() if name in schedule.factory.options}:
            schedule = schedule.updated(mine)
        if other := {name: value for name, value in own.items() if name not in mine}:
            driver: Any = driver_of(schedule, adaptations)
            signal = (signal or driver.factory()).updated(other)
        method = replace(
            self,
            schedule=schedule if mine else self.schedule,
            adaptations=tuple(adaptations),
            signal=signal,
            hyper=hyper,
        )
        if "q" not in values:
            return method
        named = self.proxy or proxy
        return method.reading(named.factory(values["q"], named.source))


_HINTS = get_type_hints(Method)


def single(what: str, value: Any) -> float:
    """A number that float32 can represent; a NumPy number is read as its printed decimal.

    Raises:
      ValueError: it is not such a number.
    """
    try:
        number = float(value) if isinstance(value, str) else float(typed(float, value, what))
    except (TypeError, ValueError):
        raise ValueError(f"{what} takes a number; got {value!r}") from None
    with np.errstate(over="ignore", under="ignore"):
        short = np.float32(number)
    if np.isinf(short) != np.isinf(number) or 0.0 < abs(number) < np.finfo(np.float32).tiny:
        raise ValueError(f"{what} takes a number that single precision can hold (1.2e-38 to 3.4e38); got {value!r}")
    return number


def _plain(schedule: Schedule) -> Schedule:
    """The schedule with numbers that float32 can represent and a registered or custom proxy."""
    name, proxy = schedule.factory.name, schedule.proxy
    if schedule.static:
        raise ValueError(
            f"'{next(iter(schedule.static))}' of schedule '{name}' is static, so a study cannot vary it; "
            "set it in a custom as_schedule function"
        )
    if proxy is not None:
        proxy = find("proxy", proxy)
        proxy = proxy.factory(single("option 'q'", proxy.q), proxy.source)
    return replace(_in_single(schedule), proxy=proxy)


def _in_single(made: Any) -> Any:
    """A schedule or adaptation with numbers that float32 can represent."""
    where = f"{made.factory.kind} '{made.factory.name}'"
    return replace(made, given={o: single(f"option '{o}' of {where}", value) for o, value in made.given.items()})


def _ordered(given: Any) -> tuple[Adaptation, ...]:
    """Adaptations in registry order, custom adaptations last."""
    found: dict[str, Adaptation] = {}
    for part in given if several(given) else [given]:
        adaptation = find("adaptation", part)
        name = adaptation.factory.name
        if name in found:
            raise ValueError(f"adaptation '{name}' is given twice")
        found[name] = adaptation.factory(**_in_single(adaptation).given)  # checked
    return tuple(sorted(found.values(), key=lambda each: [*ADAPTATIONS, each.factory.name].index(each.factory.name)))


class _Kind(NamedTuple):
    """Objects that one option of the command line accepts."""

    group: str  # of entry points
    registered: Mapping[str, Any]  # name -> object
    adopt: Callable[[Any], Any]  # any accepted form -> the object, or ValueError


# One factory per function, so that repeated names give equal objects.
_CACHED = {Schedule: cache(as_schedule), DriftProxy: cache(as_proxy)}
_MADE = {Schedule: as_schedule, DriftProxy: as_proxy}


def _object(wanted: type, given: Any) -> Any:
    """A schedule, proxy or adaptation, or one made from its factory or from a function."""
    if wanted in _MADE and not isinstance(given, wanted):
        given = (_CACHED if inspect.isfunction(given) else _MADE)[wanted](given)()
    given = given() if isinstance(given, AdaptationFactory) else given
    if not isinstance(given, wanted):
        raise ValueError(f"it must be of type {wanted.__name__}; got {type(given).__name__}")
    return given


def _named(entry: Any) -> str:
    return getattr(entry, "name", "") or getattr(code_of(entry), "__qualname__", "").rpartition(".")[2]


KINDS: dict[str, _Kind] = {
    "schedule": _Kind("aesjax.schedules", SCHEDULES, partial(_object, Schedule)),
    "adaptation": _Kind("aesjax.adaptations", ADAPTATIONS, partial(_object, Adaptation)),
    "proxy": _Kind("aesjax.proxies", PROXIES, partial(_object, DriftProxy)),
    "task": _Kind("aesjax.tasks", envs.TASKS, lambda given: adopt_task(_named(given), given)),
    "pattern": _Kind("aesjax.patterns", envs.PATTERNS, lambda given: adopt_pattern(_named(given), given)),
    "carrier": _Kind("aesjax.carriers", CARRIERS, partial(_object, CarrierSpec)),
}


def find(kind: str, given: Any) -> Any:
    """Find the object of a kind of `KINDS` by name or from an object; ``module:attribute`` is imported.

    Raises:
      UnknownNameError: unknown name.
      ValueError: the object cannot be imported or is not of this kind; one sentence.
    """
    group, registered, adopt = KINDS[kind]
    require(given is not None, kind, "a name or an object", given)
    name, entry = given if isinstance(given, str) else _named(given), given
    if isinstance(given, str):
        if given in registered or (kind == "task" and given.startswith(envs.PREFIXES)):
            return partial(envs.make, given) if kind == "task" else adopt(registered[given])
        points, (known, colon, options) = _entry_points(group), given.partition(":")
        if colon and known in registered:
            raise ValueError(f"{kind} '{given}' is a name with options; write {known}({options.replace(':', ', ')})")
        if given not in points and ":" not in given:
            names = (*registered, *points)
            text = envs.unknown_task(given, names) if kind == "task" else unknown(kind, names, given)
            raise UnknownNameError(f"{text}; a custom one is given as module:name")
        entry = _imported(kind, given, points[given].value if given in points else given)
    try:
        return adopt(entry)
    except ValueError as error:
        raise ValueError(f"{kind} '{name}' cannot be used: {error}") from error


def name_of(kind: str, entry: Any) -> str:
    """Name by which another process can import an object.

    Raises:
      ValueError: the object has no such name, for example in a notebook cell.
    """
    group, registered, _ = KINDS[kind]
    for name, other in registered.items():
        if _same(kind, other, entry):
            return name
    code = code_of(entry)
    for module in [getattr(code, "__module__", ""), *sys.modules]:
        known = {} if module in ("__main__", "__mp_main__") else getattr(sys.modules.get(module), "__dict__", {})
        for name, other in list(known.items()):
            if _same(kind, other, entry) or (other is code and _makes(kind, code, entry)):
                place = f"{module}:{name}"
                return next((n for n, point in _entry_points(group).items() if point.value == place), place)
    raise ValueError(
        f"{kind} '{_named(entry)}' is defined only in this process; save it in a module and give its name, module:name"
    )


def _same(kind: str, one: Any, other: Any) -> bool:
    """Whether two objects are identical or equal copies; arrays of tasks are not compared."""
    return one is other or (type(one) is type(other) and kind != "task" and bool(one == other))


def _makes(kind: str, code: Any, entry: Any) -> bool:
    """Whether ``code`` is a plain function from which `find` makes ``entry``."""
    if kind not in ("schedule", "proxy", "pattern") or not inspect.isfunction(code):
        return False
    made = KINDS[kind].adopt(code)
    return getattr(made, "factory", made) == entry


def source_of(kind: str, entry: Any, *made: Any) -> Mapping[str, str] | None:
    """Definitions of a custom object, see `definitions`; None for a registered object, which the commit defines.

    Args:
      made: further code that it rests on, such as the class of the environment that a task's function makes.
    """
    code = code_of(entry)
    if any(_same(kind, own, entry) for own in KINDS[kind].registered.values()):
        return None
    if hasattr(code, "sources"):  # of a stand-in
        return code.sources
    named = kind in ("schedule", "adaptation", "proxy") and _package(code) not in ("aesjax", "agents", "envs")
    return definitions(_named(entry) or type(entry).__name__, code if named else inspect.unwrap(entry), *made)


def offered(kind: str) -> list[str]:
    """Names registered by installed packages."""
    return list(_entry_points(KINDS[kind].group))


def code_of(entry: Any) -> Any:
    """The function or class behind an object."""
    if isinstance(entry, envs.Task):
        return getattr(entry.env, "code", type(entry.env))
    fields = (getattr(entry, name) for name in ("make", "adjust", "value") if hasattr(entry, name))
    return inspect.unwrap(next(fields, entry))


def _package(code: Any) -> str:
    return str(getattr(code, "__module__", None)).partition(".")[0]


def _entry_points(group: str) -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=group)}


def _imported(kind: str, name: str, place: str) -> Any:
    """The object at ``module:attribute``."""
    module, _, attribute = place.partition(":")
    if os.getcwd() not in sys.path:  # not on the path of the console script
        sys.path.append(os.getcwd())
    if module.endswith(".py"):
        raise ValueError(f"{kind} '{name}': type '{module[:-3]}:{attribute}', without .py")
    with trying(f"{kind} '{name}' cannot be used"):
        entry = importlib.import_module(module)
        for part in attribute.split("."):
            if not hasattr(entry, part):
                public = [n for n in dir(entry) if not n.startswith("_")]
                raise ValueError(unknown(f"attribute of {module}", public, part))
            entry = getattr(entry, part)
        return entry
