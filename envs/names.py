"""Look-up of names in plain dicts, with an error that says what exists and what was probably meant."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def hint(name: str, known: Iterable[str]) -> str:
    """What goes between a name that is not there and the list of those that are: the nearest one, in whatever case."""
    folded = {entry.casefold(): entry for entry in known}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return f"; did you mean '{folded[near[0]]}'?" if near else ";"


class UnknownNameError(KeyError):
    """A name that is not registered; its text is one sentence for a person."""

    def __str__(self) -> str:
        return self.args[0]


def lookup(kind: str, entries: Mapping[str, T], name: str) -> T:
    """Entry ``name`` of ``entries``.

    The text equals that of the registries of ``aesjax``; this package depends on no sibling and so has its
    own.

    Raises:
      UnknownNameError: (a ``KeyError``) ``name`` is not registered.

    >>> lookup("fruit", {"apple": 1, "pear": 2}, "aple")
    Traceback (most recent call last):
    ...
    envs.names.UnknownNameError: unknown fruit 'aple'; did you mean 'apple'? registered: apple, pear
    """
    if name in entries:
        return entries[name]
    raise UnknownNameError(f"unknown {kind} '{name}'{hint(name, entries)} registered: {', '.join(sorted(entries))}")
