"""All of a study that can be refused, done before a folder is claimed: programs built, agents read, memory planned."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import envs
from aesjax.compiling import jit
from aesjax.types import Program
from agents.common import LoopConfig
from envs.adopt import trying
from envs.physics.host import in_own_words
from envs.world import World
from experiments.measure.patterns import STEADY
from experiments.study.config import OBSERVED, StudyConfig
from experiments.study.controls import records_of
from experiments.study.program import Share, check, merged, runs_of, small_windows
from experiments.study.references import floor_of
from experiments.study.sweep import Batches, Device, cache_group, memory_budget, plan_batches, state_bytes
from experiments.study.warm import Warm, warm_of

_MOST_RUNS = 200_000  # their labels and data alone take minutes to make
_PLACES = 201  # of a run at which a pattern is tried
_ROW_BYTES = 400  # of one evaluation in memory, with room for what is logged
_STREAM_BYTES = 2 * 4 * LoopConfig.stream_samples  # of the recorded streams of one run and evaluation, at most


class Prepared(NamedTuple):
    """One carrier's share of a study, ready to be compiled."""

    share: Share
    program: Program
    runs: Any  # stacked, NumPy, leading run axis
    warm: Warm | None
    devices: Sequence[Device]
    batches: Batches

    @property
    def shapes(self) -> Any:
        """The state of one run as shapes with a leading axis of 1."""
        return jax.eval_shape(jax.vmap(self.program.init), jax.tree.map(lambda leaf: leaf[:1], self.runs))


def prepare(config: StudyConfig) -> list[Prepared]:
    """Check a study, build every carrier's program and runs and plan how they fit into memory.

    Raises:
      ValueError: as `check`; a record or agents do not fit, or runs or results need more memory than there is.
    """
    shares = check(config)
    _check_size(config, sum(len(share.trained) for share in shares.values()))
    _try_objects(config, shares[config.carriers[0]].learner.world)
    return [_prepared(config, share) for share in shares.values() if share.trained]


def notes_of(config: StudyConfig) -> list[str]:
    """Sentences for a person who begins a study: limits of its results, and methods that are not what was typed."""
    lines = []
    if STEADY not in config.patterns and not config.block:
        lines += [f"without the pattern {STEADY} there will be no nAUC and no DropRatio; --patterns may name it, too"]
    if config.observe:
        lines += [f"policy and critics observe {OBSERVED}"]
    lines += [note] if (note := getattr(config.build_task().env, "note", None)) else []
    return [*lines, *merged(config), *small_windows(config)]


def _prepared(config: StudyConfig, share: Share) -> Prepared:
    program, runs = share.program(), runs_of(share, records_of(config, share))
    warm = warm_of(config, share, runs)
    runs = runs if warm is None else warm.runs
    devices, one = jax.devices(), jax.tree.map(lambda leaf: leaf[0], runs)
    if getattr(share.learner.world.task.env, "exclusive", False):  # a simulator has no room for a second run
        return Prepared(share, program, runs, warm, devices[:1], Batches(1, len(share.labels), 1))
    group = cache_group(devices, state_bytes(program, one))
    batches = plan_batches(program, one, len(share.labels), len(devices), memory_budget(devices), group)
    return Prepared(share, program, runs, warm, devices, batches)


def _try_objects(config: StudyConfig, world: World) -> None:
    """Refuse a task or pattern from outside that does not work."""
    if config.task not in envs.TASKS and not config.task.startswith(envs.BRIDGE):
        with trying(f"task '{config.task}' does not work"), in_own_words(world.task.env):
            _try_task(world)
            floor_of(config)
    for pattern in config.own_patterns:
        with trying(f"pattern '{pattern}' does not work"):
            _try_pattern(pattern, world)


def _try_task(world: World) -> None:
    """Refuse an environment whose first step has another shape than a task's, or a number that is not finite."""

    def rows(first: jax.Array, second: jax.Array) -> tuple[jax.Array, ...]:
        params = world.params_at(world.drift("steady", 0), 0)
        start, state = world.reset(first, 2, params)
        obs, _, *flags, last = world.step(second, state, jnp.zeros((2, world.action_size)), params)
        return start, obs, last, *flags

    names = ("first observation", "observation", "last observation", "reward", "terminated", "truncated")
    for name, value in zip(names, jit(rows)(*jax.random.split(jax.random.key(0))), strict=True):
        wanted = (world.obs_size,) if "observation" in name else ()
        if value.shape[1:] != wanted or not np.isfinite(value).all():
            raise ValueError(f"its {name} must be finite, of shape {wanted}; got {value[0]} of {value.shape[1:]}")


def _try_pattern(name: str, world: World) -> None:
    """Refuse a pattern that leaves the range of a channel in a run, or one and a half radii of a planar one."""
    steps = jnp.linspace(0, world.total, _PLACES).astype(jnp.int32)
    values = np.asarray(jit(lambda: world.path(world.drift(name, 0), steps)[0])())
    columns = [channel for channel in world.task.channels for _ in range(channel.size)]
    for channel, column in zip(columns, values.T, strict=True):
        slack = (0.25 if channel.kind == "planar" else 1e-5) * (channel.high - channel.low)
        if not ((column >= channel.low - slack) & (column <= channel.high + slack)).all():
            raise ValueError(
                f"'{channel.name}' must stay between {channel.low:g} and {channel.high:g}; got {column.min():g} to "
                f"{column.max():g}"
            )


def results_bytes(config: StudyConfig, runs: int) -> int:
    """Memory of the results of ``runs`` runs, at most."""
    return runs * (_ROW_BYTES + _STREAM_BYTES) * (config.evaluations + 1)


def _check_size(config: StudyConfig, runs: int) -> None:
    """Refuse studies whose results alone would not fit into the machine."""
    needed = results_bytes(config, runs)
    if runs > _MOST_RUNS:
        raise ValueError(
            f"the study has {runs:,} runs; at most {_MOST_RUNS:,} go into one: give fewer seeds or methods"
        )
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > free:
        raise ValueError(
            f"the results of {runs:,} runs take about {needed >> 20:,} MiB and {free >> 20:,} MiB are free; "
            "give fewer seeds or methods"
        )
