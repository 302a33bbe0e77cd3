"""The configuration of a study: all that training needs, with presets resolved into numbers."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import envs
from aesjax.registry import lookup
from aesjax.schedules import DriftProxy
from aesjax.typed import Bounds, Count, require, several
from agents import CarrierSpec
from agents.train import ROLLOUT_ENVS, as_task, fit_rollout, sizes_of
from envs.patterns import Pattern, segment_starts
from envs.physics.channels import texts_of
from envs.timeline import EVEN
from envs.world import CHANGE, DRIFT, NOTICE
from experiments.presets import presets_of
from experiments.presets.preset import CarrierSettings, Preset
from experiments.study import store
from experiments.study.codec import Objects, absence, check_sources, decode, encode, stored
from experiments.study.method import SOURCES, Method, code_of, find, single, source_of
from experiments.study.text import LARGEST_SEED, parse_names, parse_objects, parse_seeds, parse_sweep

FORMAT = 4
#: With `--observe`, in notes and reports.
OBSERVED = {
    DRIFT: "the true drift: a reference, neither a method nor an upper bound",
    CHANGE: f"for {100 * NOTICE:g} % of the run that the drift has jumped: a reference, not a method",
}
STEADY = "steady"  # the pattern without drift
LONGEST = 2**31 - 1  # vector steps of a run: its clock is an int32
_BROUGHT: Mapping[str, Any] = {"compare": False, "repr": False, "metadata": {"json": False}}

Seed = Annotated[int, Bounds(0, LARGEST_SEED)]


@dataclasses.dataclass(frozen=True)
class Settings(CarrierSettings):
    """Settings of a carrier in a study."""

    num_envs: Count = dataclasses.field(kw_only=True)  # parallel environments of a run


@dataclasses.dataclass(frozen=True)
class StudyConfig:
    """Complete configuration of a study; `config.json` omits fields at their default."""

    task: str
    preset: str
    methods: tuple[Method, ...]  # grouped by carrier
    patterns: tuple[str, ...]
    seeds: tuple[Seed, ...]
    steps: Count  # environment steps of a run
    evaluations: Count
    episodes: Count
    segments: Annotated[int, Bounds(1, 10_000)]
    replay_capacity: Count  # transitions
    #: environment steps before learning, unless the carrier's settings have another number; with random actions, or
    #: with the policy's actions if runs begin with trained agents
    warmup: Count
    proxy: DriftProxy
    settings: Mapping[str, Settings]  # per carrier
    format: int = FORMAT
    source: str | None = None  # None: each schedule's own default
    drift_seed: Seed | None = None  # None: the training seed
    sweep: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the task's builder, complete
    #: of a custom task and custom patterns: name -> definitions, see `experiments.study.sources`
    outside: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    #: of controls: folder of the recorded study, and the SHA-256 of its recorded proxies
    controls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: of initial agents: their folder, the SHA-256 of their files, and whether with their replays
    warm_start: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    observe: str | None = None  # facts of the drift that are part of the observations; a reference, not a method
    history: Count = 1  # last observations, with the actions between them, that agents see
    onset: float = 0.0  # share of the run before the drift
    changes: str = EVEN  # lengths of the segments of patterns that jump
    counterfactual: bool = False  # also evaluate under drift values that are not in force
    #: environment steps of the run whose beginning is trained; None: `steps`, all of it
    horizon: Count | None = None
    block: tuple[Count, ...] = ()  # first and last run of a part, from 1; (): all
    #: custom objects, which JSON does not hold: the task, and the object or function that `as_task` makes it from
    built: envs.Task | None = dataclasses.field(default=None, **_BROUGHT)
    maker: Any = dataclasses.field(default=None, **_BROUGHT)
    own_patterns: Mapping[str, Pattern] = dataclasses.field(default_factory=dict, **_BROUGHT)

    @property
    def carriers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(method.carrier.name for method in self.methods))

    def methods_of(self, carrier: str) -> tuple[Method, ...]:
        """The methods on one carrier."""
        return tuple(method for method in self.methods if method.carrier.name == carrier)

    def build_task(self) -> envs.Task:
        """Build the task with the options of this study.

        Raises:
          ValueError: it is a custom task that this process does not have.
        """
        if self.built is not None:
            return self.built
        if self.task in self.outside:
            raise ValueError(absence("task", self.task, self.outside[self.task]))
        return envs.make(self.task, **{k: tuple(v) if isinstance(v, list) else v for k, v in self.options.items()})

    @property
    def patterns_known(self) -> dict[str, Pattern]:
        """All patterns by name, with its own."""
        return {**envs.PATTERNS, **self.own_patterns}

    def states_changes(self, known: Mapping[str, Pattern]) -> list[str]:
        """Patterns of the study whose changes are not the boundaries of equal segments of the complete run."""
        anywhere = self.onset > 0.0 or self.changes != EVEN
        return [name for name in self.patterns if anywhere or known[name].changes is not segment_starts]

    def envs_of(self, carrier: str) -> int:
        """Parallel environments of one carrier's runs."""
        return self.settings[carrier].num_envs

    def warmup_of(self, carrier: str) -> int:
        """Environment steps before learning in one carrier's runs."""
        own = self.settings[carrier].warmup
        return self.warmup if own is None else own

    def vector_steps(self, carrier: str) -> int:
        """Trained steps of each parallel environment in a run of one carrier."""
        return self.steps // self.envs_of(carrier)

    @property
    def whole(self) -> int:
        """Environment steps of a run, trained to its end or not; its drift, replay and warm-up depend on them."""
        return self.steps if self.horizon is None else self.horizon

    @property
    def spacing(self) -> int:
        """Environment steps between two evaluations."""
        return self.steps // self.evaluations

    def interval(self, carrier: str) -> int:
        """Vector steps between two evaluations."""
        return self.vector_steps(carrier) // self.evaluations

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `config_from_json` is the inverse."""
        return encode(self)

    def fingerprint(self) -> str:
        """Short hash of the complete configuration."""
        return fingerprint_of(self.to_json())

    @property
    def objects(self) -> list[str]:
        """Names of custom objects, which `config.json` cannot restore."""
        return list(sources_in(self.to_json()))

    @property
    def at_hand(self) -> Objects:
        """Its objects, for `config_from_json` of another study."""
        return at_hand(self.maker, (), self.methods, self.own_patterns, self.proxy)


def fingerprint_of(data: Mapping[str, Any]) -> str:
    """Short hash of a configuration as JSON."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def at_hand(task: Any = None, carriers: Any = (), methods: Any = (), patterns: Any = (), proxy: Any = None) -> Objects:
    """Objects by kind and name, given as in `Study`; the task is what `as_task` makes it from, and has no name."""
    known = {("task", ""): find("task", task) if isinstance(task, str) else task}
    for carrier in parse_names("carrier", "--carriers", carriers).values() if carriers else ():
        known["carrier", carrier.name] = carrier
    for method in parse_objects(methods) if methods else ():
        known |= {(kind, entry.name): entry for kind, entry in method.parts}
    if proxy is not None:
        known["proxy", find("proxy", proxy).factory.name] = find("proxy", proxy).factory
    if patterns and not isinstance(patterns, Mapping):
        patterns = parse_names("pattern", "--patterns", patterns)
    return known | {("pattern", name): pattern for name, pattern in dict(patterns).items()}


