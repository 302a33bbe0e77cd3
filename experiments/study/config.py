"""The configuration of a study: everything needed to run it again, as plain JSON, checked before anything starts."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import envs
from agents import CARRIERS
from experiments.presets import presets_of
from experiments.presets.preset import CarrierSettings, frozen
from experiments.study.entries import BASELINE, SOURCES, check_sweep, parse_entries, parse_entry, parse_sweep
from experiments.study.plugins import KINDS, Origins, find, origins_of, restore
from experiments.study.schema import LARGEST_SEED, check_shape, parse_part
from experiments.study.sources import record_of, warm_start_of

FORMAT = 3
_MOST_SEEDS = 10_000
LONGEST = 2**31 - 1  # vector steps of a run: its clock is an int32
OPTIONAL = ("plugins", "controls", "warm_start", "plasticity", "counterfactual", "together", "part")


@dataclasses.dataclass(frozen=True)
class StudyConfig:
    """A study, complete: presets are already resolved into numbers."""

    task: str
    preset: str
    carriers: tuple[str, ...]
    schedules: tuple[str, ...]
    patterns: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: int  # environment steps of a run
    evaluations: int
    episodes: int
    segments: int
    replay_capacity: int  # transitions
    #: environment steps without learning, of carriers whose settings name no other; random actions, or the policy's
    #: own where runs begin with trained agents
    warmup: int
    proxy: str
    source: str | None  # None: each schedule's own default
    drift_seed: int | None  # None: the training seed
    sweep: Mapping[str, tuple[float, ...]]
    settings: Mapping[str, Mapping[str, Any]]  # per carrier: num_envs, base, config, hyper, schedule, maybe warmup
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the task's builder, complete
    #: where what lives outside this repository came from: kind -> name -> object, package, version
    plugins: Origins = dataclasses.field(default_factory=dict)
    #: of controls: the folder of the study whose runs they play, and the SHA-256 of its recorded proxies
    controls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: of trained agents to begin with: their folder, the SHA-256 of what lists them, and whether with their replays
    warm_start: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    plasticity: bool = False  # measure networks before every evaluation
    counterfactual: bool = False  # evaluate under drift values that are not in force, too
    #: runs that go through the program together, at most, on one device; None: as many as fit, on all devices
    together: int | None = None
    part: Mapping[str, int] = dataclasses.field(default_factory=dict)  # number, of: these runs of the study only
    format: int = FORMAT

    def build_task(self) -> envs.Task:
        """The task with the options of this study."""
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in self.options.items()}
        return envs.make(self.task, **given)

    def envs_of(self, carrier: str) -> int:
        """Parallel environment copies of one carrier's runs."""
        return self.settings[carrier]["num_envs"]

    def warmup_of(self, carrier: str) -> int:
        """Environment steps without learning at the beginning of one carrier's runs."""
        return self.settings[carrier].get("warmup", self.warmup)

    def vector_steps(self, carrier: str) -> int:
        """Actions of each environment copy in a run of one carrier."""
        return self.steps // self.envs_of(carrier)

    def chunk(self, carrier: str) -> int:
        """Vector steps between two evaluations."""
        return self.vector_steps(carrier) // self.evaluations

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `config_from_json` is the inverse."""
        data = json.loads(json.dumps(dataclasses.asdict(self)))
        for name in OPTIONAL:
            if not data[name]:
                del data[name]  # most studies have none, and their files stay what they were before there were any
        return data

    def fingerprint(self) -> str:
        """Short hash of the whole configuration."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]


