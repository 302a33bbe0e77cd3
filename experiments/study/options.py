"""The options of a study, each declared once: the command line, the Python signature and a TOML file come from here."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import envs
from agents import CARRIERS
from agents.train import as_task, fit_rollout
from experiments.presets import presets_of
from experiments.presets.preset import CarrierSettings, Preset, frozen
from experiments.study.config import LONGEST, StudyConfig
from experiments.study.declared import OPTIONS
from experiments.study.method import BASELINE, SOURCES, Method
from experiments.study.parser import LARGEST_SEED, parse
from experiments.study.plugins import definitions, find, name_of
from experiments.study.sources import record_of, warm_start_of


@dataclasses.dataclass(frozen=True)
class StudyOptions:
    """A study as it is requested; `resolve` turns it into a complete, checked configuration.

    Args:
      task: a registered name, an `envs.Task`, or a gymnax or Brax environment.
      methods: `Method`s, or strings such as "sac", "sac+aes" and "ppo+aes_c+refresh:threshold=3".
      patterns, seeds, sweep, channels: as at the shell, or sequences; a number n of seeds means 1 to n; a mapping from
        hyper-parameter to values.
    """

    task: Any = OPTIONS["task"].default
    methods: Sequence[Method | str] | Method | str = ("sac", "sac+aes", "sac+aes_r")
    patterns: str | Iterable[str] = OPTIONS["patterns"].default
    seeds: str | int | Iterable[int] = OPTIONS["seeds"].default
    steps: int | None = OPTIONS["steps"].default
    num_envs: int | None = OPTIONS["num_envs"].default
    evaluations: int | None = OPTIONS["evaluations"].default
    preset: str = OPTIONS["preset"].default
    sweep: Mapping[str, Sequence[float]] | Sequence[str] = OPTIONS["sweep"].default
    proxy: Any = OPTIONS["proxy"].default
    source: str | None = OPTIONS["source"].default
    drift_seed: int | None = OPTIONS["drift_seed"].default
    engine: str | None = OPTIONS["engine"].default
    observation: str | None = OPTIONS["observation"].default
    variant: str | None = OPTIONS["variant"].default
    channels: str | Sequence[str] | None = OPTIONS["channels"].default
    observe: str | None = OPTIONS["observe"].default
    timeout: float | None = OPTIONS["timeout"].default
    controls_from: Path | str | None = OPTIONS["controls_from"].default
    start: Any = OPTIONS["start"].default  # a folder
    layer_norm: bool = OPTIONS["layer_norm"].default
    plasticity: bool = OPTIONS["plasticity"].default
    counterfactual: bool = OPTIONS["counterfactual"].default
    block: str | Sequence[int] | None = OPTIONS["block"].default

    def resolve(self) -> StudyConfig:
        """The complete configuration: the preset's numbers, and what was given.

        Raises:
          ValueError, UnknownNameError: with one sentence that names the value and what is allowed.
        """
        given = parse({field.name: getattr(self, field.name) for field in dataclasses.fields(self)})
        methods, patterns, axes = given["methods"], given["patterns"], given["sweep"]
        evaluations, drift_seed = given["evaluations"], given["drift_seed"]
        task, options = _task(self.task, given)
        find("task", task)
        built = envs.make(task, **options)
        sizes = presets_of(task, built.env.spec.time_limit)[self.preset]
        if sizes.options:
            built = envs.make(task, **{**sizes.options, **options})
        if evaluations is not None:
            if evaluations < 1:
                raise ValueError(f"--evaluations must be at least 1; got {evaluations}")
            sizes = dataclasses.replace(sizes, evaluations=evaluations)
        carriers = tuple(dict.fromkeys(method.carrier for method in methods))
        methods = tuple(method for carrier in carriers for method in methods if method.carrier == carrier)
        proxy = name_of("proxy", self.proxy)
        if self.source is not None and self.source not in SOURCES:
            raise ValueError(f"--source must be one of {', '.join(SOURCES)}; got '{self.source}'")
        if drift_seed is not None and not 0 <= drift_seed <= LARGEST_SEED:
            raise ValueError(f"--drift-seed must be between 0 and {LARGEST_SEED}; got {drift_seed}")
        settings = {carrier: _settings(carrier, sizes, self.layer_norm, given["num_envs"]) for carrier in carriers}
        steps, copies = _sized(sizes, settings, given["steps"])

        def in_envs(count: float) -> int:
            return max(1, round(count / copies)) * copies

        return StudyConfig(
            task=task,
            preset=self.preset,
            methods=methods,
            patterns=patterns,
            seeds=given["seeds"],
            steps=steps,
            evaluations=sizes.evaluations,
            episodes=sizes.episodes,
            segments=sizes.segments,
            replay_capacity=in_envs(min(sizes.replay or sizes.replay_fraction * steps, steps)),
            # At least the window of newest transitions that fresh proxies read.
            warmup=max(in_envs(sizes.warmup or sizes.warmup_fraction * steps), -(-128 // copies) * copies),
            proxy=proxy,
            source=self.source,
            drift_seed=drift_seed,
            sweep=axes,
            settings=settings,
            options=dict(built.options),
            controls=record_of(methods, _path(self.controls_from)),
            warm_start=warm_start_of(_path(self.start), carriers),
            observe=self.observe,
            plasticity=self.plasticity,
            counterfactual=self.counterfactual,
            block=given["block"],
            definitions=definitions(_used(task, methods, patterns, proxy)),
        )


def _path(place: Path | str | None) -> Path | None:
    return None if place is None else Path(place)


def _task(task: Any, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name of the task and the options of its builder that are not left at their defaults."""
    names = ("engine", "observation", "variant", "timeout", "channels")
    options = {name: given[name] for name in names if given[name] is not None}
    if isinstance(task, envs.Task) and task.name in envs.TASKS:
        registered = envs.make(task.name, **task.options)
        if registered is task or (task.options and registered.options == task.options):
            return task.name, {**task.options, **options}
    return name_of("task", task if isinstance(task, str) else as_task(task)), options