def config_from_json(data: Any, objects: Objects = MappingProxyType({})) -> StudyConfig:
    """Read the configuration of a `config.json`; nothing is imported.

    Args:
      objects: of `at_hand`; they replace the stand-ins of custom objects with equal definitions.

    Raises:
      ValueError: a field is missing, unknown or of another type, or fields are inconsistent.
    """
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise ValueError(f"its format is {found}; this version reads format {FORMAT}")
    config = decode(StudyConfig, data, objects=objects)
    if set(config.settings) != set(config.carriers):
        raise ValueError(f"'settings' must be those of its carriers; got {', '.join(sorted(config.settings))}")
    for carrier, own in config.settings.items():
        if config.steps % (own.num_envs * config.evaluations):
            raise ValueError(
                f"'steps' must be a multiple of {own.num_envs} environments of '{carrier}' times "
                f"{config.evaluations} evaluations; got {config.steps}"
            )
    outside = {name: config.outside[name] for name in config.patterns if name in config.outside}
    patterns = {name: stored("pattern", name, sources, objects, {}) for name, sources in outside.items()}
    return dataclasses.replace(config, built=_rebuilt(config, objects.get(("task", ""))), own_patterns=patterns)


def _rebuilt(config: StudyConfig, maker: Any) -> envs.Task | None:
    """The custom task of a stored configuration; None if ``maker`` makes another one.

    Raises:
      ValueError: the task was edited.
    """
    if maker is None or config.task not in config.outside:
        return None
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in config.options.items()}
    built = maker if isinstance(maker, envs.Task) else as_task(maker, **options)
    if built.name != config.task:
        return None
    check_sources(config.task, config.outside[config.task], source_of("task", maker, code_of(built)) or {})
    return built


