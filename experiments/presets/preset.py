"""Presets: sizes of a study, and the settings of each carrier in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


def frozen(**entries: Any) -> MappingProxyType[str, Any]:
    """A read-only mapping."""
    return MappingProxyType(entries)


@dataclass(frozen=True)
class CarrierSettings:
    """How one carrier is set up on one task."""

    base: float  # static entropy weight: `fixed`, the start of `aes`, the base of `aes_r`; reward per nat
    config: Mapping[str, Any] = field(default_factory=frozen)  # static structure, fields of the carrier's config
    hyper: Mapping[str, float] = field(default_factory=frozen)  # traced floats, fields of the carrier's hyper
    schedule: Mapping[str, float] = field(default_factory=frozen)  # options of its schedules
    num_envs: int | None = None  # parallel copies, if other than the preset's
    warmup: int | None = None  # environment steps with random actions, likewise


@dataclass(frozen=True)
class Preset:
    """Sizes of a study; ``steps`` are environment steps summed over the parallel copies of a run."""

    steps: int
    num_envs: int
    evaluations: int  # evaluation every steps / evaluations
    episodes: int  # per evaluation
    carriers: Mapping[str, CarrierSettings]
    replay_fraction: float = 0.0  # capacity as a share of the horizon
    warmup_fraction: float = 0.0  # random actions as a share of the horizon
    segments: int = 5
    replay: int | None = None  # transitions, whatever the horizon; replaces the share
    warmup: int | None = None  # environment steps, likewise
    options: Mapping[str, Any] = field(default_factory=frozen)  # of the task's builder, where none is typed
