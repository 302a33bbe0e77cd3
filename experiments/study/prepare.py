"""Preparation of a training: programs, agents, memory, and reference returns.

All errors of a configuration are raised here, before a folder is locked.
"""

import itertools
import math
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
from agents.common.episodes import random_returns
from envs.adopt import trying
from envs.physics.host import Hosted, in_own_words
from envs.world import World
from experiments.study.checkpoint import changes_of
from experiments.study.config import StudyConfig
from experiments.study.program import Plan, Share, runs_of
from experiments.study.replay import records_of
from experiments.study.run import Batches, Device, cache_group, memory_budget, plan_batches, state_bytes
from experiments.study.warm import Warm, warm_of

_PLACES = 201  # moments of a run at which a pattern is tested
_ROW_BYTES = 400  # bytes of one evaluation in memory, with logged columns
_STREAM_BYTES = 2 * 4 * LoopConfig.stream_samples  # largest size of the recorded streams of one run and evaluation
_OPTIMUM_DIGITS = 6  # of a return
_SIMULATED = 64  # most episodes in an external simulator
_FLOOR_STEPS = 50_000  # most steps, in complete episodes: 1000 of the toy task, 50 of a MuJoCo task


class Prepared(NamedTuple):
    """One carrier's share of a study, ready for compilation."""

    share: Share
    program: Program
    runs: Any  # stacked, NumPy, leading run axis
    warm: Warm | None
    devices: Sequence[Device]
    batches: Batches


def prepare(plan: Plan) -> list[Prepared]:
    """Build every carrier's program and runs and plan how they fit into memory.

    Raises:
      ValueError: as in `Plan.shares`; unsuitable records or agents, or too little memory for runs or results.
    """
    shares = list(plan.shares.values())
    needed = results_bytes(plan.config, sum(len(share.trained) for share in shares))
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > free:
        raise ValueError(
            f"the results of all runs take about {needed >> 20:,} MiB and {free >> 20:,} MiB are free; "
            "give fewer seeds or methods"
        )
    _try_objects(shares[0])
    return [_prepared(share) for share in shares if share.trained]


def _prepared(share: Share) -> Prepared:
    program, runs = share.program(), runs_of(share, records_of(share))
    warm = warm_of(share, runs)
    runs = runs if warm is None else warm.runs
    devices, one = jax.devices(), jax.tree.map(lambda leaf: leaf[0], runs)
    if getattr(share.learner.world.task.env, "exclusive", False):  # a simulator holds one run at a time
        return Prepared(share, program, runs, warm, devices[:1], Batches(1, len(share.labels), 1))
    group = cache_group(devices, state_bytes(program, one))
    batches = plan_batches(program, one, len(share.labels), len(devices), memory_budget(devices), group)
    return Prepared(share, program, runs, warm, devices, batches)


def _try_objects(share: Share) -> None:
    """Raise for a custom task or pattern that does not work."""
    config, world = share.config, share.learner.world
    if config.task not in envs.TASKS and not config.task.startswith(envs.BRIDGE):
        with trying(f"task '{config.task}' does not work"), in_own_words(world.task.env):
            _try_task(world)
            floor_of(world)
    for pattern in config.own_patterns:
        with trying(f"pattern '{pattern}' does not work"):
            _try_pattern(pattern, world)
            changes_of(config, share.learner)


def _try_task(world: World) -> None:
    """Raise for an environment whose first step has a wrong shape or a number that is not finite."""

    def rows(first: jax.Array, second: jax.Array, third: jax.Array) -> tuple[jax.Array, ...]:
        params = world.params_at(world.drift("steady", 0), 0)
        start, state = world.reset(first, 2, params)
        obs, _, *flags, last = world.step(second, state, world.random_actions(third, 2), params)
        return start, obs, last, *flags

    names = ("first observation", "observation", "last observation", "reward", "terminated", "truncated")
    for name, value in zip(names, jit(rows)(*jax.random.split(jax.random.key(0), 3)), strict=True):
        wanted = (world.obs_size,) if "observation" in name else ()
        if value.shape[1:] != wanted or not np.isfinite(value).all():
            raise ValueError(f"its {name} must be finite, of shape {wanted}; got {value[0]} of {value.shape[1:]}")


def _try_pattern(name: str, world: World) -> None:
    """Raise for a pattern that leaves the range of a channel, or 1.5 radii of a planar channel, during a run."""
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
    """Upper bound of the memory of the results of ``runs`` runs."""
    return runs * (_ROW_BYTES + _STREAM_BYTES) * (config.evaluations + 1)


def optimum_of(world: World, config: StudyConfig) -> dict[str, dict[str, list[float]]]:
    """Optimal mean return at every evaluation, per pattern and seed; empty if unknown.

    Where all patterns change between segments, it is computed at five evaluations of each segment, including its first
    and last, and interpolated linearly. Drift differs between seeds.

    Args:
      world: of any carrier, because drift depends only on progress through the run.
    """
    best = envs.optimal_return(config.task) if config.task in envs.TASKS else None
    if best is None:
        return {}
    count = config.whole // config.spacing  # of the whole run
    per_segment, rest = divmod(count, config.segments)
    offsets = {0, per_segment // 4, per_segment // 2, 3 * per_segment // 4, per_segment - 1}
    # Elsewhere the drift may change within what this grid takes for a segment.
    regular = not rest and not config.states_changes(world.patterns)
    numbers = [number for number in range(config.evaluations) if not regular or number % per_segment in offsets]
    interval = world.total // count
    knots = {number: number * interval for number in [*numbers, config.evaluations]}
    at = sorted(knots)
    steps = jnp.array([knots[number] for number in at], jnp.int32)
    path = jit(lambda drift: world.path(drift, steps)[0])
    drawn = [seed if config.drift_seed is None else config.drift_seed for seed in config.seeds]
    paths = {}
    for pattern, seed in itertools.product(config.patterns, dict.fromkeys(drawn)):
        paths[pattern, seed] = np.asarray(path(world.drift(pattern, seed)))  # (K, D)
    values = np.concatenate(list(paths.values()))
    unique, index = np.unique(values.round(6), axis=0, return_inverse=True)
    returns = np.asarray(best(jnp.asarray(unique, jnp.float32)))[index.reshape(-1)].reshape(len(paths), len(at))
    optimum: dict[str, dict[str, list[float]]] = {pattern: {} for pattern in config.patterns}
    curves = dict(zip(paths, returns, strict=True))
    for pattern, (seed, drift_seed) in itertools.product(config.patterns, zip(config.seeds, drawn, strict=True)):
        curve = np.interp(np.arange(config.evaluations + 1), at, curves[pattern, drift_seed])
        optimum[pattern][str(seed)] = curve.round(_OPTIMUM_DIGITS).tolist()
    return optimum


def floor_of(world: World) -> float:
    """Mean return of uniformly random actions on the steady task: the floor of the floor-corrected metrics.

    The key and the number of episodes are fixed and equal for every study of the task.
    """
    nominal = jit(lambda: world.path(world.drift("steady", 0), jnp.zeros(1, jnp.int32))[0][0])()
    episodes = max(1, _FLOOR_STEPS // world.time_limit)
    if isinstance(world.task.env, Hosted):  # each is a separate simulation
        episodes = min(episodes, _SIMULATED)
    returns = jit(lambda key: random_returns(world, world.params_of(nominal), key, episodes))
    mean = float(jnp.mean(returns(jax.random.key(0))))
    if not math.isfinite(mean):
        raise ValueError(f"the random policy's return on '{world.name}' is not finite")
    return mean
