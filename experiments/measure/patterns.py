"""Facts of a drift pattern for metrics and report, read from the manifest in the order of the study."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

STEADY = "steady"  # the pattern without drift, the reference of nAUC and DropRatio


class PatternFacts(NamedTuple):
    """Facts of a drift pattern on every task."""

    jumps: bool  # its value jumps at the change points
    recovery: bool  # and is constant in between, so that the time to recover from a jump is defined
    summary: str = ""  # one line for the reader of a report


# For studies whose manifest has no ``patterns``: they can only have run these.
_BUILT_IN = {
    STEADY: PatternFacts(jumps=False, recovery=False),
    "abrupt": PatternFacts(jumps=True, recovery=True),
    "linear": PatternFacts(jumps=False, recovery=False),
    "periodic": PatternFacts(jumps=False, recovery=False),
    "mixed": PatternFacts(jumps=True, recovery=False),
}
_UNKNOWN = PatternFacts(jumps=False, recovery=False)


def describe(manifest: Mapping[str, Any]) -> dict[str, PatternFacts]:
    """The known patterns: steady, then the manifest's in its order, then the built-in ones that it does not describe.

    >>> square = {"jumps": True, "recovery": True, "summary": "up and down"}
    >>> list(describe({"patterns": {"square": square}}))[:3]
    ['steady', 'square', 'abrupt']
    """
    fields = PatternFacts._fields
    entries = manifest.get("patterns") or {}
    known = {name: PatternFacts(*(entry[field] for field in fields)) for name, entry in entries.items()}
    known |= {name: facts for name, facts in _BUILT_IN.items() if name not in known}
    return {STEADY: known.pop(STEADY)} | known


def describe_runs(manifest: Mapping[str, Any], run: Iterable[str]) -> dict[str, PatternFacts]:
    """The patterns that were run, in the order of `describe`; those that it does not know come last, as gradual."""
    names = dict.fromkeys(run)
    known = {name: facts for name, facts in describe(manifest).items() if name in names}
    return known | {name: _UNKNOWN for name in names if name not in known}
