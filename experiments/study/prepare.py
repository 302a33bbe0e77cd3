"""All of a study that can be refused, done before a folder is claimed: programs built, agents read, memory planned."""

import dataclasses
import os
from collections.abc import Sequence
from typing import NamedTuple

import jax

from agents.common import LoopConfig
from experiments.study.arms import group_size, runs_of
from experiments.study.build import Part, build_part
from experiments.study.config import StudyConfig
from experiments.study.controls import records_of
from experiments.study.sweep import Device, Waves, cache_group, memory_budget, plan_waves, state_bytes, waves_of_groups
from experiments.study.warm import Warm, warm_of

_MOST_RUNS = 200_000  # their labels and data alone take minutes to make
_ROW_BYTES = 400  # of one evaluation in memory, with room for what is logged
_STREAM_BYTES = 2 * 4 * LoopConfig.stream_samples  # of the recorded streams of one run and evaluation, at most


class Prepared(NamedTuple):
    """One carrier's share of a study, ready to be compiled."""

    part: Part
    warm: Warm | None
    devices: Sequence[Device]
    waves: Waves


def prepare(config: StudyConfig) -> list[Prepared]:
    """Build every carrier's program and runs and plan how they fit into memory.

    Raises:
      ValueError: a record or trained agents do not fit, or the runs or their results need more memory than there is.
    """
    _check_size(config)
    return [_prepared(config, carrier) for carrier in runs_of(config)]


def _prepared(config: StudyConfig, carrier: str) -> Prepared:
    part = build_part(config, carrier, records_of(config, carrier))
    warm = warm_of(config, part)
    if warm is not None:
        part = part._replace(runs=warm.runs)
    devices, one = jax.devices(), jax.tree.map(lambda leaf: leaf[0], part.runs)
    if getattr(config.build_task().env, "exclusive", False):  # a simulator has no room for a second run
        return Prepared(part, warm, devices[:1], Waves(1, len(part.labels), 1))
    if config.together is not None:
        whole = len(runs_of(dataclasses.replace(config, part={}))[carrier])
        group, size = group_size(whole, config.together), state_bytes(part.program, one)
        waves = waves_of_groups(group, len(part.labels), size, memory_budget(devices[:1]))
        return Prepared(part, warm, devices[:1], waves)
    group = cache_group(devices, state_bytes(part.program, one))
    waves = plan_waves(part.program, one, len(part.labels), len(devices), memory_budget(devices), group)
    return Prepared(part, warm, devices, waves)


def _check_size(config: StudyConfig) -> None:
    """Refuse studies whose results alone would not fit into the machine.

    Raises:
      ValueError: with what is asked for and what is possible.
    """
    runs = sum(map(len, runs_of(config).values()))
    if runs > _MOST_RUNS:
        raise ValueError(
            f"the study has {runs:,} runs; at most {_MOST_RUNS:,} go into one: give fewer seeds or methods"
        )
    needed = runs * (_ROW_BYTES + _STREAM_BYTES) * (config.evaluations + 1)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > free:
        raise ValueError(
            f"the results of {runs:,} runs take about {needed >> 20:,} MiB and {free >> 20:,} MiB are free; "
            "give fewer seeds or methods"
        )
