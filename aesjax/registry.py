"""Named collections whose look-up error contains the requested name, the known names and the nearest of them."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Generic, TypeVar

T = TypeVar("T")


def hint(name: str, known: Iterable[str]) -> str:
    """The suggestion in an unknown name's message: the nearest registered name, ignoring case."""
    folded = {entry.casefold(): entry for entry in known}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return f"; did you mean '{folded[near[0]]}'?" if near else ";"


class UnknownNameError(KeyError):
    """A name that is not registered; its text is one sentence for a person."""

    def __str__(self) -> str:
        return self.args[0]


def unknown(kind: str, entries: Iterable[str], name: str) -> str:
    """The sentence about a name that is not there."""
    return f"unknown {kind} '{name}'{hint(name, entries)} registered: {', '.join(sorted(entries))}"


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


class Registry(MutableMapping[str, T], Generic[T]):
    """An ordered mapping from names to entries: literal, and added to by nothing but plug-ins."""

    def __init__(self, kind: str, **entries: T):
        self.kind = kind
        self._entries = entries

    def __getitem__(self, name: str) -> T:
        return lookup(self.kind, self._entries, name)

    def __setitem__(self, name: str, entry: T) -> None:
        if name in self._entries:
            raise ValueError(f"{self.kind} '{name}' is registered already")
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        self[name]
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
