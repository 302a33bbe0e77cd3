"""Programs of a configuration: the rows of a study's tables, the learner of each carrier, and its runs as data."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from aesjax import schedules
from aesjax.adaptations import ADAPTATIONS, Adaptation, Played, driver_of
from aesjax.compiling import jit
from aesjax.registry import hint, listed
from aesjax.schedules import DriftProxy, Schedule, required_signals
from aesjax.types import Levers, Program
from agents.common import Run
from agents.common.off_policy import TRACKED
from agents.train import Learner, learner_of
from envs import Task
from envs.patterns import compiled
from envs.world import World
from experiments.study.config import OBSERVED, STEADY, StudyConfig, configured
from experiments.study.method import BLOCKS, Method, source_of
from experiments.study.text import number, text_of

#: Records that controls play, by row, pattern and seed.
Records = Mapping[tuple[str, str, int], Played]
#: Recorded values of levers before an update, and of an empty record; others are 0.
UNTOUCHED = {"window": 1.0, "recency": np.inf, "rate": 1.0, "updates": 1.0}
_EFFECTIVE = {"recent": 1.0, "geometric": math.e / 2.0}  # effective size of the distribution over its share
_FIELDS = {"refresh": ("refresh", "refresh_actor")}  # names in `Levers`, if it differs


class Row(NamedTuple):
    """One method under one setting of the varied numbers: a row of the study's tables."""

    name: str  # "SAC", "SAC+AES", "SAC+AES[kappa=0.3]"
    rule: str  # schedule and adaptations: "aes_r+window"
    variant: str  # "" or "kappa=0.3"
    method: Method  # with the setting

    @property
    def carrier(self) -> str:
        return self.method.carrier.name

    @property
    def adapted(self) -> tuple[Adaptation, ...]:
        """Adaptations in force, including those of a played record."""
        control = self.method.control
        return self.method.adaptations if control is None else control.of.adaptations

    @property
    def turned(self) -> set[str]:
        """Adjusted levers, of `aesjax.adaptations.LEVERS`."""
        return {each.factory.lever for each in self.adapted}


