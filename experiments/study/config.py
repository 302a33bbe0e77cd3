"""The configuration of a study: all that training needs, with presets resolved into numbers."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import envs
from aesjax.schedules import DriftProxy
from aesjax.typed import Bounds, Count, require, several
from agents.train import as_task, fit_rollout, sizes_of
from envs.patterns import Pattern
from envs.physics.channels import texts_of
from experiments.presets import presets_of
from experiments.presets.preset import CarrierSettings, Preset
from experiments.study import store
from experiments.study.codec import decode, encode
from experiments.study.method import SOURCES, Method, find, single, source_of
from experiments.study.text import LARGEST_SEED, parse_names, parse_objects, parse_seeds, parse_sweep

FORMAT = 4
#: With `--observe drift`, in notes and reports.
OBSERVED = "the true drift: a reference, neither a method nor an upper bound"
LONGEST = 2**31 - 1  # vector steps of a run: its clock is an int32
_BROUGHT: Mapping[str, Any] = {"compare": False, "repr": False, "metadata": {"json": False}}

Seed = Annotated[int, Bounds(0, LARGEST_SEED)]


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
    settings: Mapping[str, CarrierSettings]  # per carrier
    format: int = FORMAT
    source: str | None = None  # None: each schedule's own default
    drift_seed: Seed | None = None  # None: the training seed
    sweep: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the task's builder, complete
    #: of a custom task and custom patterns: name -> source text
    outside: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: of controls: folder of the recorded study, and the SHA-256 of its recorded proxies
    controls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: of initial agents: their folder, the SHA-256 of their files, and whether with their replays
    warm_start: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    observe: str | None = None  # "drift": true drift values are part of the observations; a reference, not a method
    counterfactual: bool = False  # also evaluate under drift values that are not in force
    block: tuple[Count, ...] = ()  # first and last run of a part, from 1; (): all
    #: custom objects, which JSON does not hold
    built: envs.Task | None = dataclasses.field(default=None, **_BROUGHT)
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
            raise ValueError(f"task '{self.task}' is a custom task; `run` of the same Study with out=FOLDER opens it")
        return envs.make(self.task, **{k: tuple(v) if isinstance(v, list) else v for k, v in self.options.items()})

    @property
    def patterns_known(self) -> dict[str, Pattern]:
        """All patterns of its programs by name."""
        return {**envs.PATTERNS, **self.own_patterns}

    def envs_of(self, carrier: str) -> int:
        """Parallel environments of one carrier's runs."""
        num = self.settings[carrier].num_envs
        assert num is not None
        return num

    def warmup_of(self, carrier: str) -> int:
        """Environment steps before learning in one carrier's runs."""
        own = self.settings[carrier].warmup
        return self.warmup if own is None else own

    def vector_steps(self, carrier: str) -> int:
        """Steps of each parallel environment in a run of one carrier."""
        return self.steps // self.envs_of(carrier)

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


