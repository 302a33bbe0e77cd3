"""The configuration of a study: everything needed to run it again, as plain JSON, checked before anything starts."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import envs
from experiments.study.method import Method
from experiments.study.parser import LARGEST_SEED, parse, text_of
from experiments.study.plugins import Definitions, check_defined, known
from experiments.study.store import shortened

FORMAT = 3
MOST_SEGMENTS = 10_000
LONGEST = 2**31 - 1  # vector steps of a run: its clock is an int32
OPTIONAL = ("definitions", "controls", "warm_start", "observe", "plasticity", "counterfactual", "block")


@dataclasses.dataclass(frozen=True)
class StudyConfig:
    """A study, complete: presets are already resolved into numbers."""

    task: str
    preset: str
    methods: tuple[Method, ...]  # carrier by carrier
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
    #: of objects from outside this repository: kind -> name -> place and SHA-256 of its file, or its source
    definitions: Definitions = dataclasses.field(default_factory=dict)
    #: of controls: the folder of the study whose runs they play, and the SHA-256 of its recorded proxies
    controls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: of trained agents to begin with: their folder, the SHA-256 of what lists them, and whether with their replays
    warm_start: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    observe: str | None = None  # "drift": its true values are part of the observations: a reference, no method
    plasticity: bool = False  # measure networks before every evaluation
    counterfactual: bool = False  # evaluate under drift values that are not in force, too
    block: tuple[int, int] | None = None  # first and last run, from 1 over all carriers in table order; None: all
    format: int = FORMAT

    @property
    def carriers(self) -> tuple[str, ...]:
        """The carriers of its methods."""
        return tuple(dict.fromkeys(method.carrier for method in self.methods))

    def methods_of(self, carrier: str) -> tuple[Method, ...]:
        """The methods on one carrier."""
        return tuple(method for method in self.methods if method.carrier == carrier)

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
        data: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "methods":
                texts = {carrier: [text_of(method) for method in self.methods_of(carrier)] for carrier in self.carriers}
                first = next(iter(texts.values()))
                alike = all(own == first for own in texts.values())
                data |= {"carriers": list(self.carriers), "schedules": first if alike else texts}
            elif value or field.name not in OPTIONAL:
                data[field.name] = value  # most studies have none of the optional ones
        return json.loads(json.dumps(data, default=dict))

    def fingerprint(self) -> str:
        """Short hash of the whole configuration."""
        return fingerprint_of(self.to_json())


def fingerprint_of(data: Mapping[str, Any]) -> str:
    """Short hash of a configuration as JSON."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def config_from_json(data: Any) -> StudyConfig:
    """The configuration stored in a `config.json`; nothing is imported.

    Raises:
      ValueError: as `check_stored`, or it uses an object that this process does not have, or has another one of.
    """
    check_stored(data)
    check_defined(data.get("definitions", {}))
    known("task", data["task"])
    known("proxy", data["proxy"])
    return StudyConfig(**parse(data, known))


def check_stored(data: Any) -> None:
    """Check format, fields and shape of a `config.json` (ValueError); runs no code that it names."""
    if not isinstance(data, dict) or "format" not in data:
        raise ValueError("it is not the configuration of a study")
    if data["format"] != FORMAT:
        raise ValueError(f"its format is {data['format']}, this version reads {FORMAT}")
    fields = {field.name for field in dataclasses.fields(StudyConfig)} - {"methods"} | {"carriers", "schedules"}
    if odd := sorted({*OPTIONAL, *data} ^ fields):
        raise ValueError(f"its fields differ from what this version writes: {', '.join(odd)}")
    _check_shape(data)


def is_count(value: Any) -> bool:
    """Whether a JSON value is a positive whole number that a float holds exactly."""
    return type(value) is int and 0 < value < 2**53


def _seed(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_SEED


def _number(value: Any) -> bool:
    return type(value) in (int, float) and not math.isnan(value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and bool(value) and all(map(fits, value))


def _dict_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _setting(value: Any) -> bool:
    """One carrier's settings."""
    parts: Mapping[str, Callable[[Any], bool]] = {
        "num_envs": is_count,
        "base": _number,
        "config": _is(dict),
        "hyper": _dict_of(_number),
        "schedule": _dict_of(_number),
    }
    return (
        isinstance(value, dict)
        and set(parts) <= set(value) <= {*parts, "warmup"}
        and all(fits(value[name]) for name, fits in parts.items())
        and is_count(value.get("warmup", 1))
    )


_NAMES = (_list_of(_text), "a list of names")
_ONE_NAME = (_text, "a name")
_COUNT = (is_count, "a positive whole number")
_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "task": _ONE_NAME,
    "preset": _ONE_NAME,
    "proxy": _ONE_NAME,
    "carriers": _NAMES,
    "schedules": (
        lambda value: _NAMES[0](value) or _dict_of(_NAMES[0])(value),
        "a list of names, or carriers with such lists",
    ),
    "patterns": _NAMES,
    "seeds": (_list_of(_seed), f"a list of whole numbers from 0 to {LARGEST_SEED}"),
    "steps": _COUNT,
    "evaluations": _COUNT,
    "episodes": _COUNT,
    "segments": (lambda value: is_count(value) and value <= MOST_SEGMENTS, f"a whole number from 1 to {MOST_SEGMENTS}"),
    "replay_capacity": _COUNT,
    "warmup": _COUNT,
    "source": (_or_none(_text), "a name or null"),
    "drift_seed": (_or_none(_seed), f"a whole number from 0 to {LARGEST_SEED}, or null"),
    "sweep": (_dict_of(_list_of(_number)), "names with lists of numbers"),
    "settings": (_dict_of(_setting), "carriers with num_envs, base, config, hyper and schedule"),
    "options": (_is(dict), "an object"),
    "definitions": (_dict_of(_dict_of(_is(dict))), "kinds with names with definitions"),
    "controls": (_dict_of(_text), "names with text"),
    "warm_start": (_is(dict), "an object"),
    "observe": (lambda value: value == "drift", "'drift'"),
    "plasticity": (_is(bool), "true or false"),
    "counterfactual": (_is(bool), "true or false"),
    "block": (lambda value: _list_of(is_count)(value) and len(value) == 2, "a list of two positive whole numbers"),
}


def _check_shape(data: Mapping[str, Any]) -> None:
    """Refuse a configuration whose entries are not of the right kind."""
    for name, (fits, wanted) in _FIELDS.items():
        if name in data and not fits(data[name]):
            raise ValueError(f"'{name}' must be {wanted}; got {shortened(data[name])}")
    if set(data["settings"]) != set(data["carriers"]):
        raise ValueError(f"'settings' must be those of its carriers; got {shortened(sorted(data['settings']))}")
    if isinstance(data["schedules"], dict) and set(data["schedules"]) != set(data["carriers"]):
        raise ValueError(f"'schedules' must be those of its carriers; got {shortened(sorted(data['schedules']))}")
    for carrier, own in data["settings"].items():
        if data["steps"] % (own["num_envs"] * data["evaluations"]):
            raise ValueError(
                f"'steps' must be a multiple of {own['num_envs']} environments of '{carrier}' times "
                f"{data['evaluations']} evaluations; got {data['steps']}"
            )
