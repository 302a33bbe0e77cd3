"""From a configuration to results: programs, runs, files. The one place where tasks, carriers and schedules meet."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import envs
from aesjax import schedules
from aesjax.adaptations import ADAPTATIONS, AdaptationData, Played, Supply
from aesjax.compiling import jit
from aesjax.schedules import PROXIES, SCHEDULES, Choice, ScheduleData
from aesjax.types import Levers, Program
from agents import CARRIERS, Carrier, OnPolicyCarrier, train
from agents.common import LoopConfig, Run
from agents.common.episodes import random_returns
from agents.common.loop import stream_stride
from envs.world import World
from experiments.study.arms import Arm, arms_of, check_arms, check_swept, runs_of
from experiments.study.config import StudyConfig
from experiments.study.plugins import is_ours
from experiments.study.sweep import stack

#: Records that controls play, by arm, pattern and seed.
Records = Mapping[tuple[str, str, int], Played]

_OPTIMUM_DIGITS = 6  # of a return
_SIMULATED = 64  # episodes of it at most, where they take place in another simulator
_FLOOR_STEPS = 50_000  # at most, in whole episodes: 1000 of the toy task, 50 of a MuJoCo task


class Setup(NamedTuple):
    """One carrier of a study, built: all that its runs share."""

    carrier: str
    world: World
    agent: Carrier | OnPolicyCarrier
    arms: list[Arm]
    trained: range  # which of its runs the study trains: all, or those in its block
    updates: int  # gradient steps of a run, which are the ticks of its schedule
    facts: Mapping[str, float]  # numbers that schedules request by name
    supply: Supply  # transitions from which a run draws its batches


class Part(NamedTuple):
    """One carrier's share of a study: one program and all its runs."""

    setup: Setup
    program: Program
    runs: Any  # stacked, NumPy, leading run axis
    stream_stride: int  # updates per sample of the recorded streams
    labels: list[dict[str, Any]]  # per run: family, task, method, carrier, schedule, variant, pattern, seed

    @property
    def carrier(self) -> str:
        """Name of the carrier."""
        return self.setup.carrier

    def shapes(self) -> Any:
        """The state of one run as shapes with a leading axis of 1."""
        return jax.eval_shape(jax.vmap(self.program.init), jax.tree.map(lambda leaf: leaf[:1], self.runs))


def world_of(config: StudyConfig, carrier: str) -> World:
    """The world of one carrier's runs: the task, and how long its drift lasts in their vector steps."""
    return World(config.build_task(), config.vector_steps(carrier), config.segments, config.observe)