def fingerprint_of(data: Mapping[str, Any]) -> str:
    """Short hash of a configuration as JSON."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def config_from_json(data: Any) -> StudyConfig:
    """Read the configuration of a `config.json`; custom objects are stand-ins, and nothing is imported.

    Raises:
      ValueError: a field is missing, unknown or of another type, or fields are inconsistent.
    """
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise ValueError(f"its format is {found}; this version reads format {FORMAT}")
    config = decode(StudyConfig, data)
    if set(config.settings) != set(config.carriers):
        raise ValueError(f"'settings' must be those of its carriers; got {', '.join(sorted(config.settings))}")
    for carrier, own in config.settings.items():
        if own.num_envs is None or own.num_envs < 1 or config.steps % (own.num_envs * config.evaluations):
            raise ValueError(
                f"'steps' must be a multiple of {own.num_envs} environments of '{carrier}' times "
                f"{config.evaluations} evaluations; got {config.steps}"
            )
    return config


def read_config(directory: Path, data: Any = None) -> StudyConfig:
    """Read the configuration of the study in ``directory``; ``data``: contents read by `store.open_results`.

    Raises:
      ValueError: names the file, which is missing, damaged or of another version.
    """
    path = directory / store.CONFIG
    data = store.read_json(path) if data is None else data
    try:
        return config_from_json(data)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from None


def sources_in(data: Any) -> dict[str, str]:
    """Name -> source text of every custom object in a configuration as JSON."""
    if isinstance(data, list):
        return {name: text for each in data for name, text in sources_in(each).items()}
    if not isinstance(data, dict):
        return {}
    found = {data["name"]: data["source_text"]} if "source_text" in data else dict(data.get("outside", {}))
    return found | sources_in(list(data.values()))


def check_unchanged(then: Any, now: Any) -> None:
    """Raise a ValueError for a custom object whose source differs between two configurations as JSON."""
    ours = sources_in(now)
    for name, text in sources_in(then).items():
        if ours.get(name, text) != text:
            raise ValueError(
                f"'{name}' differs from the object that the study was trained with; restore its source, or give the "
                "new object another name"
            )


def configured(study: Any) -> StudyConfig:
    """The complete configuration: the preset's numbers, updated by the given options.

    Args:
      study: an `experiments.Study`.

    Raises:
      ValueError, UnknownNameError: one sentence with the value and the allowed values.
    """
    methods = parse_objects(study.methods)
    patterns = parse_names("pattern", "--patterns", study.patterns)
    seeds, sweep = parse_seeds(study.seeds), parse_sweep(study.sweep)
    carriers = {method.carrier.name: method.carrier for method in methods}
    if any(method.carrier != carriers[method.carrier.name] for method in methods):
        raise ValueError("two carriers of the study have the same label; give one of them another label")
    methods = tuple(method for carrier in carriers for method in methods if method.carrier.name == carrier)
    task, built, sizes, source = _task(study)
    counts = ("evaluations", "episodes", "segments")
    given = {name: value for name in counts if (value := getattr(study, name)) is not None}
    sizes = dataclasses.replace(sizes, **given)
    proxy = find("proxy", study.proxy)
    if study.source not in (None, *SOURCES):
        raise ValueError(f"--source must be one of {', '.join(SOURCES)}; got '{study.source}'")
    if study.observe not in (None, "drift"):
        raise ValueError(f"observe must be 'drift'; got '{study.observe}'")
    settings = {name: _settings(name, spec, sizes, study) for name, spec in carriers.items()}
    steps, settings = _sized(sizes, settings, study.steps)
    copies = math.lcm(*(own.num_envs or 1 for own in settings.values()))
    replay, warmup = sizes_of(
        steps, copies, sizes.replay or sizes.replay_fraction * steps, sizes.warmup or sizes.warmup_fraction * steps
    )
    own_patterns = {name: pattern for name, pattern in patterns.items() if name not in envs.PATTERNS}
    outside = {name: source_of("pattern", pattern) for name, pattern in own_patterns.items()} | {task: source}
    if taken := [name for name, pattern in patterns.items() if envs.PATTERNS.get(name, pattern) != pattern]:
        raise ValueError(f"another pattern is called '{taken[0]}'; give yours another name")
    config = StudyConfig(
        task=task,
        preset=study.preset,
        methods=methods,
        patterns=tuple(patterns),
        seeds=seeds,
        steps=steps,
        evaluations=sizes.evaluations,
        episodes=sizes.episodes,
        segments=sizes.segments,
        replay_capacity=replay,
        warmup=warmup,
        proxy=DriftProxy(proxy.factory, single("option 'q'", proxy.q), None),
        source=study.source or proxy.source,
        drift_seed=study.drift_seed,
        sweep=sweep,
        settings=settings,
        options=dict(built.options),
        controls=_record_of(methods, _path("controls_from", study.controls_from)),
        warm_start=_warm_start_of(study.start, tuple(carriers)),
        observe=study.observe,
        counterfactual=study.counterfactual,
        block=_block(study.block),
        outside={name: source for name, source in outside.items() if source is not None},
        built=built,
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


def _block(given: Any) -> tuple[int, ...]:
    """Parse `--block`, ``1:40``: the first and the last run to train."""
    if given is None:
        return ()
    text = ":".join(map(str, given)) if several(given) else str(given)
    first, _, last = text.partition(":")
    if not first.isdecimal() or not last.isdecimal() or not 1 <= int(first) <= int(last):
        raise ValueError(f"--block must look like 1:40, the first and the last run; got '{given}'")
    return int(first), int(last)


def _task(study: Any) -> tuple[str, envs.Task, Preset, str | None]:
    """Name of the task, the task with its options, the preset's sizes, and the source text of a custom task."""
    names = ("engine", "observation", "variant", "timeout", "channels")
    typed = {name: value for name in names if (value := getattr(study, name)) is not None}
    if "channels" in typed:
        typed["channels"] = texts_of(typed["channels"])
    given = study.task
    if isinstance(given, envs.Task) and given.name in envs.TASKS and _registered(given):
        given, typed = given.name, {**given.options, **typed}
    if isinstance(given, str):
        entry = find("task", given)
    else:
        entry, typed = as_task(given, **typed), {}
    name = given if isinstance(given, str) else entry.name
    if name in envs.TASKS and not isinstance(given, str):
        raise ValueError(f"another task is called '{name}'; give yours another name")
    plain = envs.build(name, entry, **typed)
    sizes = presets_of(name, plain.env.spec.time_limit)[study.preset]
    if sizes.options:
        plain = envs.build(name, entry, **{**sizes.options, **typed})
    ours = name in envs.TASKS or name.startswith(envs.PREFIXES)
    return name, plain, sizes, None if ours else source_of("task", entry)


def _registered(task: envs.Task) -> bool:
    own = envs.make(task.name, **task.options)
    return own is task or bool(task.options and own.options == task.options)


def _settings(name: str, spec: Any, sizes: Preset, study: Any) -> CarrierSettings:
    """One carrier's settings in a preset."""
    own = sizes.carriers.get(name) or CarrierSettings(spec.weight)
    num_envs = own.num_envs or sizes.num_envs if study.num_envs is None else study.num_envs
    config = dict(own.config)
    if study.layer_norm:
        if "layer_norm" not in {field.name for field in dataclasses.fields(spec.config)}:
            raise ValueError(f"--layer-norm: carrier '{name}' has no such setting")
        config["layer_norm"] = True
    return dataclasses.replace(own, num_envs=num_envs, config=config)


def _sized(
    sizes: Preset, settings: Mapping[str, CarrierSettings], steps: int | None
) -> tuple[int, dict[str, CarrierSettings]]:
    """Environment steps of a run, and the settings with fitting rollouts."""
    horizon = sizes.steps if steps is None else steps
    numbers = [own.num_envs or 1 for own in settings.values()]
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
        if "rollout" in config:  # complete rollouts between evaluations, at most as long as the preset's
            fit_rollout(config, horizon // (own.num_envs or 1) // sizes.evaluations, own.num_envs or 1)
        fitted[carrier] = dataclasses.replace(own, config=config)
    return horizon, fitted