def read_config(directory: Path, data: Any = None, objects: Objects = MappingProxyType({})) -> StudyConfig:
    """Read the configuration of the study in ``directory``; ``data``: contents read by `store.open_results`.

    Raises:
      ValueError: names the file, which is missing, damaged or of another version.
    """
    path = directory / store.CONFIG
    data = store.read_json(path) if data is None else data
    try:
        return config_from_json(data, objects)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from None


def sources_in(data: Any) -> dict[str, Mapping[str, str]]:
    """Name -> definitions of every custom object in a configuration as JSON."""
    if isinstance(data, list):
        return {name: sources for each in data for name, sources in sources_in(each).items()}
    if not isinstance(data, dict):
        return {}
    found = {data["name"]: data["sources"]} if "sources" in data else dict(data.get("outside", {}))
    return found | sources_in(list(data.values()))


def check_unchanged(then: Any, now: Any) -> None:
    """Raise a ValueError for a custom object whose definitions differ between two configurations as JSON."""
    ours = sources_in(now)
    for name, sources in sources_in(then).items():
        check_sources(name, sources, ours.get(name, sources))


def configured(study: Any) -> StudyConfig:
    """The complete configuration: the preset's numbers, updated by the given options.

    Args:
      study: an `experiments.Study`.

    Raises:
      ValueError, UnknownNameError: one sentence with the value and the allowed values.
    """
    study = published(study)
    methods = parse_objects(study.methods)
    patterns = parse_names("pattern", "--patterns", study.patterns)
    seeds, sweep = parse_seeds(study.seeds), parse_sweep(study.sweep)
    carriers = {method.carrier.name: method.carrier for method in methods}
    if any(method.carrier != carriers[method.carrier.name] for method in methods):
        raise ValueError("two carriers of the study have the same label; give one of them another label")
    methods = tuple(method for carrier in carriers for method in methods if method.carrier.name == carrier)
    task = task_of(study)
    sizes, counts = task.sizes, ("evaluations", "episodes", "segments")
    given = {name: value for name in counts if (value := getattr(study, name)) is not None}
    sizes = dataclasses.replace(sizes, **given)
    proxy = find("proxy", study.proxy)
    if study.source not in (None, *SOURCES):
        raise ValueError(f"--source must be one of {', '.join(SOURCES)}; got '{study.source}'")
    if study.observe not in (None, *OBSERVED):
        raise ValueError(f"observe must be 'drift' or 'change'; got '{study.observe}'")
    settings = {name: _settings(name, spec, sizes, study) for name, spec in carriers.items()}
    steps, settings = _sized(sizes, settings, carriers, study.steps)
    copies = math.lcm(*(own.num_envs for own in settings.values()))
    replay, warmup = sizes_of(
        steps,
        copies,
        study.replay or sizes.replay or sizes.replay_fraction * steps,
        sizes.warmup or sizes.warmup_fraction * steps,
    )
    own_patterns = {name: pattern for name, pattern in patterns.items() if name not in envs.PATTERNS}
    outside = {name: source_of("pattern", pattern) for name, pattern in own_patterns.items()}
    outside[task.name] = task.sources
    if taken := [name for name, pattern in patterns.items() if envs.PATTERNS.get(name, pattern) != pattern]:
        raise ValueError(f"another pattern is called '{taken[0]}'; give yours another name")
    evaluations = evaluations_until(study.until, sizes.evaluations)
    config = StudyConfig(
        task=task.name,
        preset=study.preset,
        methods=methods,
        patterns=tuple(patterns),
        seeds=seeds,
        steps=steps // sizes.evaluations * evaluations,
        evaluations=evaluations,
        episodes=sizes.episodes,
        segments=sizes.segments,
        replay_capacity=replay,
        warmup=warmup,
        proxy=DriftProxy(proxy.factory, single("option 'q'", proxy.q), None),
        source=study.source or proxy.source,
        drift_seed=study.drift_seed,
        sweep=sweep,
        settings=settings,
        options=task.options,
        controls=_record_of(methods, _path("controls_from", study.controls_from)),
        warm_start=_warm_start_of(study.start, tuple(carriers)),
        observe=study.observe,
        history=study.history,
        onset=study.onset,
        changes=study.changes,
        counterfactual=study.counterfactual,
        horizon=None if evaluations == sizes.evaluations else steps,
        block=_block(study.block),
        outside={name: sources for name, sources in outside.items() if sources is not None},
        built=task.built,
        maker=task.maker,
        own_patterns=own_patterns,
    )
    config_from_json(config.to_json())  # raises before training if the configuration could not be read back
    return config