def set_up(config: StudyConfig, carrier: str) -> Setup:
    """Build one carrier of a study."""
    arms, trained = arms_of(config, carrier), runs_of(config).get(carrier, range(0))
    world, spec = world_of(config, carrier), CARRIERS[carrier]
    own, warmup = config.settings[carrier], config.warmup_of(carrier)
    static = {k: tuple(v) if isinstance(v, list) else v for k, v in own["config"].items()}
    agent = spec.make(world.obs_size, world.action_size, spec.config(**static))
    updates = train.updates_of(agent, world.total, warmup // own["num_envs"])
    facts = train.facts_of(spec, updates, world.action_size, own["base"]) | own["schedule"]
    sizes = LoopConfig(own["num_envs"], config.chunk(carrier), capacity=config.replay_capacity)
    supply = train.supply_of(agent, sizes, warmup)
    return Setup(carrier, world, agent, arms, trained, updates, facts, supply)


class Numbers(NamedTuple):
    """All numbers of one arm's runs."""

    hyper: Any  # the carrier's traced floats, () float32 each
    options: Mapping[str, Mapping[str, float]]  # schedule -> option -> value, of all schedules of its program
    q: float  # quantile level of its proxy
    updates: float  # that its adaptations plan with


def numbers_of(config: StudyConfig, arm: Arm, facts: Mapping[str, float], members: Iterable[str]) -> Numbers:
    """The numbers of one arm: the study's, overridden by its own, each checked to lie in its range.

    Args:
      facts: of its carrier's runs.
      members: all schedules of the program, whose options every run carries; other schedules have their defaults.
    """
    spec = CARRIERS[arm.carrier]
    given = {name: value for name, value in arm.values if "." not in name}
    chosen = {name: value for name, value in given.items() if name in spec.hyper._fields}
    hyper = spec.hyper()._replace(**config.settings[arm.carrier]["hyper"])._replace(**chosen)
    spec.check(hyper)
    own = {name: value for name, value in given.items() if name not in chosen}
    options = {}
    for name in dict.fromkeys((*members, *arm.schedules)):
        options[name] = SCHEDULES[name].filled(facts, own if name in arm.schedules else {})
        if name in arm.schedules:
            SCHEDULES[name].check(options[name])
    q = own.get("q", facts.get("q", 0.9))
    return Numbers(jax.tree.map(np.float32, hyper), options, q, own.get("updates", facts["updates"]))


class Common(NamedTuple):
    """The structure that all runs of one program share."""

    kinds: tuple[Choice, ...]  # their schedules
    adaptations: tuple[str, ...]
    signals: tuple[Choice, ...]  # schedules that drive these
    turned: frozenset[str]  # of `aesjax.adaptations.LEVERS`, by adaptations or by controls; maybe "units"
    coupling: bool
    controls: bool

    @property
    def proxies(self) -> list[str]:
        """Keys of the proxies that the signals read."""
        return [choice.key for choice in self.signals if SCHEDULES[choice.schedule].uses_proxy]

    def schedule(self, arm: Arm, numbers: Numbers) -> ScheduleData:
        """The schedule of one arm's runs as data."""
        own = {kind.schedule: _single(numbers.options[kind.schedule]) for kind in self.kinds}
        return ScheduleData(np.int32(self.kinds.index(arm.choice)), np.float32(numbers.q), own)

    def adaptation(self, arm: Arm, numbers: Numbers) -> AdaptationData:
        """The adaptations of one arm's runs as data."""
        given = dict(arm.values)
        own = {
            name: {o: np.float32(given.get(f"{name}.{o}", v)) for o, v in ADAPTATIONS[name].options.items()}
            for name in self.adaptations
        }
        drivers = {choice.schedule: _single(numbers.options[choice.schedule]) for choice in self.signals}
        index = 0 if arm.signal is None else self.signals.index(arm.signal)
        driven = ScheduleData(np.int32(index), np.float32(numbers.q), drivers)
        on = {name: np.float32(name in arm.adaptations) for name in self.adaptations}
        return AdaptationData(driven, on, own, np.float32(numbers.updates))

    def played(self, record: Played | None, length: int) -> Played | None:
        """``record`` with every lever that the program adjusts; for None one that plays nothing, if any run plays one.

        Args:
          length: entries of all records.
        """
        if not self.controls:
            return None
        if record is None:
            record = Played(np.float32(0), np.int32(1), np.zeros(length, np.float32))
        names = {"window": ("window",), "refresh": ("refresh", "refresh_actor"), "rate": ("rate",)}
        names |= {"units": ("refresh_units",), "updates": ("updates",)}
        neutral: dict[str, Any] = {
            name: np.full(length, name in ("window", "rate", "updates"), np.float32)
            for lever in sorted(self.turned)
            for name in names[lever]
        }
        given = {name: value for name, value in record.levers._asdict().items() if value is not None}
        return record._replace(levers=Levers(**neutral | given))


def _single(options: Mapping[str, float]) -> dict[str, np.float32]:
    return {name: np.float32(value) for name, value in options.items()}


def common(arms: Sequence[Arm]) -> Common:
    """The structure of a program of ``arms``."""
    return Common(
        kinds=tuple(dict.fromkeys(arm.choice for arm in arms)),
        adaptations=tuple(name for name in ADAPTATIONS if any(name in arm.adaptations for arm in arms)),
        signals=tuple(dict.fromkeys(arm.signal for arm in arms if arm.signal is not None)),
        turned=frozenset().union(*(arm.turned for arm in arms)),
        coupling=any(arm.coupling for arm in arms),
        controls=any(arm.control is not None for arm in arms),
    )


def small_windows(config: StudyConfig) -> list[str]:
    """A sentence for every share of `recent` that is smaller than the smallest window of its carrier's replay."""
    lines = []
    for one in (set_up(config, carrier) for carrier in config.carriers):
        for arm in (arm for arm in one.arms if "recent" in arm.adaptations):
            share = dict(arm.values).get("recent.share", ADAPTATIONS["recent"].options["share"])
            if share * one.supply.capacity < one.supply.floor:
                lines.append(
                    f"recent: share {share:g} of {one.supply.capacity:g} transitions is {one.supply.floor:g} "
                    f"({100 * one.supply.floor / one.supply.capacity:.0f} %), its smallest window"
                )
    return list(dict.fromkeys(lines))


def check(config: StudyConfig) -> dict[str, Setup]:
    """Every carrier of a study, built and checked.

    Raises:
      ValueError: something that the study's options name does not exist, does not fit together, or is out of range.
    """
    check_swept(config)
    checked = {}
    for carrier in config.carriers:
        checked[carrier] = one = set_up(config, carrier)
        for pattern in config.patterns:
            one.world.check_pattern(pattern)
        check_arms(one.arms)
        for arm in one.arms:
            numbers = numbers_of(config, arm, one.facts, ())
            proxy = PROXIES[arm.choice.proxy](numbers.q, arm.choice.source)
            if not is_ours("proxy", arm.choice.proxy):
                schedules.verify_proxy(proxy)
            for name in arm.schedules:
                if not is_ours("schedule", name):
                    schedules.verify(SCHEDULES[name], numbers.options[name], proxy.at(SCHEDULES[name].source))
    return checked


def build_part(config: StudyConfig, carrier: str) -> Part:
    """`part_of` one carrier, to read results: controls play nothing."""
    return part_of(config, set_up(config, carrier), {})


def part_of(config: StudyConfig, setup: Setup, records: Records) -> Part:
    """The program of one carrier on the study's task and every run of it that the study trains, one at least.

    Args:
      records: of the study's controls.
    """
    carrier, world, agent, arms, own, updates, facts, supply = setup
    num, both = config.envs_of(carrier), common(arms)
    fresh = train.reads_fresh((*both.kinds, *both.signals))
    # Recorded in every run, so that any schedule can be replayed on it afterwards.
    record = [
        f"{config.proxy}/{source}"
        for source, field in PROXIES[config.proxy].fields.items()
        if (source == "update" or fresh) and field not in CARRIERS[carrier].absent
    ]
    record += [key for key in both.proxies if key not in record]
    on_policy = isinstance(agent, OnPolicyCarrier)
    sizes = LoopConfig(
        num_envs=num,
        interval=config.chunk(carrier),
        warmup=0 if on_policy else config.warmup_of(carrier) // num,
        random=0 if config.warm_start else None,
        capacity=0 if on_policy else config.replay_capacity,
        episodes=config.episodes,
        plasticity=config.plasticity,
        counterfactual=config.counterfactual,
    )
    per_chunk = updates // config.evaluations if on_policy else sizes.interval
    program = train.assemble(
        world,
        agent,
        sizes,
        both.kinds,
        both.adaptations,
        both.signals,
        supply=supply,
        record=record,
    )
    drift = jit(world.drift, static_argnums=0)
    runs, labels = [], []
    drifts: dict[tuple[str, int], Any] = {}
    length = max((len(record.weight) for record in records.values()), default=1)
    members = [choice.schedule for choice in (*both.kinds, *both.signals)]
    for arm in arms:
        numbers = numbers_of(config, arm, facts, members)
        for pattern in config.patterns:
            for seed in config.seeds:
                at = (pattern, seed if config.drift_seed is None else config.drift_seed)
                if at not in drifts:
                    drifts[at] = jax.device_get(drift(pattern, np.uint32(at[1])))
                runs.append(
                    Run(
                        seed=np.uint32(seed),
                        drift=drifts[at],
                        schedule=both.schedule(arm, numbers),
                        hyper=numbers.hyper,
                        coupling=np.float32(arm.coupling) if both.coupling else None,
                        adaptation=both.adaptation(arm, numbers) if both.turned else None,
                        played=both.played(records.get((arm.name, pattern, seed)), length),
                    )
                )
                labels.append(
                    {
                        "family": world.task.family,
                        "task": config.task,
                        "method": arm.name,
                        "carrier": carrier,
                        "schedule": arm.rule,
                        "variant": arm.variant,
                        "pattern": pattern,
                        "seed": seed,
                    }
                )
    # The program is that of all runs, whichever of them are trained.
    runs, labels = runs[own.start : own.stop], labels[own.start : own.stop]
    return Part(setup, program, stack(runs), stream_stride(per_chunk, sizes.stream_samples), labels)


def optimum_of(config: StudyConfig) -> dict[str, dict[str, list[float]]]:
    """The best mean return at every evaluation, per pattern and seed; empty where it is unknown.

    Solved at five evaluations of each segment (its first and last among them) and joined by straight lines, which
    the smoothness of a drift inside a segment allows. By seed, because drift differs by seed.
    """
    best = envs.optimal_return(config.task)
    if best is None:
        return {}
    carrier = config.carriers[0]  # any: where a run stands in its drift depends on its share of the horizon alone
    world, chunk = world_of(config, carrier), config.chunk(carrier)
    per_segment = config.evaluations // config.segments if config.evaluations % config.segments == 0 else 1
    knots: dict[int, float] = {}  # evaluation -> vector step; a change point has a left limit of its own
    for segment in range(config.segments):
        start = segment * per_segment
        for offset in {0, per_segment // 4, per_segment // 2, 3 * per_segment // 4, per_segment - 1}:
            knots[start + offset] = (start + offset) * chunk
    knots[config.evaluations] = world.total
    at = sorted(knots)
    steps = jnp.array([knots[j] for j in at], jnp.int32)
    path = jit(lambda drift: world.path(drift, steps)[0])
    drawn = [seed if config.drift_seed is None else config.drift_seed for seed in config.seeds]
    found = {(p, s): np.asarray(path(world.drift(p, s))) for p in config.patterns for s in dict.fromkeys(drawn)}
    values = np.stack([[found[p, s] for s in drawn] for p in config.patterns])  # (P, S, K, D)
    unique, index = np.unique(values.reshape(-1, values.shape[-1]).round(6), axis=0, return_inverse=True)
    returns = np.asarray(best(jnp.asarray(unique, jnp.float32)))[index.reshape(-1)].reshape(values.shape[:-1])
    grid = np.arange(config.evaluations + 1)
    return {
        pattern: {
            str(seed): np.interp(grid, at, returns[i, j]).round(_OPTIMUM_DIGITS).tolist()
            for j, seed in enumerate(config.seeds)
        }
        for i, pattern in enumerate(config.patterns)
    }


def floor_of(config: StudyConfig) -> float:
    """Mean return of uniformly random actions on the steady task: the floor of the offset-safe metrics.

    A fixed key and number of episodes, the same for every study of the task.
    """
    world = world_of(config, config.carriers[0])
    nominal = jit(lambda: world.path(world.drift("steady", 0), jnp.zeros(1, jnp.int32))[0][0])()
    episodes = _FLOOR_STEPS // world.time_limit
    if getattr(world.task.env, "exclusive", False):  # each is a copy in a simulator
        episodes = min(episodes, _SIMULATED)
    returns = jit(lambda key: random_returns(world, world.params_of(nominal), key, episodes))
    mean = float(jnp.mean(returns(jax.random.key(0))))
    if not math.isfinite(mean):
        raise ValueError(f"the random policy's return on '{config.task}' is not finite")
    return mean
