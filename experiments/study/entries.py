"""What a person types to say which methods a study compares: `SCHEDULE[:OPTION=VALUE]...` and `NAME=V1,V2,...`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aesjax.schedules import SCHEDULES, ScheduleHyper
from agents import CARRIERS
from experiments.study.plugins import find

__all__ = ["BASELINE", "COUPLING", "SOURCES", "Entry", "check_sweep", "parse_entries", "parse_entry", "parse_sweep"]

BASELINE = "baseline"
SOURCES = ("update", "fresh")
COUPLING = "coupling"


class Entry(NamedTuple):
    """One item of `--schedules`."""

    schedule: str  # registered name or `baseline`
    proxy: str | None  # None: the study's
    source: str | None
    values: tuple[tuple[str, float], ...]  # hyper-parameters fixed for this item; `coupling` among them


def parse_entry(text: str) -> Entry:
    """An item of `--schedules`, such as ``aes:proxy=td_mean:lambda_max=inf:coupling=1``.

    A part without ``=`` belongs to the name before it: ``mypkg.mymodule:factory:decay=0.99``.

    Raises:
      UnknownNameError: unknown schedule or proxy. ValueError: an option that is not one.

    >>> parse_entry("aes:lambda_max=0.5").values
    (('lambda_max', 0.5),)
    """
    schedule, options = _split(text)
    chosen: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or name in chosen:
            raise ValueError(f"an option of a schedule is NAME=VALUE, each given once; got '{option}' in '{text}'")
        chosen[name] = value
    if schedule != BASELINE:
        find("schedule", schedule)
    proxy, source = chosen.pop("proxy", None), chosen.pop("source", None)
    if proxy is not None:
        find("proxy", proxy)
    if source is not None and source not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}; got '{source}' in '{text}'")
    reads = () if schedule == BASELINE else (*SCHEDULES[schedule].hyper, COUPLING)
    values = []
    for name, value in chosen.items():
        if name not in reads:
            allowed = ", ".join(sorted({"proxy", "source", *reads})) if reads else "none"
            raise ValueError(f"schedule '{schedule}' has no option '{name}'; allowed: {allowed}")
        try:
            values.append((name, float(value)))
        except ValueError:
            raise ValueError(f"option '{name}' of schedule '{schedule}' takes a number; got '{value}'") from None
    if dict(values).get(COUPLING, 0.0) not in (0.0, 1.0):
        raise ValueError(f"option 'coupling' is 0 or 1; got '{chosen[COUPLING]}' in '{text}'")
    return Entry(schedule, proxy, source, tuple(values))


def _split(text: str) -> tuple[str, list[str]]:
    """Name and options; ``module:attribute`` is one name, also as the value of an option."""
    name, *parts = text.split(":")
    options: list[str] = []
    for part in parts:
        if "=" in part or (not options and (name == BASELINE or name in SCHEDULES)):
            options.append(part)
        elif options:
            options[-1] += ":" + part
        else:
            name += ":" + part
    return name, options


def parse_entries(text: str) -> tuple[str, ...]:
    """`--schedules`: registered names, `baseline`, or all of both, each with its options."""
    everything = (BASELINE, *SCHEDULES)
    entries = everything if text == "all" else tuple(part.strip() for part in text.split(",") if part.strip())
    if not entries:
        raise ValueError(f"--schedules needs at least one name; registered: {', '.join(sorted(everything))}")
    for entry in entries:
        parse_entry(entry)
    if len(set(entries)) != len(entries):
        raise ValueError(f"--schedules names something twice: '{text}'")
    return entries


def parse_sweep(items: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """`--sweep`: hyper-parameter axes from items such as ``kappa=0.1,1``.

    Raises:
      ValueError: an item of another form.
    """
    axes: dict[str, tuple[float, ...]] = {}
    for item in items:
        name, equals, values = item.partition("=")
        try:
            axes[name] = tuple(float(value) for value in values.split(","))
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"--sweep takes NAME=VALUE,VALUE,...; got '{item}'")
    return axes


def check_sweep(axes: Mapping[str, Sequence[float]], carriers: Sequence[str], schedules: Sequence[str]) -> None:
    """Refuse an unknown hyper-parameter.

    Args:
      schedules: registered names; those from elsewhere have options of their own.
    """
    known = {name for name in ScheduleHyper._fields if name != "own"}
    known |= {f for name in carriers for f in CARRIERS[name].hyper._fields}
    known |= {option for name in schedules for option in SCHEDULES[name].own}
    for name in axes:
        if name not in known:
            raise ValueError(f"unknown hyper-parameter '{name}' in --sweep; known: {', '.join(sorted(known))}")