def parse_seeds(text: str) -> tuple[int, ...]:
    """``1:5`` (both ends included), ``1,4,7`` or a mix of the two.

    Raises:
      ValueError: another form, a seed outside its range or given twice, or more than `_MOST_SEEDS`.

    >>> parse_seeds("1:3,10")
    (1, 2, 3, 10)
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        try:
            low, high = int(first), int(last if colon else first)
        except ValueError:
            raise ValueError(f"seeds must look like 1:5 or 1,2,7; got '{text}'") from None
        if low < 0 or high < low or high > LARGEST_SEED:
            raise ValueError(f"seeds must be between 0 and {LARGEST_SEED}, ranges from low to high; got '{part}'")
        if len(seeds) + high - low >= _MOST_SEEDS:
            raise ValueError(f"at most {_MOST_SEEDS} seeds go into one study; got '{text}'")
        seeds += range(low, high + 1)
    if len(set(seeds)) != len(seeds):
        raise ValueError(f"every seed may be given once; got '{text}'")
    return tuple(seeds)


def _names(text: str, kind: str, option: str) -> tuple[str, ...]:
    """Comma-separated names, each found so that a wrong one is answered with the nearest known one."""
    registered = KINDS[kind].registered
    names = tuple(registered) if text == "all" else tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError(f"{option} needs at least one name; registered: {', '.join(sorted(registered))}")
    for name in names:
        find(kind, name)
    if len(set(names)) != len(names):
        raise ValueError(f"{option} names something twice: '{text}'")
    return names


def _fit_rollout(config: dict[str, Any], chunk: int, num_envs: int) -> None:
    """The longest rollout up to the preset's that divides ``chunk``, in equal minibatches of about the same size."""
    rows = config["rollout"] * num_envs / config["minibatches"]
    config["rollout"] = max(n for n in range(1, config["rollout"] + 1) if chunk % n == 0)
    size = config["rollout"] * num_envs
    if size % config["minibatches"]:
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        config["minibatches"] = min(divisors, key=lambda n: abs(n - size / rows))


def _with_layer_norm(carrier: str, wanted: bool) -> dict[str, bool]:
    if wanted and "layer_norm" not in {field.name for field in dataclasses.fields(CARRIERS[carrier].config)}:
        raise ValueError(f"--layer-norm: carrier '{carrier}' has no such setting")
    return {"layer_norm": True} if wanted else {}


