"""Validation of values by their annotations, for user input and files."""

import math
import types
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, NamedTuple, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


class Bounds(NamedTuple):
    """Smallest and largest allowed number, in an annotation; any pair works."""

    least: float
    most: float = 2**53 - 1  # a whole number that a float holds exactly


Count = Annotated[int, Bounds(1)]
_PLAIN: Mapping[Any, tuple[Callable[[Any], bool], str]] = {
    int: (lambda value: type(value) is int, "a whole number"),
    float: (lambda value: type(value) in (int, float) and not math.isnan(value), "a number"),
    str: (lambda value: isinstance(value, str) and bool(value), "text"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
}


def typed(wanted: Any, value: Any, where: str, other: Callable[[Any, Any, str], Any] | None = None) -> Any:
    """Convert ``value`` to the annotated type: NumPy and JAX numbers to Python's, 1e5 to an int, lists to tuples.

    Args:
      other: converts types other than numbers, texts, flags, tuples and mappings; by default such values pass.

    Raises:
      ValueError: names the field, the allowed values and the value.
    """
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        pair = next((each for each in arguments[1:] if isinstance(each, tuple)), None)
        value = typed(arguments[0], value, where, other)
        if pair is not None and value is not None:
            least, most = pair
            upper = "" if most == Bounds(0).most else f" and at most {most:,}"
            require(least <= value <= most, where, f"a whole number, at least {least:,}{upper}", value)
        return value
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in arguments if kind is not type(None)]
        passes = (value is None and len(kinds) < len(arguments)) or isinstance(
            value, tuple(kind for kind in kinds if isinstance(kind, type) and kind not in _PLAIN)
        )
        return value if passes else typed(kinds[0], value, where, other)
    if wanted is Any:
        return tuple(value) if isinstance(value, list) else value
    if origin is tuple:
        value = tuple(value) if isinstance(value, list | np.ndarray) and np.ndim(value) else value
        size = None if arguments[-1] is Ellipsis else len(arguments)
        fits = isinstance(value, tuple) and len(value) > 0 and size in (None, len(value))
        require(fits, where, f"a list of {size or 'at least one'}", value)
        return tuple(typed(arguments[0], each, where, other) for each in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        require(isinstance(value, Mapping), where, "a mapping", value)
        return {name: typed(arguments[1], each, f"{where}.{name}", other) for name, each in value.items()}
    if wanted not in _PLAIN:
        return value if other is None else other(wanted, value, where)
    number = value.item() if getattr(value, "shape", None) == () else value
    number = float(str(value)) if number is not value and type(number) is float else number  # 0.1 of float32
    if wanted is int and type(number) is float and number.is_integer():
        number = int(number)
    fits, text = _PLAIN[wanted]
    require(fits(number), where, text, value)
    return number


def several(value: Any) -> TypeGuard[Iterable[Any]]:
    """Whether ``value`` is a collection: a list, array or generator, but not a text, mapping or named tuple."""
    one = isinstance(value, str | bytes | Mapping) or hasattr(value, "_fields") or getattr(value, "shape", None) == ()
    return isinstance(value, Iterable) and not one


def require(fits: bool, where: str, text: str, value: Any) -> None:
    """Raise ``ValueError("WHERE must be TEXT; got VALUE")`` unless ``fits``."""
    if not fits:
        raise ValueError(f"{where} must be {text}; got {value!r:.60}")


def check_fields(thing: Any) -> None:
    """Check the fields of a dataclass by their annotations, frozen or not; see `typed`."""
    for name, hint in get_type_hints(type(thing), include_extras=True).items():
        object.__setattr__(thing, name, typed(hint, getattr(thing, name), f"{type(thing).__name__}.{name}"))


def checked(function: F) -> F:
    """Decorator that checks arguments by their annotations; None stands for a default."""
    own, hints = signature(function), get_type_hints(function, include_extras=True)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = own.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            default, hint = own.parameters[name].default, hints.get(name, Any)
            if own.parameters[name].kind is not Parameter.VAR_KEYWORD:
                missing = value is None and default is not Parameter.empty
                bound.arguments[name] = default if missing else typed(hint, value, name)
        return function(*bound.args, **bound.kwargs)

    return call  # type: ignore[return-value]