def _path(option: str, place: Any) -> Path | None:
    """Folder from a path, a `Results` or a `Policy`."""
    folder = getattr(place, "directory", place)
    require(folder is None or isinstance(folder, str | Path), option, "a folder, or its Results or Policy", place)
    return None if folder is None else Path(folder).expanduser()


def _record_of(methods: tuple[Method, ...], directory: Path | None) -> dict[str, str]:
    """Folder and SHA-256 of the record that controls play; empty without controls."""
    controls = [method.control for method in methods if method.control is not None]
    if not controls and directory is not None:
        raise ValueError("--controls-from names a record, but no control among --schedules uses it")
    if not controls:
        return {}
    if directory is None:
        raise ValueError(
            f"control '{controls[0].name}' plays runs of a finished study; give its folder by --controls-from"
        )
    if not (path := directory / store.STREAMS).is_file():
        raise ValueError(
            f"--controls-from {directory}: there is no {store.STREAMS}; is this a finished study's folder?"
        )
    return {"from": str(directory), "streams": store.sha256(path)}


def _warm_start_of(start: Any, carriers: tuple[str, ...]) -> dict[str, Any]:
    """Folder and SHA-256 of a study's initial agents; empty for new agents."""
    if (directory := _path("start", start)) is None:
        return {}
    # `replay` stays for stored studies: False means that replays began empty.
    files = store.digest(store.agent_files(directory, carriers))
    about = {"from": str(directory), "replay": False, "sha256": files}
    return about | ({"run": start.run} if hasattr(start, "run") else {})


def evaluations_until(share: float, evaluations: int, option: str = "--until") -> int:
    """Number of evaluations in the first ``share`` of a run.

    Raises:
      ValueError: no evaluation follows after this share; the message names the ``option``.
    """
    number = share * evaluations
    if not 0 < share <= 1 or not math.isclose(number, round(number), abs_tol=1e-6) or round(number) < 1:
        raise ValueError(
            f"{option} must be a share of the run, at most 1, after which one of its {evaluations} evaluations follows"
            f", such as {max(1, round(number)) / evaluations if 0 < share < 1 else 1:g}; got {share:g}"
        )
    return round(number)


def _block(given: Any) -> tuple[int, ...]:
    """Parse `--block`, ``1:40``: the first and the last run to train."""
    if given is None:
        return ()
    text = ":".join(map(str, given)) if several(given) else str(given)
    first, _, last = text.partition(":")
    if not first.isdecimal() or not last.isdecimal() or not 1 <= int(first) <= int(last):
        raise ValueError(f"--block must look like 1:40, the first and the last run; got '{given}'")
    return int(first), int(last)


#: Options of a study without a protocol, where they are not given.
USUAL = MappingProxyType({"task": "toy", "patterns": "all"})


class _Task(NamedTuple):
    name: str
    built: envs.Task
    maker: Any  # None unless it is a custom task
    options: dict[str, Any]  # complete
    sizes: Preset
    sources: Mapping[str, str] | None


def published(study: Any) -> Any:
    """The study with the task, patterns and sizes of its protocol, or else those of `USUAL`, where they are not given.

    Raises:
      UnknownNameError, ValueError: an unknown protocol, or one on another task than the study's.
    """
    usual = USUAL
    if study.protocol is not None:
        protocol = lookup("protocol", envs.PROTOCOLS, study.protocol)
        if study.task not in (None, protocol.task):
            name = getattr(study.task, "name", study.task)
            raise ValueError(f"protocol '{study.protocol}' is on task '{protocol.task}'; leave out task '{name!s:.60}'")
        usual = {name: getattr(protocol, name) for name in ("task", "patterns", "steps", "segments")}
    return dataclasses.replace(study, **{n: value for n, value in usual.items() if getattr(study, n) is None})


