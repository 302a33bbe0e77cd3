"""Named collections whose look-up error contains the requested name, the known names and the nearest of them."""

import difflib
from collections.abc import Iterable, Mapping
from typing import NoReturn, TypeVar

T = TypeVar("T")
_LONGEST = 120  # characters of a list in a message


def hint(name: str, known: Iterable[str]) -> str:
    """Suggestion for an unknown name: the nearest registered name, ignoring case."""
    folded = {entry.casefold(): entry for entry in known}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return f"; did you mean '{folded[near[0]]}'?" if near else ";"


def listed(names: Iterable[str]) -> str:
    """Names with commas between them; of a long list the first, and their number."""
    names = list(names)
    text = ", ".join(names)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(', ')[0]}, ... ({len(names)} in all)"


class UnknownNameError(KeyError):
    """A name that is not registered; its text is one sentence."""

    def __str__(self) -> str:
        return self.args[0]


def unknown(kind: str, entries: Iterable[str], name: str) -> str:
    """Message about an unknown name."""
    return f"unknown {kind} '{str(name)[:60]}'{hint(name, entries)} registered: {listed(sorted(entries))}"


def lookup(kind: str, entries: Mapping[str, T], name: str) -> T:
    """Entry ``name`` of ``entries``.

    Raises:
      UnknownNameError: (a ``KeyError``) ``name`` is not registered.

    >>> lookup("fruit", {"apple": 1, "pear": 2}, "aple")
    Traceback (most recent call last):
    ...
    aesjax.registry.UnknownNameError: unknown fruit 'aple'; did you mean 'apple'? registered: apple, pear
    """
    if name in entries:
        return entries[name]
    raise UnknownNameError(unknown(kind, entries, name))


class Registry(dict[str, T]):
    """A dictionary of entries by name whose look-up error is an `UnknownNameError`."""

    def __init__(self, kind: str, **entries: T):
        super().__init__(entries)
        self.kind = kind

    def __missing__(self, name: str) -> NoReturn:
        raise UnknownNameError(unknown(self.kind, self, name))