@dataclass(frozen=True)
class Share:
    """One carrier's share of a study: its learner and the rows that it trains."""

    config: StudyConfig
    learner: Learner
    rows: list[Row]
    trained: range  # indices of the trained runs: all, or a block

    @property
    def carrier(self) -> str:
        return self.learner.spec.name

    @property
    def updates(self) -> int:
        """Gradient steps of a run, of its trained beginning."""
        return self.learner.updates * self.config.steps // self.config.whole

    @cached_property
    def keys(self) -> list[tuple[Row, str, int]]:
        """Row, pattern and seed of every run of the share, in table order."""
        return list(itertools.product(self.rows, self.config.patterns, self.config.seeds))

    @cached_property
    def labels(self) -> list[dict[str, Any]]:
        """Identifying columns of every trained run."""
        same = {"family": self.learner.world.task.family, "task": self.config.task}
        return [
            same
            | {"method": row.name, "carrier": self.carrier, "schedule": row.rule, "variant": row.variant}
            | {"pattern": pattern, "seed": seed}
            for row, pattern, seed in self.keys[self.trained.start : self.trained.stop]
        ]

    def schedule(self, method: Method) -> Schedule:
        """Schedule of a method with all of its options."""
        return self._filled(method.in_force, method)

    def signal(self, method: Method) -> Schedule | None:
        """Schedule that drives a method's adaptations, with all of its options; None if there is none."""
        driver = method.driver
        return None if driver is None else self._filled(driver, method)

    def _filled(self, schedule: Schedule, method: Method) -> Schedule:
        if schedule.factory.uses_proxy:
            proxy = proxy_of(self.config, schedule)
        else:  # equal structure in all runs: only the level is used
            proxy = self.config.proxy.factory((method.proxy or self.config.proxy).q)
        return Schedule(schedule.factory, schedule.given, proxy).filled(self.learner.facts)

    @cached_property
    def kinds(self) -> tuple[Schedule, ...]:
        """One schedule of each kind of the program."""
        return tuple({_kind(own): own for row in self.rows for own in (self.schedule(row.method),)}.values())

    @cached_property
    def signals(self) -> tuple[Schedule, ...]:
        """One schedule of each kind that drives adaptations."""
        drivers = filter(None, (self.signal(row.method) for row in self.rows))
        return tuple({_kind(driver): driver for driver in drivers}.values())

    @cached_property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """One adaptation of each kind of the program, in the order of the registry."""
        used = {each.factory: each for row in self.rows for each in row.method.adaptations}
        rank = {factory: at for at, factory in enumerate(ADAPTATIONS.values())}
        return tuple(used[factory] for factory in sorted(used, key=lambda factory: rank.get(factory, len(rank))))

    @cached_property
    def turned(self) -> frozenset[str]:
        """Quantities that adaptations or records adjust in any run."""
        return frozenset().union(*(row.turned for row in self.rows))

    @property
    def record(self) -> list[DriftProxy]:
        """Proxies to record in every run, so that any schedule can be replayed later."""
        factory, absent = self.config.proxy.factory, self.learner.spec.lacks(self.learner.world.discrete)
        fresh = bool(TRACKED & required_signals((*self.kinds, *self.signals)).keys())
        proxies = [
            factory(source=source)
            for source, field in factory.fields.items()
            if (source == "update" or fresh) and field not in absent
        ]
        return proxies + [proxy for each in self.signals if isinstance(proxy := each.reads, DriftProxy)]

    @property
    def small_windows(self) -> list[str]:
        """One sentence per adaptation whose share is, in effective size, below the smallest window of the replay."""
        supply, notes = self.learner.supply, []
        for row in self.rows:
            for adaptation in row.method.adaptations:
                name = adaptation.factory.name
                if name not in _EFFECTIVE:
                    continue
                share = adaptation.filled().given["share"]
                if _EFFECTIVE[name] * share * supply.capacity < supply.floor:
                    notes.append(
                        f"{name}: share {share:g} of {supply.capacity:g} transitions is {supply.floor:g} "
                        f"({100 * supply.floor / supply.capacity:.0f} %), its smallest window"
                    )
        return notes

    def program(self) -> Program:
        return self.learner.program(self.record)

    def run(self, method: Method, seed: int, drift: Any, played: Played | None, length: int) -> Run:
        """One run as data, NumPy.

        Args:
          length: number of entries of the program's records.
        """
        facts, own, signal = self.learner.facts, self.schedule(method), self.signal(method)
        q = (method.proxy or self.config.proxy).q
        hyper = self.learner.spec.hyper()._replace(**{**self.config.settings[self.carrier].hyper, **method.hyper})
        given = {each.factory: each for each in method.adaptations}
        numbers = Run(
            seed=None,
            drift=None,
            schedules=_with(self.kinds, own, facts, q),
            hyper=hyper,
            kind=None,
            coupling=float(method.coupling) if any(row.method.coupling for row in self.rows) else None,
            adaptations=[
                given.get(each.factory, Adaptation(each.factory, {}, 0.0)).filled() for each in self.adaptations
            ],
            signals=_with(self.signals, signal, facts, q),
            driver=None,
            updates=method.values.get("updates", facts["updates"]) if self.turned else None,
        )
        return jax.tree.map(np.float32, numbers)._replace(
            seed=np.uint32(seed),
            drift=drift,
            kind=np.int32(_position(self.kinds, own)),
            driver=np.int32(0 if signal is None else _position(self.signals, signal)),
            played=self._played(played, length) if any(row.method.control for row in self.rows) else None,
        )

    def _played(self, record: Played | None, length: int) -> Played:
        """``record`` with all quantities that the program adjusts; an empty record for None."""
        if record is None:
            record = Played(np.float32(0), np.int32(1), np.zeros(length, np.float32))
        names = [name for lever in sorted(self.turned) for name in _FIELDS.get(lever, (lever,))]
        neutral: dict[str, Any] = {name: np.full(length, UNTOUCHED.get(name, 0.0), np.float32) for name in names}
        given = {name: value for name, value in record.levers._asdict().items() if value is not None}
        return record._replace(levers=Levers(**neutral | given))


def _kind(schedule: Schedule) -> tuple[Any, ...]:
    proxy = schedule.reads
    return schedule.factory, *((proxy.factory, proxy.place) if isinstance(proxy, DriftProxy) else ())


def _position(kinds: Sequence[Schedule], schedule: Schedule) -> int:
    return [_kind(each) for each in kinds].index(_kind(schedule))


def _with(kinds: Sequence[Schedule], own: Schedule | None, facts: Mapping[str, float], q: Any) -> tuple[Schedule, ...]:
    """All kinds of a program: ``own`` for its kind, others with their defaults, at the level ``q``."""

    def other(kind: Schedule) -> Schedule:
        proxy: Any = kind.proxy  # set by `Share`
        return Schedule(kind.factory, {}).filled(facts, DriftProxy(proxy.factory, q, proxy.source))

    return tuple(own if own is not None and _kind(own) == _kind(kind) else other(kind) for kind in kinds)