def task_of(study: Any) -> _Task:
    """The task of a study, with its options."""
    names = ("engine", "observation", "variant", "timeout", "channels")
    typed = {} if study.protocol is None else dict(envs.PROTOCOLS[study.protocol].options)
    typed |= {name: value for name in names if (value := getattr(study, name)) is not None}
    if "channels" in typed:
        typed["channels"] = texts_of(typed["channels"])
    given = study.task
    if isinstance(given, envs.Task) and given.name in envs.TASKS and _registered(given):
        given, typed = given.name, {**given.options, **typed}
    maker = find("task", given) if isinstance(given, str) else given
    built = envs.build(given, maker, **typed) if isinstance(given, str) else as_task(given, **typed)
    if built.name in envs.TASKS and not isinstance(given, str):
        raise ValueError(f"another task is called '{built.name}'; give yours another name")
    text = given if isinstance(given, str) else built.name
    sizes = presets_of(text, built.env.spec.time_limit)[study.preset]
    if sizes.options:
        built = envs.build(text, maker, **{**sizes.options, **typed})
    if text in envs.TASKS or text.startswith(envs.PREFIXES):
        return _Task(text, built, None, dict(built.options), sizes, None)
    name = text if built.name in envs.TASKS else built.name
    return _Task(name, built, maker, {**typed, **built.options}, sizes, source_of("task", maker, code_of(built)))


def _registered(task: envs.Task) -> bool:
    own = envs.make(task.name, **task.options)
    return own is task or bool(task.options and own.options == task.options)


def _settings(name: str, spec: Any, sizes: Preset, study: Any) -> Settings:
    """One carrier's settings in a preset, updated by the given options."""
    own = sizes.carriers.get(name)
    if own is None and spec.sized in sizes.carriers:
        own, known = sizes.carriers[spec.sized], {field.name for field in dataclasses.fields(spec.config)}
        config = {setting: value for setting, value in own.config.items() if setting in known}
        hyper = {setting: value for setting, value in own.hyper.items() if setting in spec.hyper._fields}
        own = dataclasses.replace(own, config=config, hyper=hyper)
    if own is None:
        own = CarrierSettings(spec.weight, num_envs=max(ROLLOUT_ENVS, sizes.num_envs) if spec.on_policy else None)
    num_envs = own.num_envs or sizes.num_envs if study.num_envs is None else study.num_envs
    config = dict(own.config)
    if spec.on_policy:
        for size in ("rollout", "minibatches"):
            config.setdefault(size, getattr(spec.config(), size))
    if study.layer_norm:
        if "layer_norm" not in {field.name for field in dataclasses.fields(spec.config)}:
            raise ValueError(f"--layer-norm: carrier '{name}' has no such setting")
        config["layer_norm"] = True
    schedule, hyper = {**spec.schedule, **own.schedule}, dict(own.hyper)  # a preset's mappings cannot be pickled
    return Settings(**{**vars(own), "num_envs": num_envs, "config": config, "schedule": schedule, "hyper": hyper})


def _sized(
    sizes: Preset,
    settings: Mapping[str, Settings],
    carriers: Mapping[str, CarrierSpec],
    steps: int | None,
) -> tuple[int, dict[str, Settings]]:
    """Environment steps of a run, and the settings with fitting rollouts."""
    horizon = sizes.steps if steps is None else steps
    numbers = [own.num_envs for own in settings.values()]
    copies, intervals = math.lcm(*numbers), math.lcm(sizes.evaluations, sizes.segments)
    multiple = copies * intervals
    if horizon <= 0 or horizon % multiple:
        near = max(multiple, round(horizon / multiple) * multiple)
        parts = f"{sizes.evaluations} evaluations"
        if intervals != sizes.evaluations:
            parts = f"{intervals}, a multiple of {parts} and of {sizes.segments} segments of the drift"
        raise ValueError(
            f"--steps must be a positive multiple of {multiple} (num_envs={copies} times {parts}); "
            f"got {horizon}, the nearest is {near}"
        )
    if horizon // min(numbers) > LONGEST:
        raise ValueError(f"--steps may be at most {LONGEST * min(numbers) // multiple * multiple} here; got {horizon}")
    fitted = {}
    for carrier, own in settings.items():
        config = dict(own.config)
        if carriers[carrier].on_policy:  # complete rollouts between evaluations, at most as long as the preset's
            fit_rollout(config, horizon // own.num_envs // sizes.evaluations, own.num_envs)
        fitted[carrier] = dataclasses.replace(own, config=config)
    return horizon, fitted
