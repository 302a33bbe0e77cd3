"""Factories whose signature is their registration: defaults become options, which a run may sweep or fill in.

A factory is a plain function. Each of its parameters with a number as default is an *option*: traced, so that runs
with other values share one program. Schedules, proxies and adaptations, of this package or of another, are registered
in this way alone.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from jax.core import Tracer


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


class Options(NamedTuple):
    """The options of a factory, read off its signature."""

    defaults: Mapping[str, float]
    required: tuple[str, ...]  # numbers without a default, which a run fills in
    others: frozenset[str]  # parameters that are no options: a proxy, and those named static


def options_of(kind: str, name: str, make: Any, static: Iterable[str] = (), fillable: Iterable[str] = ()) -> Options:
    """Read the options of a factory off its signature; ``fillable`` ones may lack a default, as a run fills them in.

    Raises:
      ValueError: it is no function, or has a parameter that nothing can fill in.
    """
    if not callable(make):
        raise ValueError(f"{kind} '{name}' must be a function that builds one; got {type(make).__name__}")
    try:
        parameters = list(inspect.signature(make).parameters.values())
    except (ValueError, TypeError) as error:
        raise ValueError(f"{kind} '{name}': its parameters cannot be read: {error}") from None
    static, fillable = set(static), tuple(fillable)
    defaults: dict[str, float] = {}
    required, others = [], set()
    for parameter in parameters:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        default = parameter.default
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and default is inspect.Parameter.empty:
            raise ValueError(f"{kind} '{name}': parameter '{parameter.name}' cannot be given by name")
        if parameter.name in static or parameter.name == "proxy":
            others.add(parameter.name)
        elif default is inspect.Parameter.empty:
            if parameter.name not in fillable:
                raise ValueError(
                    f"{kind} '{name}': parameter '{parameter.name}' of its factory has no default; give it a number"
                    + (f", or name one of those that a run fills in: {', '.join(fillable)}" if fillable else "")
                )
            required.append(parameter.name)
        elif isinstance(default, int | float | np.floating) and not isinstance(default, bool):
            defaults[parameter.name] = float(default)
        else:
            others.add(parameter.name)
    return Options(defaults, tuple(required), frozenset(others))


def ranges_of(kind: str, name: str, given: Mapping[str, Any] | None, options: Options) -> dict[str, Range]:
    """Ranges by option; a pair of numbers stands for a range with both ends.

    Raises:
      ValueError: a range of something that is no option, or from high to low.
    """
    ranges = {}
    for option, entry in (given or {}).items():
        if option not in options.defaults and option not in options.required:
            raise ValueError(f"{kind} '{name}' declares a range of '{option}', which is no option of its factory")
        if not isinstance(entry, Range):
            low, high = entry
            if not low <= high:
                raise ValueError(f"{kind} '{name}': the range of '{option}' must go from low to high; got {entry}")
            entry = Range(float(low), float(high), infinite=bool(np.isposinf(high)))
        ranges[option] = entry
    return ranges


def check_options(kind: str, name: str, ranges: Mapping[str, Range], options: Mapping[str, Any]) -> None:
    """Refuse concrete values outside their range; traced values are not read.

    Raises:
      ValueError: naming the option, its value and what is allowed.
    """
    concrete = {option: value for option, value in options.items() if not isinstance(value, Tracer)}
    for option, value in concrete.items():
        allowed = ranges.get(option, NUMBER)
        try:
            fits = allowed.allows(value)
        except (TypeError, ValueError):
            raise ValueError(f"option '{option}' of {kind} '{name}' takes a number; got {value!r}") from None
        if not fits:
            raise ValueError(f"option '{option}' of {kind} '{name}' must be {allowed}; got {_text(value)}")
    if {"lambda_min", "lambda_max"} <= concrete.keys():
        low, high = concrete["lambda_min"], concrete["lambda_max"]
        if not np.all(np.asarray(low) <= np.asarray(high)):
            raise ValueError(
                f"option 'lambda_min' of {kind} '{name}' must not exceed lambda_max ({_text(high)}); got {_text(low)}"
            )


def equal(first: Any, second: Any) -> bool:
    """Whether two values are equal; numbers and arrays are compared by all of their elements, as float32."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(equal(first[name], second[name]) for name in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(equal, first, second))
    if all(isinstance(value, Number) or hasattr(value, "shape") for value in (first, second)):
        return np.array_equal(np.asarray(first, np.float32), np.asarray(second, np.float32))
    return bool(first == second)


def resemble(factory: Any, make: Callable[..., Any]) -> None:
    """Give a frozen factory the name, documentation and signature of its function, for `help` and notebooks."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(make, name):
            object.__setattr__(factory, name, getattr(make, name))
    object.__setattr__(factory, "__wrapped__", make)


def first_line(make: Callable[..., Any]) -> str:
    """The first line of a factory's docstring, for listings."""
    return (inspect.getdoc(make) or "").partition("\n")[0]


def _text(value: Any) -> str:
    x = np.asarray(value)
    return f"{float(x):g}" if x.ndim == 0 and x.dtype != object else str(value)