def proxy_of(config: StudyConfig, schedule: Schedule) -> DriftProxy:
    """Proxy that a schedule reads in a study, with its source: the one that it names, else the study's."""
    proxy: Any = schedule.proxy or config.proxy
    return proxy.at(config.source or schedule.factory.source)


def rows_of(config: StudyConfig) -> list[Row]:
    """Rows of a study in table order, grouped by carrier.

    A swept hyper-parameter multiplies only the methods that read it. The preset's value has no suffix, so a sweep with
    this value contains the plain method.
    """
    return [equal[0] for equal in _equal_rows(config)]


def _equal_rows(config: StudyConfig) -> list[list[Row]]:
    """Rows in table order; equal rows, such as `fixed` and a fixed baseline, train once, under the first name."""
    rows: dict[Any, list[Row]] = {}
    for method in config.methods:
        for row in _rows_of(config, method):
            rows.setdefault((row.carrier, identity(config, row.method)), []).append(row)
    return list(rows.values())


def identity(config: StudyConfig, method: Method) -> Any:
    """Key that is equal for methods that train equal runs, with all options resolved."""
    carrier = method.carrier

    def resolved(schedule: Schedule) -> Any:
        signature = schedule.factory.signature
        names = (*signature.required, *signature.defaults)
        options = ((name, schedule.given.get(name, _default(config, method, name))) for name in names)
        if not schedule.factory.uses_proxy:
            return schedule.factory, *options
        proxy = proxy_of(config, schedule)
        level = proxy.q if "q" in proxy.factory.takes else None
        return schedule.factory, proxy.factory, proxy.place, level, *options

    hyper = {**carrier.hyper()._asdict(), **config.settings[carrier.name].hyper, **method.hyper}
    return (
        *(resolved(schedule) for schedule in (method.in_force, method.driver) if schedule is not None),
        *((each.factory, *sorted(each.filled().given.items())) for each in method.adaptations),
        *sorted(hyper.items()),
        method.coupling,
        method.control,
    )


def plain(config: StudyConfig, method: Method) -> Method:
    """The method without the numbers that equal the study's, which trains equal runs."""

    def differing(given: Mapping[str, float], part: str = "") -> dict[str, float]:
        return {name: value for name, value in given.items() if value != _default(config, method, part + name)}

    def shortened(schedule: Schedule) -> Schedule:
        proxy = None if schedule.proxy == config.proxy else schedule.proxy
        return Schedule(schedule.factory, differing(schedule.given), proxy)

    control = method.control
    schedule, signal = (each and shortened(each) for each in (method.schedule, method.signal))
    adaptations = [each.factory(**differing(each.given, f"{each.factory.name}.")) for each in method.adaptations]
    if not adaptations and schedule == Method(method.carrier).in_force:
        schedule = None  # the carrier alone
    return replace(
        method,
        schedule=schedule,
        adaptations=tuple(adaptations),
        signal=signal,
        control=control and replace(control, of=plain(config, control.of)),
        hyper=differing(method.hyper),
    )


def _open(config: StudyConfig, method: Method) -> set[str]:
    """Numbers of a method that a sweep may vary."""
    proxy = (method.proxy or config.proxy).factory
    return method.reads - method.values.keys() - (set() if "q" in proxy.takes else {"q"})


def _rows_of(config: StudyConfig, method: Method) -> Iterator[Row]:
    """All settings of one method."""
    open_ = _open(config, method)
    axes = [[(name, value) for value in config.sweep[name]] for name in config.sweep if name in open_]
    for combination in itertools.product(*axes):
        values = dict(combination)
        varied = method.varied(values, config.proxy) if values else method
        given = {**method.values, **values}
        suffix = [f"{n}={number(v)}" for n, v in given.items() if v != _default(config, method, n)]
        suffix += ["coupling=1"] if method.coupling else []
        driver, plain = method.driver, driver_of(method.in_force, method.adaptations)
        if driver is not None and plain is not None and driver.factory is not plain.factory:
            suffix.append(f"signal={driver.factory.name}")
        if any(each.factory.uses_proxy for each in (method.in_force, driver) if each is not None):
            proxy = method.proxy or config.proxy
            suffix += [f"proxy={proxy.factory.name}"] if proxy.factory != config.proxy.factory else []
            suffix += [f"source={proxy.source}"] if proxy.source not in (None, config.source) else []
        rule = "+".join((method.in_force.factory.name, *(each.factory.name for each in method.adaptations)))
        rule = f"{method.control.name}:of={_spoken(method.control.of)}" if method.control else rule
        variant, label = ",".join(suffix), label_of(method)
        yield Row(f"{label}[{variant}]" if variant else label, rule, variant, varied)


