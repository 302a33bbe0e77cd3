"""The methods that the entries of a study stand for, on each carrier, and what those of one program have in common."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aesjax.adaptations import RESPONSES, Played, ResponseHyper, signal_of
from aesjax.schedules import SCHEDULES, Choice, ScheduleHyper, required_signals
from aesjax.types import Levers
from agents import CARRIERS, CarrierSpec
from experiments.study.config import StudyConfig
from experiments.study.entries import ABSOLUTE, BASELINE, COUPLING, Control, Entry, parse_entry

#: What controls play, by method, pattern and seed.
Records = Mapping[tuple[str, str, int], Played]


class Method(NamedTuple):
    """One carrier under one schedule with one setting of everything that the study varies."""

    name: str  # "SAC", "SAC+AES", "SAC+AES[kappa=0.3]"
    carrier: str
    choice: Choice  # registered schedule (`baseline` resolved) and what feeds it
    variant: str  # "" or "kappa=0.3"
    values: tuple[tuple[str, float], ...]  # hyper-parameters that differ from the preset
    coupling: float  # 1: learning rates follow the entropy weight
    responses: tuple[str, ...] = ()  # beyond the entropy weight
    signal: Choice | None = None  # whose ratio drives them; None: there are none, or the clock alone does
    control: Control | None = None  # what is played instead of all that

    @property
    def rule(self) -> str:
        """What turns what, in the words of `--schedules`: "aes_r+window"."""
        if self.control is not None:
            return f"{self.control.name}:of={self.control.of}"
        return "+".join((self.choice.schedule, *self.responses))

    @property
    def schedules(self) -> tuple[str, ...]:
        """Registered schedules that the method computes."""
        return (self.choice.schedule, *((self.signal.schedule,) if self.signal else ()))

    @property
    def turned(self) -> set[str]:
        """Levers of `aesjax.adaptations.LEVERS` besides the entropy weight; "units" where these are refreshed."""
        names = self.responses if self.control is None else parse_entry(self.control.of).responses
        return {RESPONSES[name].lever for name in names} | {"units" for name in names if RESPONSES[name].units}


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
        label = "+".join((label, *asked.responses))
        if asked.control is not None:
            blocks = (
                f"[blocks={asked.control.blocks}]" if asked.control.blocks != Control._field_defaults["blocks"] else ""
            )
            label = f"{spec.label}+{asked.control.name}{blocks}({asked.control.of})"
        choice, signal = Choice(schedule, asked.proxy or config.proxy, asked.source or config.source), None
        if any(RESPONSES[name].uses_signal for name in asked.responses):
            signal = choice._replace(schedule=signal_of(schedule, asked.signal))
        reads = _reads(spec, asked)
        axes = [[(name, value) for value in values] for name, values in config.sweep.items() if name in reads]
        for combination in itertools.product(*axes):
            given = dict((*asked.values, *combination))
            coupling = given.pop(COUPLING, 0.0)
            driven = (schedule,) if signal is None else (schedule, signal.schedule)
            differing = tuple((n, v) for n, v in given.items() if v != _default(config, carrier, driven, n))
            suffix = [f"{n}={v:g}" for n, v in differing]
            suffix += [f"coupling={coupling:g}"] if coupling else []
            if signal is not None and signal.schedule != signal_of(schedule):
                suffix.append(f"signal={signal.schedule}")
            if SCHEDULES[schedule].uses_proxy or (signal is not None and SCHEDULES[signal.schedule].uses_proxy):
                suffix += [f"proxy={choice.proxy}"] if choice.proxy != config.proxy else []
                suffix += [f"source={asked.source}"] if asked.source not in (None, config.source) else []
            variant = ",".join(suffix)
            name = f"{label}[{variant}]" if variant else label
            # The same method under two names (`fixed` beside a baseline that is fixed) trains once, under the first.
            method = Method(name, carrier, choice, variant, differing, coupling, asked.responses, signal, asked.control)
            methods.setdefault((method.rule, asked.control, variant), method)
    return list(methods.values())


def _reads(spec: CarrierSpec, asked: Entry) -> set[str]:
    """The hyper-parameters that an entry of `--schedules` reads on a carrier and does not fix itself."""
    if asked.control is not None:
        return set(spec.hyper._fields)
    schedule = spec.baseline if asked.schedule == BASELINE else asked.schedule
    reads = {*SCHEDULES[schedule].hyper, *spec.hyper._fields}
    if any(RESPONSES[name].uses_signal for name in asked.responses):
        reads |= set(SCHEDULES[signal_of(schedule, asked.signal)].hyper) - set(ABSOLUTE)
    reads |= {f"{name}.{option}" for name in asked.responses for option in RESPONSES[name].options}
    return reads - {name for name, _ in asked.values}


def check_swept(config: StudyConfig) -> None:
    """Refuse an axis of `--sweep` that no method of the study reads.

    Raises:
      ValueError: naming the axis and those that are read.
    """
    entries = [parse_entry(text) for text in config.schedules]
    reads = set().union(*(_reads(CARRIERS[carrier], asked) for carrier in config.carriers for asked in entries))
    if unread := [name for name in config.sweep if name not in reads]:
        raise ValueError(
            f"--sweep varies '{unread[0]}', which nothing in the study reads; read are: {', '.join(sorted(reads))}"
        )


def check_usable(method: Method) -> None:
    """Refuse a schedule that reads what its carrier cannot report, and a response whose lever it does not have.

    Raises:
      ValueError: naming the schedule or response, the carrier and the reason.
    """
    spec = CARRIERS[method.carrier]
    for name in SCHEDULES[method.choice.schedule].own:
        if name in spec.hyper._fields:
            raise ValueError(
                f"option '{name}' of schedule '{method.choice.schedule}' has the name of a setting of carrier "
                f"'{method.carrier}'; give the parameter of its factory another one"
            )
    check_levers(method)
    signals = () if method.signal is None else (method.signal,)
    for field, reader in required_signals((method.choice, *signals)).items():
        if field in spec.absent:
            raise ValueError(f"{reader} cannot be used with carrier '{method.carrier}': {spec.absent[field]}")


def check_names(methods: Sequence[Method]) -> None:
    """Refuse two methods of one carrier that tables could not tell apart.

    Raises:
      ValueError: naming both, and what they are called.
    """
    first: dict[str, Method] = {}
    for method in methods:
        other = first.setdefault(method.name, method)
        if other is not method:
            raise ValueError(
                f"'{other.rule}' and '{method.rule}' are both called '{method.name}' in tables; "
                "declare another label for one of them"
            )


def check_levers(method: Method) -> None:
    """Refuse a response whose lever the carrier does not have.

    Raises:
      ValueError: naming the response, the carrier and the reason.
    """
    missing = CARRIERS[method.carrier].unturned
    for name in method.responses if method.control is None else parse_entry(method.control.of).responses:
        if RESPONSES[name].lever in missing:
            reason = missing[RESPONSES[name].lever]
            raise ValueError(f"response '{name}' cannot be used with carrier '{method.carrier}': {reason}")


def _default(config: StudyConfig, carrier: str, schedules: Sequence[str], name: str) -> float:
    """The value that a varied hyper-parameter has anyway: the preset's, or the schedule's own."""
    own = config.settings[carrier]
    if "." in name:
        response, _, option = name.rpartition(".")
        return RESPONSES[response].options[option]
    for schedule in schedules:
        if name in SCHEDULES[schedule].own:
            return SCHEDULES[schedule].own[name]
    if name == "base":
        return own["base"]
    if name in own["hyper"]:
        return own["hyper"][name]
    if name in CARRIERS[carrier].hyper._fields:
        return CARRIERS[carrier].hyper._field_defaults[name]
    return own["schedule"].get(name, ScheduleHyper._field_defaults.get(name))


class Together(NamedTuple):
    """What the methods of one program have among them."""

    responses: tuple[str, ...]
    signals: tuple[Choice, ...]  # what drives them
    turned: frozenset[str]  # of `aesjax.adaptations.LEVERS`, by responses or by controls; maybe "units"
    controls: bool

    @property
    def proxies(self) -> list[str]:
        """Keys of the proxies that the signals read."""
        return [choice.key for choice in self.signals if SCHEDULES[choice.schedule].uses_proxy]

    def hyper_of(self, names: Sequence[str], signal: Choice | None, values: Iterable) -> ResponseHyper:
        """The responses ``names`` of one run as data, with options "window.power" among ``values``."""
        given = dict(values)
        options = {
            name: {o: np.float32(given.get(f"{name}.{o}", v)) for o, v in RESPONSES[name].options.items()}
            for name in self.responses
        }
        index = 0 if signal is None else self.signals.index(signal)
        on = {name: np.float32(name in names) for name in self.responses}
        return ResponseHyper(np.int32(index), on, options)

    def played(self, record: Played | None, length: int) -> Played | None:
        """``record`` with every lever that the program turns; for None one that plays nothing, if any run plays one.

        Args:
          length: entries of all records.
        """
        if not self.controls:
            return None
        if record is None:
            record = Played(np.float32(0), np.int32(1), np.zeros(length, np.float32))
        names = {"window": ("window",), "refresh": ("refresh", "refresh_actor"), "rate": ("rate",)}
        names |= {"units": ("refresh_units",)}
        neutral: dict[str, Any] = {
            name: np.full(length, name in ("window", "rate"), np.float32)
            for lever in sorted(self.turned)
            for name in names[lever]
        }
        given = {name: value for name, value in record.levers._asdict().items() if value is not None}
        return record._replace(levers=Levers(**neutral | given))


def together(methods: Sequence[Method]) -> Together:
    """What ``methods`` have among them."""
    return Together(
        responses=tuple(name for name in RESPONSES if any(name in method.responses for method in methods)),
        signals=tuple(dict.fromkeys(method.signal for method in methods if method.signal is not None)),
        turned=frozenset().union(*(method.turned for method in methods)),
        controls=any(method.control is not None for method in methods),
    )


# What XLA computes depends, in the last bit, on how many runs go through a program together and on its number of
# devices. So the runs of a carrier are divided into *groups* by the study alone; a group goes through the program
# together, on one device. A part of a study is a number of neighbouring groups, which one process trains in order.


def num_groups(runs: int, together: int) -> int:
    """How many groups of at most ``together`` there are.

    >>> num_groups(25, 8)
    4
    """
    return math.ceil(runs / together)


def group_size(runs: int, together: int) -> int:
    """Runs of every group but the last, which may have fewer: as equal as can be.

    >>> group_size(25, 8)
    7
    """
    return math.ceil(runs / num_groups(runs, together))


def share(runs: Mapping[str, int], together: int, number: int, of: int) -> dict[str, range]:
    """The runs of part ``number``, which counts from 1: carrier -> positions among its runs; absent where it has none.

    Args:
      runs: carrier -> number of its runs, at least 1, in the order of the study.
      together: largest size of a group.
      of: how many parts there are.

    Raises:
      ValueError: fewer groups than parts, or no such part.
    """
    counts = {carrier: num_groups(count, together) for carrier, count in runs.items()}
    total = sum(counts.values())
    if not 1 <= of <= total:
        raise ValueError(
            f"the study has {total} groups of at most {together} runs that train together, so it divides into 1 to "
            f"{total} parts; got {of}"
        )
    if not 1 <= number <= of:
        raise ValueError(f"the parts are numbered from 1 to {of}; got {number}")
    first, end = (number - 1) * total // of, number * total // of
    found, before = {}, 0
    for carrier, count in counts.items():
        low, high = max(first - before, 0), min(end - before, count)
        if low < high:
            size = group_size(runs[carrier], together)
            found[carrier] = range(low * size, min(high * size, runs[carrier]))
        before += count
    return found


def runs_of(config: StudyConfig) -> dict[str, range]:
    """Carrier -> which of its runs the study trains: all, but in a part of a study; absent where it trains none.

    Raises:
      ValueError: the study does not divide into so many parts.
    """
    each = len(config.patterns) * len(config.seeds)
    counts = {carrier: each * len(methods_of(config, carrier)) for carrier in config.carriers}
    if config.together is None or not config.part:
        return {carrier: range(count) for carrier, count in counts.items()}
    return share(counts, config.together, **config.part)
