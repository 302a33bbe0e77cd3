"""Factories of schedules, proxies and adaptations, registered by their signature.

A factory is a plain function. Each parameter with a number as default is an *option*, which a run may sweep or set;
options are traced, so that runs with other values share one program.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Number
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from jax.core import Tracer

from aesjax.registry import unknown


class Range(NamedTuple):
    """Allowed values of an option."""

    low: float = -np.inf
    high: float = np.inf
    text: str = ""  # for messages; empty: made of the ends
    open_low: bool = False
    open_high: bool = False
    infinite: bool = False  # positive infinity is allowed

    def allows(self, value: Any) -> bool:
        """Whether every element of ``value`` is inside."""
        x = np.asarray(value, np.float64)
        above = x > self.low if self.open_low else x >= self.low
        below = x < self.high if self.open_high else x <= self.high
        return bool(np.all(above & below & (np.isfinite(x) | (np.isposinf(x) & self.infinite))))

    def __str__(self) -> str:
        return self.text or f"in [{self.low:g}, {self.high:g}]"


NUMBER = Range(text="a number", infinite=True)
FINITE = Range(text="finite")
POSITIVE = Range(0.0, text="positive and finite", open_low=True)
NOT_NEGATIVE = Range(0.0, text="finite and at least 0")
AT_LEAST_1 = Range(1.0, text="finite and at least 1")
SHARE = Range(0.0, 1.0)
POSITIVE_SHARE = Range(0.0, 1.0, text="in (0, 1]", open_low=True)
SHARE_OF_UPDATES = POSITIVE_SHARE._replace(text="in (0, 1], a share of the updates")


class Options(NamedTuple):
    """Options of a factory, read from its signature."""

    defaults: Mapping[str, float]
    required: tuple[str, ...]  # numbers without a default, set by the run
    others: frozenset[str]  # static parameters and the proxy

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.required, *self.defaults)


@dataclass(eq=False)
class Factory:
    """A registered function with its options, called with options by name for a `Made`; one subclass per kind."""

    kind: ClassVar[str]
    known_ranges: ClassVar[Mapping[str, Range]] = {}  # of all factories of the kind
    other_range: ClassVar[Range] = NUMBER  # of an option without a range
    static: ClassVar[tuple[str, ...]] = ("proxy",)  # parameters that are not options
    fillable: ClassVar[tuple[str, ...]] = ()  # options that the run sets, so that they need no default
    usual: ClassVar[Mapping[str, float]] = {}  # values of options that neither the object nor its run sets
    traits: ClassVar[tuple[str, ...]] = ("label",)  # attributes that a stored definition holds

    name: str
    make: Callable[..., Any] = field(repr=False)
    signature: Options = field(repr=False)
    ranges: Mapping[str, Range] = field(repr=False)

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.make, updated=())  # type: ignore  # for `help` and notebooks

    def __eq__(self, other: Any) -> bool:
        if type(self) is not type(other):
            return False
        return self is other or [*map(_code, self._values)] == [*map(_code, other._values)]

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    @property
    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, item.name) for item in fields(self))

    def __reduce__(self) -> Any:
        """Pickle by module and name where possible, else by fields."""
        name = getattr(self, "__qualname__", "")
        if getattr(sys.modules.get(self.__module__), name, None) is self:
            if self.__module__ != "__main__":  # cloudpickle's `__main__` is another module
                return name
            self.make.__qualname__ = f"{name}.make"  # pickle finds the function here, because the decorator replaced it
        return type(self), self._values

    @classmethod
    def of(
        cls,
        make: Any,
        name: str | None = None,
        ranges: Mapping[str, Any] | None = None,
        static: Iterable[str] = (),
        **traits: Any,
    ) -> Any:
        """Make the factory of a function; a factory is returned as it is, and None gives a decorator.

        Args:
          name: by default the function's.
          ranges: allowed values of options; a pair of numbers stands for both ends, included.
          static: parameters that are structure, not options.
          traits: further fields of the class; a label of None is the name.

        Raises:
          ValueError: not a function, a parameter without a value, or a range of an unknown option.
        """
        if make is None:
            return functools.partial(cls.of, name=name, ranges=ranges, static=static, **traits)
        if isinstance(make, cls):
            return make
        name = str(name or getattr(make, "__name__", type(make).__name__))
        options = _options_of(f"{cls.kind} '{name}'", make, {*cls.static, *static}, cls.fillable)
        bounds = dict(ranges or {})
        for option, entry in bounds.items():
            if option not in options.names:
                raise ValueError(f"{cls.kind} '{name}' declares a range of '{option}', but has no such option")
            if not isinstance(entry, Range):
                low, high = map(float, entry)
                bounds[option] = Range(low, high, infinite=high == np.inf)
        if traits.get("label", "") is None:
            traits["label"] = name.rpartition(":")[2]
        return cls(name, make, options, bounds, **traits)

    @property
    def options(self) -> Any:
        """All options by name."""
        return self.signature.defaults

    @property
    def accepts(self) -> Collection[str]:
        """Names of arguments."""
        return self.options

    @property
    def summary(self) -> str:
        """First line of the function's docstring, for listings."""
        return (inspect.getdoc(self.make) or "").partition("\n")[0].removesuffix(".")

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise for an unknown argument or a number outside its range; schedules and traced values are not read.

        Raises:
          TypeError, ValueError: naming the argument, its value and what is allowed.
        """
        concrete = {}
        for name, value in given.items():
            if name not in self.accepts:
                raise TypeError(unknown(f"option of {self.kind} '{self.name}'", self.accepts, name))
            if name in self.options and not isinstance(value, Tracer) and not hasattr(value, "init"):
                concrete[name] = value
        ranges = {**self.known_ranges, **self.ranges}
        for option, value in concrete.items():
            allowed, where = ranges.get(option, self.other_range), f"option '{option}' of {self.kind} '{self.name}'"
            try:
                if np.asarray(value).dtype.kind in "bUSO":
                    raise TypeError
                fits = allowed.allows(value)
            except (TypeError, ValueError):
                raise ValueError(f"{where} takes a number; got {value!r}") from None
            if not fits:
                raise ValueError(f"{where} must be {allowed}; got {_text(value)}")
        low, high = (concrete.get(bound) for bound in ("lambda_min", "lambda_max"))
        if low is not None and high is not None and not np.all(np.asarray(low) <= np.asarray(high)):
            raise ValueError(
                f"option 'lambda_min' of {self.kind} '{self.name}' must not exceed lambda_max ({_text(high)}); "
                f"got {_text(low)}"
            )


class Made:
    """Base of dataclasses made by a factory; equal fields are equal objects, with numbers compared as float32."""

    factory: Any
    given: Any  # arguments by name

    def filled(self, facts: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """The object with all of its options: the given ones, else the numbers of a run, else the defaults.

        Args:
          facts: the run's numbers by name.

        Raises:
          ValueError: an option has no value.
        """
        factory, names = self.factory, self.factory.signature.names
        known = {**factory.usual, **factory.signature.defaults, **facts, **self.given}
        if missing := [name for name in names if name not in known]:
            text, example = " and ".join(missing), ", ".join(f"{name}=..." for name in missing)
            raise ValueError(f"{factory.kind} '{factory.name}' needs a value of {text}: {factory.name}({example})")
        return replace(self, given={name: known[name] for name in names} | self.given)  # type: ignore

    def updated(self, options: Mapping[str, Any]) -> Self:
        """The object with other numbers by option; ValueError for a number outside its range."""
        given = {**self.given, **options}
        self.factory.check(given)
        return replace(self, given=given)  # type: ignore

    def __repr__(self) -> str:
        return f"{self.factory.name}({', '.join(f'{name}={value}' for name, value in self.given.items())})"

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and _equal(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash(self.factory)


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_equal(first[name], second[name]) for name in first)
    if all(isinstance(value, Number) or hasattr(value, "shape") for value in (first, second)):
        return np.array_equal(np.asarray(first, np.float32), np.asarray(second, np.float32))
    return bool(first == second)


def _code(make: Any) -> Any:
    """Key by which functions are compared: equal for a function and its copy from another process."""
    if inspect.isfunction(make):
        return make.__module__, make.__code__, make.__closure__, make.__defaults__, make.__kwdefaults__
    return make


def _options_of(where: str, make: Any, static: set[str], fillable: tuple[str, ...]) -> Options:
    if not callable(make):
        raise ValueError(f"{where} must be a factory function; got {type(make).__name__}")
    defaults: dict[str, float] = {}
    required, others = [], set()
    for parameter in inspect.signature(make).parameters.values():
        name, default = parameter.name, parameter.default
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if default is parameter.empty and name not in static:
            if name not in fillable:
                raise ValueError(
                    f"{where}: parameter '{name}' of its factory needs a number as default"
                    + (f"; parameters set by the run: {', '.join(fillable)}" if fillable else "")
                )
            required.append(name)
        elif name not in static and isinstance(default, int | float | np.floating) and not isinstance(default, bool):
            defaults[name] = float(default)
        else:
            others.add(name)
    return Options(defaults, tuple(required), frozenset(others))


def _text(value: Any) -> str:
    x = np.asarray(value)
    return f"{float(x):g}" if x.ndim == 0 and x.dtype != object else str(value)