def label_of(method: Method) -> str:
    """Name of a method in tables, without its settings."""
    own = method.carrier.label
    if method.control is not None:
        name, of, blocks = method.control.name, method.control.of, method.control.blocks
        return f"{own}+{name}{'' if blocks == BLOCKS else f'[blocks={blocks}]'}({_spoken(of)})"
    if method.schedule is not None or method.label is not None:
        own += f"+{method.in_force.factory.label if method.label is None else method.label}"
    return "+".join((own, *(each.factory.name for each in method.adaptations)))


def _spoken(method: Method) -> str:
    """Text of a method with the names of its objects, which need not be importable."""
    return text_of(method, lambda _, factory: factory.name)


def _default(config: StudyConfig, method: Method, name: str) -> float | None:
    """Default of a varied number, from the preset or the schedule."""
    own, carrier = config.settings[method.carrier.name], method.carrier
    part, _, option = name.rpartition(".")
    if part:
        return next(each.factory.options[option] for each in method.adaptations if each.factory.name == part)
    if name in carrier.hyper._fields:
        return own.hyper.get(name, carrier.hyper._field_defaults[name])
    if name == "base":
        return own.base
    if name in own.schedule:
        return own.schedule[name]
    if name == "q":
        return float(config.proxy.q)
    read = [each.factory.signature.defaults for each in (method.in_force, method.driver) if each is not None]
    return next((known[name] for known in read if name in known), None)


def numbers_of(config: StudyConfig, method: Method, axes: Sequence[str]) -> dict[str, float | None]:
    """Value of each swept number in a row's method, by default the default that it reads; None if it reads none."""
    values = {name: _default(config, method, name) for name in _open(config, method)} | method.values
    return {name: values.get(name) for name in axes}


def blocks_of(counts: Mapping[str, int], block: Sequence[int]) -> dict[str, range]:
    """Carrier -> positions of its runs in a block, given by first and last run from 1; all without a block.

    Raises:
      ValueError: the study has fewer runs.
    """
    total = sum(counts.values())
    first, last = block or (1, total)
    if last > total:
        raise ValueError(f"--block: the study has {total} runs; got {first}:{last}")
    found, before = {}, 0
    for carrier, count in counts.items():
        found[carrier] = range(max(first - 1 - before, 0), max(min(last - before, count), 0))
        before += count
    return found


@dataclass(frozen=True)
class Plan:
    """A study's configuration and the programs that follow from it, each built once, when it is first used."""

    config: StudyConfig
    _built: dict[str, Share] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> Any:
        return Plan, (self.config,)  # programs are built again where they are used

    @cached_property
    def task(self) -> Task:
        return self.config.build_task()

    @cached_property
    def rows(self) -> list[Row]:
        """Rows of the study in table order."""
        return rows_of(self.config)

    @cached_property
    def trained(self) -> dict[str, range]:
        """Carrier -> positions of its trained runs."""
        runs = itertools.product(self.rows, self.config.patterns, self.config.seeds)
        return blocks_of(Counter(row.carrier for row, *_ in runs), self.config.block)

    def share(self, carrier: str) -> Share:
        """One carrier's share, which is not checked: other carriers of a stored study may be missing here."""
        if carrier not in self._built:
            config, own = self.config, self.config.settings[carrier]
            sizes = config.whole // own.num_envs, config.segments
            rows = [row for row in self.rows if row.carrier == carrier]
            patterns = compiled(config.patterns, config.patterns_known)
            drift = {"patterns": patterns, "onset": config.onset, "changes": config.changes}
            learner = learner_of(
                rows[0].method.carrier,
                World(self.task, *sizes, config.observe, history=config.history, **drift),
                own.config,
                own.base,
                num_envs=own.num_envs,
                evaluations=config.whole // config.spacing,
                replay=config.replay_capacity,
                warmup=config.warmup_of(carrier),
                facts=own.schedule,
                episodes=config.episodes,
                random=0 if config.warm_start else None,
                counterfactual=config.counterfactual,
            )
            self._built[carrier] = Share(config, learner, rows, self.trained[carrier])
        return self._built[carrier]

    @cached_property
    def shares(self) -> dict[str, Share]:
        """Carrier -> its share, checked.

        Raises:
          ValueError: an option that is unknown, inconsistent or out of range.
        """
        _check_sweep(self.config)
        shares = {carrier: self.share(carrier) for carrier in self.config.carriers}
        for share in shares.values():
            _check_share(share)
        return shares

    @property
    def world(self) -> World:
        """World of the first carrier; drift and returns of random actions depend only on progress through a run."""
        return self.share(self.config.carriers[0]).learner.world

    @property
    def notes(self) -> list[str]:
        """Limits of the study's results, and methods that differ from the request."""
        config, notes = self.config, []
        if STEADY not in config.patterns and not config.block:
            notes.append(f"without the pattern {STEADY} there will be no nAUC and no DropRatio; add it to --patterns")
        if config.observe:
            notes.append(f"policy and critics observe {OBSERVED[config.observe]}")
        if note := getattr(self.task.env, "note", None):
            notes.append(note)
        for first, *others in _equal_rows(config):
            renamed = [row.name for row in others if row.name != first.name]
            notes += [f"{name} is equal to {first.name} and trains once, under that name" for name in renamed]
        return notes + self.small_windows

    @property
    def small_windows(self) -> list[str]:
        """One sentence per share of `recent` below the smallest window of its carrier's replay."""
        return list(dict.fromkeys(itertools.chain(*(share.small_windows for share in self.shares.values()))))