def make_config(
    *,
    task: str,
    carriers: str,
    schedules: str,
    patterns: str,
    seeds: str,
    steps: int | None = None,
    preset: str = "quick",
    proxy: str = "td_quantile",
    source: str | None = None,
    drift_seed: int | None = None,
    sweep: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    controls_from: Path | None = None,
    warm_start: Path | None = None,
    plasticity: bool = False,
    counterfactual: bool = False,
    layer_norm: bool = False,
    together: int | None = None,
    part: str | None = None,
) -> StudyConfig:
    """Resolve a preset and what was typed into a complete, checked configuration.

    Args:
      options: of the task's builder, those not left at their defaults.
      controls_from: folder of the finished study whose runs the controls among ``schedules`` play.
      warm_start: folder of a finished study, or of exported agents, whose agents the runs begin with.
      layer_norm: normalise the hidden layers of every carrier's critic.
      plasticity: measure dormant units, effective rank and norms of the networks.
      counterfactual: evaluate every policy under drift values that are not in force, too.
      together: runs that go through the program together, at most, on one device.
      part: ``K/N``, which of the parts of the study this is.

    Raises:
      ValueError, KeyError: with one sentence that names the value and what is allowed.
    """
    find("task", task)
    built = envs.make(task, **(options or {}))
    sizes = presets_of(task, built.env.spec.time_limit)[preset]
    if sizes.options:
        built = envs.make(task, **{**sizes.options, **(options or {})})
    carrier_names = _names(carriers, "carrier", "--carriers")
    settings: dict[str, dict[str, Any]] = {}
    for name in carrier_names:
        own = sizes.carriers.get(name) or CarrierSettings(CARRIERS[name].weight, frozen(), frozen())
        settings[name] = {
            "num_envs": own.num_envs or sizes.num_envs,
            "base": own.base,
            "config": dict(own.config) | _with_layer_norm(name, layer_norm),
            "hyper": dict(own.hyper),
            "schedule": dict(own.schedule),
        }
        if own.warmup is not None:
            settings[name]["warmup"] = own.warmup
    find("proxy", proxy)
    if source is not None and source not in SOURCES:
        raise ValueError(f"--source must be one of {', '.join(SOURCES)}; got '{source}'")
    if drift_seed is not None and not 0 <= drift_seed <= LARGEST_SEED:
        raise ValueError(f"--drift-seed must be between 0 and {LARGEST_SEED}; got {drift_seed}")
    axes = parse_sweep(sweep)
    entries, pattern_names = parse_entries(schedules), _names(patterns, "pattern", "--patterns")
    parsed = [parse_entry(entry) for entry in entries]
    check_sweep(axes, carrier_names, [entry.schedule for entry in parsed if entry.schedule != BASELINE])

    horizon = sizes.steps if steps is None else steps
    copies = math.lcm(*(own["num_envs"] for own in settings.values()))
    multiple = copies * sizes.evaluations
    if horizon <= 0 or horizon % multiple:
        near = max(multiple, round(horizon / multiple) * multiple)
        raise ValueError(
            f"--steps must be a positive multiple of {multiple} ({copies} environments times "
            f"{sizes.evaluations} evaluations); got {horizon}, the nearest is {near}"
        )
    fewest = min(own["num_envs"] for own in settings.values())
    if horizon // fewest > LONGEST:
        raise ValueError(f"--steps may be at most {LONGEST * fewest // multiple * multiple} here; got {horizon}")
    for own in settings.values():
        if "rollout" in own["config"]:  # whole rollouts between evaluations, at most as long as the preset's
            chunk = horizon // own["num_envs"] // sizes.evaluations
            _fit_rollout(own["config"], chunk, own["num_envs"])

    def in_envs(count: float) -> int:
        return max(1, round(count / copies)) * copies

    return StudyConfig(
        task=task,
        preset=preset,
        carriers=carrier_names,
        schedules=entries,
        patterns=pattern_names,
        seeds=parse_seeds(seeds),
        steps=horizon,
        evaluations=sizes.evaluations,
        episodes=sizes.episodes,
        segments=sizes.segments,
        replay_capacity=in_envs(min(sizes.replay or sizes.replay_fraction * horizon, horizon)),
        # At least the window of newest transitions that fresh proxies read.
        warmup=in_envs(max(sizes.warmup or sizes.warmup_fraction * horizon, 128)),
        proxy=proxy,
        source=source,
        drift_seed=drift_seed,
        sweep=axes,
        settings=settings,
        options=dict(built.options),
        controls=record_of(parsed, controls_from),
        warm_start=warm_start_of(warm_start, carrier_names),
        plasticity=plasticity,
        counterfactual=counterfactual,
        together=together,
        part=parse_part(part, together),
        plugins=origins_of(
            [
                ("task", task),
                *(("carrier", name) for name in carrier_names),
                *(("pattern", name) for name in pattern_names),
                *(("schedule", entry.schedule) for entry in parsed),
                *(("response", name) for entry in parsed for name in entry.responses),
                *(("proxy", name) for name in (proxy, *(entry.proxy for entry in parsed)) if name is not None),
            ]
        ),
    )


def config_from_json(data: Any) -> StudyConfig:
    """The configuration stored in a `config.json`.

    Raises:
      ValueError: it is not one, or of another format.
    """
    if not isinstance(data, dict) or "format" not in data:
        raise ValueError("it is not the configuration of a study")
    if data["format"] != FORMAT:
        raise ValueError(f"its format is {data['format']}, this version reads {FORMAT}")
    fields = {field.name for field in dataclasses.fields(StudyConfig)}
    if odd := sorted({*OPTIONAL, *data} ^ fields):
        raise ValueError(f"its fields differ from what this version writes: {', '.join(odd)}")
    check_shape(data)
    values = dict(data)
    for name in ("carriers", "schedules", "patterns", "seeds"):
        values[name] = tuple(values[name])
    restore(values.get("plugins", {}))
    values["sweep"] = {name: tuple(axis) for name, axis in values["sweep"].items()}
    return StudyConfig(**values)
