"""What a study compares: `SCHEDULE[:OPTION=VALUE]...` as a person types it, and the methods it stands for."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aesjax.schedules import PROXIES, SCHEDULES, Choice, ScheduleHyper, required_signals
from agents import CARRIERS

if TYPE_CHECKING:
    from experiments.config import StudyConfig

__all__ = ["BASELINE", "SOURCES", "Entry", "Method", "check_usable", "methods_of", "parse_entry"]

BASELINE = "baseline"
SOURCES = ("update", "fresh")
COUPLING = "coupling"


class Entry(NamedTuple):
    """One item of `--schedules`."""

    schedule: str  # registered name or `baseline`
    proxy: str | None  # None: the study's
    source: str | None
    values: tuple[tuple[str, float], ...]  # hyper-parameters fixed for this item; `coupling` among them


class Method(NamedTuple):
    """One carrier under one schedule with one setting of everything that the study varies."""

    name: str  # "SAC", "SAC+AES", "SAC+AES[kappa=0.3]"
    carrier: str
    choice: Choice  # registered schedule (`baseline` resolved) and what feeds it
    variant: str  # "" or "kappa=0.3"
    values: tuple[tuple[str, float], ...]  # hyper-parameters that differ from the preset
    coupling: float  # 1: learning rates follow the entropy weight


def parse_entry(text: str) -> Entry:
    """An item of `--schedules`, such as ``aes:proxy=td_mean:lambda_max=inf:coupling=1``.

    Raises:
      UnknownNameError: unknown schedule or proxy. ValueError: an option that is not one.

    >>> parse_entry("aes:lambda_max=0.5").values
    (('lambda_max', 0.5),)
    """
    schedule, *options = text.split(":")
    if schedule != BASELINE:
        SCHEDULES[schedule]
    chosen: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or name in chosen:
            raise ValueError(f"an option of a schedule is NAME=VALUE, each given once; got '{option}' in '{text}'")
        chosen[name] = value
    proxy, source = chosen.pop("proxy", None), chosen.pop("source", None)
    if proxy is not None:
        PROXIES[proxy]
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


def methods_of(config: "StudyConfig", carrier: str) -> list[Method]:
    """The methods that a study compares on one carrier, in table order.

    A swept hyper-parameter multiplies the methods that read it and no others; the value that the preset has anyway
    carries no suffix, so a sweep that contains it contains the plain method.
    """
    spec = CARRIERS[carrier]
    methods: dict[Any, Method] = {}
    for asked in map(parse_entry, config.schedules):
        schedule = spec.baseline if asked.schedule == BASELINE else asked.schedule
        label = spec.label if asked.schedule == BASELINE else f"{spec.label}+{SCHEDULES[schedule].label}"
        choice = Choice(schedule, asked.proxy or config.proxy, asked.source or config.source)
        reads = {*SCHEDULES[schedule].hyper, *spec.hyper._fields} - {name for name, _ in asked.values}
        axes = [[(name, value) for value in values] for name, values in config.sweep.items() if name in reads]
        for combination in itertools.product(*axes):
            given = dict((*asked.values, *combination))
            coupling = given.pop(COUPLING, 0.0)
            differing = tuple((n, v) for n, v in given.items() if v != _default(config, carrier, n))
            suffix = [f"{n}={v:g}" for n, v in differing]
            suffix += [f"coupling={coupling:g}"] if coupling else []
            if SCHEDULES[schedule].uses_proxy:
                suffix += [f"proxy={choice.proxy}"] if choice.proxy != config.proxy else []
                suffix += [f"source={asked.source}"] if asked.source not in (None, config.source) else []
            variant = ",".join(suffix)
            name = f"{label}[{variant}]" if variant else label
            # The same method under two names (`fixed` beside a baseline that is fixed) trains once, under the first.
            methods.setdefault((schedule, variant), Method(name, carrier, choice, variant, differing, coupling))
    return list(methods.values())


def check_usable(method: Method) -> None:
    """Refuse a schedule that reads what its carrier cannot report.

    Raises:
      ValueError: naming the schedule, the carrier and the reason.
    """
    spec = CARRIERS[method.carrier]
    for field, reader in required_signals(method.choice).items():
        if field in spec.absent:
            raise ValueError(f"{reader} cannot be used with carrier '{method.carrier}': {spec.absent[field]}")


def check_sweep(axes: Mapping[str, Sequence[float]], carriers: Sequence[str]) -> None:
    """Refuse an unknown hyper-parameter."""
    known = {*ScheduleHyper._fields, *(f for name in carriers for f in CARRIERS[name].hyper._fields)}
    for name in axes:
        if name not in known:
            raise ValueError(f"unknown hyper-parameter '{name}' in --sweep; known: {', '.join(sorted(known))}")


def _default(config: "StudyConfig", carrier: str, name: str) -> float:
    """The preset's value of a varied hyper-parameter."""
    own = config.settings[carrier]
    if name == "base":
        return own["base"]
    if name in own["hyper"]:
        return own["hyper"][name]
    if name in CARRIERS[carrier].hyper._fields:
        return CARRIERS[carrier].hyper._field_defaults[name]
    return own["schedule"].get(name, ScheduleHyper._field_defaults.get(name))
