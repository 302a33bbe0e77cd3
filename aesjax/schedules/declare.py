"""`declare`: what a schedule or proxy that lives in another package says about itself."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from aesjax.types import Signals

Factory = TypeVar("Factory", bound=Callable[..., Any])
_MARK = "__aesjax__"
_SOURCES = ("update", "fresh")


class Declaration(NamedTuple):
    """What cannot be read off a factory's signature."""

    label: str | None = None
    summary: str | None = None
    needs: tuple[str, ...] = ()
    source: str = "update"
    ranges: Mapping[str, tuple[float, float]] = MappingProxyType({})
    fields: Mapping[str, str] = MappingProxyType({"update": "td_error", "fresh": "fresh_td_error"})


def declare(
    *,
    label: str | None = None,
    summary: str | None = None,
    needs: Sequence[str] = (),
    source: str = "update",
    ranges: Mapping[str, tuple[float, float]] | None = None,
    fields: Mapping[str, str] | None = None,
) -> Callable[[Factory], Factory]:
    """Mark a schedule's or proxy's factory with what its signature does not tell. The factory itself stays as it is.

    Args:
      label: name in tables, as in "SAC+LABEL"; by default the registered name.
      summary: one line for `aesjax list`; by default the first line of the docstring.
      needs: fields of `Signals` that a schedule reads besides its proxy's, such as ``("log_prob",)``. Carriers that
        cannot report one are refused before training.
      source: where a schedule's proxy looks unless told otherwise, "update" (the update batch) or "fresh" (the newest
        transitions).
      ranges: smallest and largest allowed value of options, such as ``{"decay": (0.0, 1.0)}``; both ends are allowed.
      fields: of a proxy: source -> the one field of `Signals` that it reads there.

    Raises:
      ValueError: a field, source or range that does not exist.

    >>> @declare(label="CALM", needs=["log_prob"])
    ... def calm(*, base): ...
    """
    known = tuple(name for name in Signals._fields if name != "measured")
    for field in (*needs, *(fields or {}).values()):
        if field not in known:
            raise ValueError(f"declare: Signals has no field '{field}'; fields: {', '.join(known)}")
    for name in (source, *(fields or {})):
        if name not in _SOURCES:
            raise ValueError(f"declare: unknown source '{name}'; sources: {', '.join(_SOURCES)}")
    for option, (low, high) in (ranges or {}).items():
        if not low <= high or math.isnan(low):
            raise ValueError(f"declare: the range of '{option}' must go from low to high; got ({low}, {high})")
    told: dict[str, Any] = {"label": label, "summary": summary, "needs": tuple(needs), "source": source}
    told |= {"ranges": MappingProxyType(dict(ranges or {}))}
    told |= {} if fields is None else {"fields": MappingProxyType(dict(fields))}

    def mark(factory: Factory) -> Factory:
        setattr(factory, _MARK, Declaration(**told))
        return factory

    return mark


def declaration_of(factory: Any) -> Declaration:
    """What was declared of ``factory``; the defaults where nothing was."""
    return getattr(factory, _MARK, Declaration())