def _settings(carrier: str, sizes: Preset, layer_norm: bool, num_envs: int | None) -> dict[str, Any]:
    """One carrier's settings in a preset, plain data."""
    if num_envs is not None and num_envs < 1:
        raise ValueError(f"--num-envs must be at least 1; got {num_envs}")
    own = sizes.carriers.get(carrier) or CarrierSettings(CARRIERS[carrier].weight, frozen(), frozen())
    config = dict(own.config)
    if layer_norm:
        if "layer_norm" not in {field.name for field in dataclasses.fields(CARRIERS[carrier].config)}:
            raise ValueError(f"--layer-norm: carrier '{carrier}' has no such setting")
        config["layer_norm"] = True
    settings = {
        "num_envs": num_envs or own.num_envs or sizes.num_envs,
        "base": own.base,
        "config": config,
        "hyper": dict(own.hyper),
        "schedule": dict(own.schedule),
    }
    return settings if own.warmup is None else settings | {"warmup": own.warmup}


def _sized(sizes: Preset, settings: Mapping[str, Any], steps: int | None) -> tuple[int, int]:
    """Environment steps of a run, and the copies of which its counts are multiples; fits rollouts to the steps."""
    horizon = sizes.steps if steps is None else steps
    copies = math.lcm(*(own["num_envs"] for own in settings.values()))
    intervals = math.lcm(sizes.evaluations, sizes.segments)
    multiple = copies * intervals
    if horizon <= 0 or horizon % multiple:
        near = max(multiple, round(horizon / multiple) * multiple)
        parts = f"{sizes.evaluations} evaluations"
        if intervals != sizes.evaluations:
            parts = f"{intervals}, a multiple of {parts} and of {sizes.segments} segments of the drift"
        raise ValueError(
            f"--steps must be a positive multiple of {multiple} ({copies} environments times {parts}); "
            f"got {horizon}, the nearest is {near}"
        )
    fewest = min(own["num_envs"] for own in settings.values())
    if horizon // fewest > LONGEST:
        raise ValueError(f"--steps may be at most {LONGEST * fewest // multiple * multiple} here; got {horizon}")
    for own in settings.values():
        if "rollout" in own["config"]:  # whole rollouts between evaluations, at most as long as the preset's
            fit_rollout(own["config"], horizon // own["num_envs"] // sizes.evaluations, own["num_envs"])
    return horizon, copies


def _used(task: str, methods: Sequence[Method], patterns: Sequence[str], proxy: str) -> list[tuple[str, str]]:
    """Kind and name of everything registered that a study uses."""
    played = [method.control.of for method in methods if method.control is not None]
    used = [("task", task), ("proxy", proxy), *(("pattern", name) for name in patterns)]
    for method in (*methods, *played):
        used += [("carrier", method.carrier), *(("adaptation", name) for name in method.adaptations)]
        used += [("schedule", name) for name in (method.schedule, method.signal) if name not in (None, BASELINE)]
        used += [("proxy", method.proxy)] if method.proxy is not None else []
    return list(dict.fromkeys(used))


StudyOptions.__doc__ = (StudyOptions.__doc__ or "") + "".join(
    f"  {name}: {option.help}\n    " for name, option in OPTIONS.items() if name != "task"
)