def plan_of(study: Any) -> Plan:
    """Configure and check an `experiments.Study`; its plan is passed on, so that this happens once.

    Raises:
      ValueError, UnknownNameError: the study cannot be trained; one sentence with the reason.
    """
    plan = Plan(configured(study))
    _ = plan.shares  # built and checked here
    return plan


def _check_sweep(config: StudyConfig) -> None:
    """Raise for a swept number that no method reads."""
    reads = set().union(*(_open(config, method) for method in config.methods))
    for name in config.sweep.keys() - reads:
        known = f"read are: {listed(sorted(reads))}"
        raise ValueError(f"--sweep varies '{name}', which nothing in the study reads{hint(name, reads)} {known}")


def _check_share(share: Share) -> None:
    """Raise for a pattern or row that cannot be trained, or for two rows with one name."""
    for pattern in share.config.patterns:
        share.learner.world.check_pattern(pattern)
    first: dict[str, Row] = {}
    for row in share.rows:
        if (other := first.setdefault(row.name, row)) is not row:
            raise ValueError(
                f"'{other.rule}' and '{row.rule}' are both called '{row.name}' in tables; "
                "give one of them another label"
            )
        _check_row(share, row)
    for schedule in (*share.kinds, *share.signals):
        proxy: Any = schedule.proxy
        parts = {"schedule": schedule.factory, "proxy": proxy.factory}
        if any(source_of(kind, part) is not None for kind, part in parts.items()):
            schedules.check_schedule(schedule)


def _check_row(share: Share, row: Row) -> None:
    """Raise for a method that the carrier cannot train, or whose numbers are out of range."""
    carrier, method = share.learner.spec, row.method
    used = [each for each in (share.schedule(method), share.signal(method)) if each is not None]
    for each in row.adapted:
        carrier.check_lever(each.factory.name, each.factory.lever, f"carrier '{carrier.name}'")
    absent = carrier.lacks(share.learner.world.discrete)
    for signal, reader in required_signals(used).items():
        if reason := absent.get(signal):
            raise ValueError(f"{reader} cannot be used with carrier '{carrier.name}': {reason}")
    carrier.check(carrier.hyper()._replace(**{**share.config.settings[carrier.name].hyper, **method.hyper}))
    for schedule in used:
        schedule.factory.check(schedule.options)
        carrier.check_base(schedule.options.get("base"))


def runs_of(share: Share, records: Records) -> Any:
    """All trained runs of a share, as data batched along a leading axis.

    Args:
      records: of the study's controls.
    """
    world = share.learner.world
    length = max((len(record.weight) for record in records.values()), default=1)
    draw = jit(world.drift, static_argnums=0)
    seeds = {seed: seed if share.config.drift_seed is None else share.config.drift_seed for seed in share.config.seeds}
    drawn: dict[tuple[str, int], Any] = {}
    runs = []
    for row, pattern, seed in share.keys[share.trained.start : share.trained.stop]:
        at = (pattern, seeds[seed])
        if at not in drawn:
            drawn[at] = jax.device_get(draw(pattern, np.uint32(at[1])))
        runs.append(share.run(row.method, seed, drawn[at], records.get((row.name, pattern, seed)), length))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *runs)
