"""What a person types to say which methods a study compares: `SCHEDULE[:OPTION=VALUE]...`, with
`+RESPONSE[:OPTION=VALUE]...` for every lever beside the entropy weight, and `NAME=V1,V2,...`."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from aesjax.adaptations import CONTROLS, RESPONSES, check_options, signal_of
from aesjax.schedules import SCHEDULES, ScheduleHyper
from agents import CARRIERS
from experiments.study.plugins import find

BASELINE = "baseline"
SOURCES = ("update", "fresh")
COUPLING = "coupling"
ABSOLUTE = ("base", "lambda_min", "lambda_max", "updates")  # what a ratio does not depend on, though a weight does


_BLOCKS = 20.0
_MOST_VALUES = 1000  # of all axes of a sweep together


class Control(NamedTuple):
    """The record of another method's runs, played."""

    name: str  # registered
    of: str  # the method, an item of `--schedules`
    blocks: int = int(_BLOCKS)  # of time, where their order is changed


class Entry(NamedTuple):
    """One item of `--schedules`."""

    schedule: str  # registered name or `baseline`
    proxy: str | None  # None: the study's
    source: str | None
    values: tuple[tuple[str, float], ...]  # hyper-parameters fixed for this item; `coupling` among them
    responses: tuple[str, ...] = ()  # registered, beyond the entropy weight; their options are values "window.power"
    signal: str | None = None  # schedule whose ratio drives them; None: the default
    control: Control | None = None  # then the schedule is `fixed`, and only stands by


def parse_entry(text: str) -> Entry:
    """An item of `--schedules`, such as ``aes:proxy=td_mean:lambda_max=inf:coupling=1`` or ``aes_r+window:power=1``.

    A part without ``=`` belongs to the name before it: ``mypkg.mymodule:factory:decay=0.99``.

    Raises:
      UnknownNameError: unknown schedule, proxy or response. ValueError: an option that is not one.

    >>> parse_entry("aes:lambda_max=0.5+window:power=1").values
    (('lambda_max', 0.5), ('window.power', 1.0))
    """
    if re.split(r"[:+]", text)[0] in CONTROLS:
        return _control(text)
    first, *parts = re.split(r"\+(?=[A-Za-z_])", text)  # not the sign of an exponent
    schedule, options = _split(first, (BASELINE, *SCHEDULES))
    chosen = _options(options, text, "schedule")
    if schedule != BASELINE:
        find("schedule", schedule)
    responses, turned = _responses(parts, text)
    proxy, source, signal = (chosen.pop(name, None) for name in ("proxy", "source", "signal"))
    if proxy is not None:
        find("proxy", proxy)
    if source is not None and source not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}; got '{source}' in '{text}'")
    if signal is not None:
        find("schedule", signal)
        if not any(RESPONSES[name].uses_signal for name in responses):
            raise ValueError(f"option 'signal' says what drives responses, and '{text}' has none that reads a signal")
    reads = () if schedule == BASELINE else (*SCHEDULES[schedule].hyper, COUPLING)
    if responses:
        driver = signal_of("fixed" if schedule == BASELINE else schedule, signal)
        reads = (*reads, *(name for name in SCHEDULES[driver].hyper if name not in ABSOLUTE))
    values = []
    for name, value in chosen.items():
        if name not in reads:
            allowed = ", ".join(sorted({"proxy", "source", *reads})) if reads else "none"
            raise ValueError(f"schedule '{schedule}' has no option '{name}'; allowed: {allowed}")
        values.append((name, _number(f"option '{name}' of schedule '{schedule}'", value)))
    if dict(values).get(COUPLING, 0.0) not in (0.0, 1.0):
        raise ValueError(f"option 'coupling' is 0 or 1; got '{chosen[COUPLING]}' in '{text}'")
    return Entry(schedule, proxy, source, (*values, *turned), responses, signal)


