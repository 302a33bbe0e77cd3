"""Tables and sentences by name."""

from collections.abc import Callable

TABLES: dict[str, Callable[[], str]] = {}
TEXTS: dict[str, Callable[[], str]] = {}


def table(function: Callable[[], str]) -> Callable[[], str]:
    """Register a table under its function's name."""
    TABLES[_name(function)] = function
    return function


def text(function: Callable[[], list[str]]) -> Callable[[], list[str]]:
    """Register sentences, one a line, under the function's name."""
    TEXTS[_name(function)] = lambda: "".join(f"{line}\n" for line in function())
    return function


def _name(function: Callable) -> str:
    return function.__name__.replace("_", "-")
