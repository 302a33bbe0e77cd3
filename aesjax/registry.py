"""Named collections whose look-up error says what was asked, what exists, and what was probably meant."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

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


class Registry(Mapping[str, T], Generic[T]):
    """An ordered mapping from names to entries: literal, and added to by nothing but plug-ins.

    >>> Registry("fruit", apple=1, pear=2)["aple"]
    Traceback (most recent call last):
    ...
    aesjax.registry.UnknownNameError: unknown fruit 'aple'; did you mean 'apple'? registered: apple, pear
    """

    def __init__(self, kind: str, **entries: T):
        self.kind = kind
        self._entries = entries

    def __getitem__(self, name: str) -> T:
        if name in self._entries:
            return self._entries[name]
        raise UnknownNameError(self.unknown(name))

    def unknown(self, name: str) -> str:
        """What is said of a name that is not there."""
        return f"unknown {self.kind} '{name}'{hint(name, self)} registered: {', '.join(sorted(self))}"

    def add(self, name: str, entry: T) -> None:
        """Register one more entry.

        Raises:
          ValueError: the name is taken.
        """
        if name in self._entries:
            raise ValueError(f"{self.kind} '{name}' is registered already")
        self._entries[name] = entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
