"""The methods that the entries of a study stand for, on each carrier."""

import itertools
from typing import Any, NamedTuple

from aesjax.schedules import SCHEDULES, Choice, ScheduleHyper, required_signals
from agents import CARRIERS
from experiments.study.config import StudyConfig
from experiments.study.entries import BASELINE, COUPLING, parse_entry

__all__ = ["Method", "check_usable", "methods_of"]


class Method(NamedTuple):
    """One carrier under one schedule with one setting of everything that the study varies."""

    name: str  # "SAC", "SAC+AES", "SAC+AES[kappa=0.3]"
    carrier: str
    choice: Choice  # registered schedule (`baseline` resolved) and what feeds it
    variant: str  # "" or "kappa=0.3"
    values: tuple[tuple[str, float], ...]  # hyper-parameters that differ from the preset
    coupling: float  # 1: learning rates follow the entropy weight


def methods_of(config: StudyConfig, carrier: str) -> list[Method]:
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
            differing = tuple((n, v) for n, v in given.items() if v != _default(config, carrier, schedule, n))
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
    for name in SCHEDULES[method.choice.schedule].own:
        if name in spec.hyper._fields:
            raise ValueError(
                f"option '{name}' of schedule '{method.choice.schedule}' has the name of a setting of carrier "
                f"'{method.carrier}'; give the parameter of its factory another one"
            )
    for field, reader in required_signals(method.choice).items():
        if field in spec.absent:
            raise ValueError(f"{reader} cannot be used with carrier '{method.carrier}': {spec.absent[field]}")


def _default(config: StudyConfig, carrier: str, schedule: str, name: str) -> float:
    """The value that a varied hyper-parameter has anyway: the preset's, or the schedule's own."""
    own = config.settings[carrier]
    if name in SCHEDULES[schedule].own:
        return SCHEDULES[schedule].own[name]
    if name == "base":
        return own["base"]
    if name in own["hyper"]:
        return own["hyper"][name]
    if name in CARRIERS[carrier].hyper._fields:
        return CARRIERS[carrier].hyper._field_defaults[name]
    return own["schedule"].get(name, ScheduleHyper._field_defaults.get(name))