def _options(parts: Sequence[str], text: str, kind: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for option in parts:
        name, equals, value = option.partition("=")
        if not equals or name in chosen:
            raise ValueError(f"an option of a {kind} is NAME=VALUE, each given once; got '{option}' in '{text}'")
        chosen[name] = value
    return chosen


def _responses(parts: Sequence[str], text: str) -> tuple[tuple[str, ...], list[tuple[str, float]]]:
    """Names and options of the responses of an entry, in the registry's order."""
    found: dict[str, list[tuple[str, float]]] = {}
    for part in parts:
        name, options = _split(part, RESPONSES)
        known = find("response", name).options
        if name in found:
            raise ValueError(f"response '{name}' is given twice in '{text}'")
        found[name] = []
        for option, value in _options(options, text, "response").items():
            if option not in known:
                raise ValueError(f"response '{name}' has no option '{option}'; allowed: {', '.join(known)}")
            number = _number(f"option '{option}' of response '{name}'", value)
            check_options(name, {option: number})
            found[name].append((f"{name}.{option}", number))
    names = tuple(name for name in RESPONSES if name in found)
    return names, [pair for name in names for pair in found[name]]


def _control(text: str) -> Entry:
    """``permuted:blocks=40:of=aes_r+window``: all that follows ``of=`` is the method."""
    head, given, of = text.partition(":of=")
    name, *rest = head.split(":")
    if not given or re.split(r"[:+]", of)[0] in CONTROLS:
        raise ValueError(f"control '{name}' needs the method it is made of, as in {name}:of=aes_r; got '{text}'")
    parse_entry(of)
    options = _options(rest, text, "control")
    allowed = ("blocks", "of") if name == "permuted" else ("of",)
    for option in options:
        if option not in allowed:
            raise ValueError(f"control '{name}' has no option '{option}'; allowed: {', '.join(allowed)}")
    blocks = _number(f"option 'blocks' of control '{name}'", options.get("blocks", str(_BLOCKS)))
    if blocks < 2 or blocks % 1:
        raise ValueError(f"option 'blocks' of control '{name}' is a whole number, at least 2; got {blocks:g}")
    return Entry("fixed", None, None, (), control=Control(name, of, int(blocks)))


def _number(what: str, value: str) -> float:
    """A number that the programs, which compute in float32, can hold."""
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{what} takes a number; got '{value}'") from None
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(number)
    if np.isinf(single) != np.isinf(number) or 0.0 < abs(number) < np.finfo(np.float32).tiny:
        raise ValueError(f"{what} takes a number that single precision can hold (1.2e-38 to 3.4e38); got '{value}'")
    return number


def _split(text: str, registered: Collection[str]) -> tuple[str, list[str]]:
    """Name and options; ``module:attribute`` is one name, also as the value of an option."""
    name, *parts = text.split(":")
    options: list[str] = []
    for part in parts:
        if "=" in part or (not options and name in registered):
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
        if not equals or not name or not values:
            raise ValueError(f"--sweep takes NAME=VALUE,VALUE,...; got '{item}'")
        if name in axes:
            raise ValueError(f"--sweep gives '{name}' twice; put all its values into one: {name}=VALUE,VALUE,...")
        try:
            axes[name] = tuple(_number(f"'{name}'", value) for value in values.split(","))
        except ValueError as error:
            raise ValueError(f"--sweep takes NAME=VALUE,VALUE,...; got '{item}': {error}") from None
        if len(axes[name]) > _MOST_VALUES:
            raise ValueError(
                f"--sweep takes at most {_MOST_VALUES} values of a name; got {len(axes[name])} of '{name}'"
            )
        if len(set(axes[name])) != len(axes[name]):
            raise ValueError(f"--sweep gives a value of '{name}' twice; got '{item}'")
    if (product := math.prod(map(len, axes.values()))) > _MOST_VALUES:
        raise ValueError(f"--sweep may combine at most {_MOST_VALUES} settings; got {product}")
    return axes


def check_sweep(axes: Mapping[str, Sequence[float]], carriers: Sequence[str], schedules: Sequence[str]) -> None:
    """Refuse an unknown hyper-parameter.

    Args:
      schedules: registered names; those from elsewhere have options of their own.
    """
    known = {name for name in ScheduleHyper._fields if name != "own"}
    known |= {f for name in carriers for f in CARRIERS[name].hyper._fields}
    known |= {option for name in schedules for option in SCHEDULES[name].own}
    known |= {f"{name}.{option}" for name, spec in RESPONSES.items() for option in spec.options}
    for name in axes:
        if name not in known:
            raise ValueError(f"unknown hyper-parameter '{name}' in --sweep; known: {', '.join(sorted(known))}")
        response, _, option = name.rpartition(".")
        for value in axes[name] if response else ():
            check_options(response, {option: value})
