"""The arms of a study: its methods under every setting that they vary, and which of their runs a block has."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aesjax.adaptations import ADAPTATIONS, signal_of
from aesjax.registry import hint
from aesjax.schedules import SCHEDULES, Choice, required_signals
from agents import CARRIERS
from experiments.study.config import StudyConfig
from experiments.study.method import ABSOLUTE, BASELINE, BLOCKS, COUPLING, Control, Method
from experiments.study.parser import text_of


class Arm(NamedTuple):
    """One method with one setting of everything that the study varies: a row of its tables."""

    name: str  # "SAC", "SAC+AES", "SAC+AES[kappa=0.3]"
    carrier: str
    choice: Choice  # registered schedule (`baseline` resolved) and its proxy
    variant: str  # "" or "kappa=0.3"
    values: tuple[tuple[str, float], ...]  # hyper-parameters that differ from the preset
    coupling: float  # 1: learning rates follow the entropy weight
    adaptations: tuple[str, ...] = ()
    signal: Choice | None = None  # whose ratio drives them; None: there are none, or the clock alone does
    control: Control | None = None  # played instead of all that

    @property
    def rule(self) -> str:
        """Schedule and adaptations as they are typed: "aes_r+window"."""
        if self.control is not None:
            return f"{self.control.name}:of={text_of(self.control.of)}"
        return "+".join((self.choice.schedule, *self.adaptations))

    @property
    def schedules(self) -> tuple[str, ...]:
        """Registered schedules that the arm computes."""
        return (self.choice.schedule, *((self.signal.schedule,) if self.signal else ()))

    @property
    def adapted(self) -> tuple[str, ...]:
        """Adaptations that act, also in a record that is played."""
        return self.adaptations if self.control is None else self.control.of.adaptations

    @property
    def turned(self) -> set[str]:
        """Levers of `aesjax.adaptations.LEVERS` besides the entropy weight; "units" where single units begin anew."""
        return {ADAPTATIONS[name].lever for name in self.adapted} | {
            "units" for name in self.adapted if ADAPTATIONS[name].units
        }


def arms_of(config: StudyConfig, carrier: str) -> list[Arm]:
    """The arms that a study compares on one carrier, in table order.

    A swept hyper-parameter multiplies the methods that read it and no others; the value that the preset has anyway
    carries no suffix, so a sweep that contains it contains the plain method.
    """
    arms: dict[Any, Arm] = {}
    for method in config.methods_of(carrier):
        axes = [[(name, value) for value in config.sweep[name]] for name in config.sweep if name in _reads(method)]
        for combination in itertools.product(*axes):
            arm = _arm(config, method, dict((*method.values, *combination)))
            # The same method under two names (`fixed` beside a baseline that is fixed) trains once, under the first.
            arms.setdefault((arm.rule, arm.control, arm.variant), arm)
    return list(arms.values())


def merged_arms(config: StudyConfig) -> list[str]:
    """A sentence for every method that is trained under the name of another one, because both are equal."""
    lines = []
    for carrier in config.carriers:
        first: dict[Any, str] = {}
        for method in config.methods_of(carrier):
            if not any(name in _reads(method) for name in config.sweep):
                arm = _arm(config, method, dict(method.values))
                other = first.setdefault((arm.rule, arm.control, arm.variant), arm.name)
                if other != arm.name:
                    lines.append(f"{arm.name} is equal to {other} and trains once, under that name")
    return lines


def _arm(config: StudyConfig, method: Method, given: dict[str, float]) -> Arm:
    schedule, carrier = method.own_schedule, method.carrier
    choice, signal = Choice(schedule, method.proxy or config.proxy, method.source or config.source), None
    if method.driver is not None:
        signal = choice._replace(schedule=method.driver)
    coupling = given.pop(COUPLING, 0.0)
    driven = (schedule,) if signal is None else (schedule, signal.schedule)
    differing = tuple((n, v) for n, v in given.items() if v != _default(config, carrier, driven, n))
    suffix = [f"{n}={v:g}" for n, v in differing]
    suffix += [f"coupling={coupling:g}"] if coupling else []
    if signal is not None and signal.schedule != signal_of(schedule):
        suffix.append(f"signal={signal.schedule}")
    if SCHEDULES[schedule].uses_proxy or (signal is not None and SCHEDULES[signal.schedule].uses_proxy):
        suffix += [f"proxy={choice.proxy}"] if choice.proxy != config.proxy else []
        suffix += [f"source={method.source}"] if method.source not in (None, config.source) else []
    variant = ",".join(suffix)
    label = _label(method)
    name = f"{label}[{variant}]" if variant else label
    return Arm(name, carrier, choice, variant, differing, coupling, method.adaptations, signal, method.control)


def _label(method: Method) -> str:
    own = CARRIERS[method.carrier].label
    if method.control is not None:
        name, of, blocks = method.control
        return f"{own}+{name}{'' if blocks == BLOCKS else f'[blocks={blocks}]'}({text_of(of)})"
    if method.schedule != BASELINE or method.label is not None:
        own += f"+{SCHEDULES[method.own_schedule].label if method.label is None else method.label}"
    return "+".join((own, *method.adaptations))


def _reads(method: Method) -> set[str]:
    """The hyper-parameters that a method reads and does not fix itself."""
    carrier = CARRIERS[method.carrier]
    if method.control is not None:
        return set(carrier.hyper._fields)
    reads = {*SCHEDULES[method.own_schedule].options, *carrier.hyper._fields}
    if method.driver is not None:
        reads |= set(SCHEDULES[method.driver].options) - set(ABSOLUTE)
    reads |= {f"{name}.{option}" for name in method.adaptations for option in ADAPTATIONS[name].options}
    return reads - {name for name, _ in method.values}


def check_swept(config: StudyConfig) -> None:
    """Refuse an axis of a sweep that no method of the study reads, and a value outside the range of an adaptation."""
    reads = set().union(*map(_reads, config.methods))
    for name, values in config.sweep.items():
        if name not in reads:
            known = f"read are: {', '.join(sorted(reads))}"
            raise ValueError(f"--sweep varies '{name}', which nothing in the study reads{hint(name, reads)} {known}")
        adaptation, _, option = name.rpartition(".")
        for value in values if adaptation else ():
            ADAPTATIONS[adaptation].check({option: value})


def check_arms(arms: Sequence[Arm]) -> None:
    """Refuse arms of one carrier that it cannot train, and two that tables could not tell apart."""
    first: dict[str, Arm] = {}
    for arm in arms:
        other = first.setdefault(arm.name, arm)
        if other is not arm:
            raise ValueError(
                f"'{other.rule}' and '{arm.rule}' are both called '{arm.name}' in tables; "
                "declare another label for one of them"
            )
    for arm in arms:
        carrier = CARRIERS[arm.carrier]
        for name in SCHEDULES[arm.choice.schedule].options:
            if name in carrier.hyper._fields:
                raise ValueError(
                    f"option '{name}' of schedule '{arm.choice.schedule}' has the name of a setting of carrier "
                    f"'{arm.carrier}'; give the parameter of its factory another one"
                )
        check_levers(arm)
        signals = () if arm.signal is None else (arm.signal,)
        for field, reader in required_signals((arm.choice, *signals)).items():
            if field in carrier.absent:
                raise ValueError(f"{reader} cannot be used with carrier '{arm.carrier}': {carrier.absent[field]}")


def check_levers(arm: Arm) -> None:
    """Refuse an adaptation whose lever the carrier does not have."""
    for name in arm.adapted:
        CARRIERS[arm.carrier].check_lever(name, ADAPTATIONS[name].lever, f"carrier '{arm.carrier}'")


def _default(config: StudyConfig, carrier: str, schedules: Sequence[str], name: str) -> float | None:
    """The value that a varied hyper-parameter has anyway: the preset's, or the schedule's own."""
    own = config.settings[carrier]
    if "." in name:
        adaptation, _, option = name.rpartition(".")
        return ADAPTATIONS[adaptation].options[option]
    if name == "base":
        return own["base"]
    if name in own["hyper"]:
        return own["hyper"][name]
    if name in CARRIERS[carrier].hyper._fields:
        return CARRIERS[carrier].hyper._field_defaults[name]
    if name in own["schedule"]:
        return own["schedule"][name]
    if name == "q":
        return 0.9
    defaults = [SCHEDULES[each].signature.defaults for each in schedules]
    return next((known[name] for known in defaults if name in known), None)


def block_of(carrier_counts: Mapping[str, int], block: tuple[int, int] | None) -> dict[str, range]:
    """Carrier -> positions among its runs that lie in a block of the study's runs; a carrier without any is absent.

    Args:
      carrier_counts: carrier -> number of its runs, in the order of the study.
      block: first and last run, counted from 1 over all carriers; None: all runs.

    Raises:
      ValueError: the block is not within the study.

    >>> block_of({"sac": 10, "ppo": 10}, (8, 12))
    {'sac': range(7, 10), 'ppo': range(0, 2)}
    """
    total = sum(carrier_counts.values())
    first, last = block or (1, total)
    if not 1 <= first <= last <= total:
        raise ValueError(f"--block must lie within the {total} runs of the study, 1:{total}; got {first}:{last}")
    found, before = {}, 0
    for carrier, count in carrier_counts.items():
        low, high = max(first - 1 - before, 0), min(last - before, count)
        if low < high:
            found[carrier] = range(low, high)
        before += count
    return found


def runs_of(config: StudyConfig) -> dict[str, range]:
    """Carrier -> which of its runs the study trains; see `block_of`."""
    each = len(config.patterns) * len(config.seeds)
    counts = {carrier: each * len(arms_of(config, carrier)) for carrier in config.carriers}
    return block_of(counts, config.block)
