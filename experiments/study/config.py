"""The configuration of a study: everything needed to run it again, as plain JSON, checked before anything starts."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import envs
from experiments.study.method import Method
from experiments.study.plugins import Origins, check_bridged, restored
from experiments.study.schema import check_shape
from experiments.study.strings import parse_methods, text_of

FORMAT = 3
LONGEST = 2**31 - 1  # vector steps of a run: its clock is an int32
OPTIONAL = ("plugins", "controls", "warm_start", "observe", "plasticity", "counterfactual", "together", "part")


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
    #: where what lives outside this repository came from: kind -> name -> object, package, version
    plugins: Origins = dataclasses.field(default_factory=dict)
    #: of controls: the folder of the study whose runs they play, and the SHA-256 of its recorded proxies
    controls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: of trained agents to begin with: their folder, the SHA-256 of what lists them, and whether with their replays
    warm_start: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    observe: str | None = None  # "drift": its true values are part of the observations, an upper bound
    plasticity: bool = False  # measure networks before every evaluation
    counterfactual: bool = False  # evaluate under drift values that are not in force, too
    #: runs that go through the program together, at most, on one device; None: as many as fit, on all devices
    together: int | None = None
    part: Mapping[str, int] = dataclasses.field(default_factory=dict)  # number, of: these runs of the study only
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
    """The configuration stored in a `config.json`.

    Raises:
      ValueError: as `check_stored`, or it needs a plug-in that is not trusted.
    """
    check_stored(data)
    check_bridged(data["task"])
    values = dict(data)
    carriers, schedules = values.pop("carriers"), values.pop("schedules")
    with restored(values.get("plugins", {})):
        if isinstance(schedules, list):
            values["methods"] = parse_methods(schedules, carriers)
        else:
            values["methods"] = tuple(m for carrier in carriers for m in parse_methods(schedules[carrier], [carrier]))
    for name in ("patterns", "seeds"):
        values[name] = tuple(values[name])
    values["sweep"] = {name: tuple(axis) for name, axis in values["sweep"].items()}
    return StudyConfig(**values)


def check_stored(data: Any) -> None:
    """Check format, fields and shape of a `config.json` (ValueError); runs no code that it names."""
    if not isinstance(data, dict) or "format" not in data:
        raise ValueError("it is not the configuration of a study")
    if data["format"] != FORMAT:
        raise ValueError(f"its format is {data['format']}, this version reads {FORMAT}")
    fields = {field.name for field in dataclasses.fields(StudyConfig)} - {"methods"} | {"carriers", "schedules"}
    if odd := sorted({*OPTIONAL, *data} ^ fields):
        raise ValueError(f"its fields differ from what this version writes: {', '.join(odd)}")
    check_shape(data)
