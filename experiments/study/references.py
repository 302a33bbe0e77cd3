"""Returns that a study is measured against: those of random actions, and the best ones where they are known."""

import math

import jax
import jax.numpy as jnp
import numpy as np

import envs
from aesjax.compiling import jit
from agents.common.episodes import random_returns
from envs.physics.host import Hosted
from experiments.study.config import StudyConfig
from experiments.study.program import world_of

_OPTIMUM_DIGITS = 6  # of a return
_SIMULATED = 64  # episodes of it at most, where they take place outside of JAX
_FLOOR_STEPS = 50_000  # at most, in whole episodes: 1000 of the toy task, 50 of a MuJoCo task


def optimum_of(config: StudyConfig) -> dict[str, dict[str, list[float]]]:
    """The best mean return at every evaluation, per pattern and seed; empty where it is unknown.

    Solved at five evaluations of each segment (its first and last among them) and joined by straight lines, which
    the smoothness of a drift inside a segment allows. By seed, because drift differs by seed.
    """
    best = envs.optimal_return(config.task) if config.task in envs.TASKS else None
    if best is None:
        return {}
    carrier = config.carriers[0]  # any carrier: drift depends only on progress through the run
    world, interval = world_of(config, carrier), config.interval(carrier)
    per_segment = config.evaluations // config.segments if config.evaluations % config.segments == 0 else 1
    knots: dict[int, float] = {}  # evaluation -> vector step; a change point has a left limit of its own
    for segment in range(config.segments):
        start = segment * per_segment
        for offset in {0, per_segment // 4, per_segment // 2, 3 * per_segment // 4, per_segment - 1}:
            knots[start + offset] = (start + offset) * interval
    knots[config.evaluations] = world.total
    at = sorted(knots)
    steps = jnp.array([knots[j] for j in at], jnp.int32)
    path = jit(lambda drift: world.path(drift, steps)[0])
    drawn = [seed if config.drift_seed is None else config.drift_seed for seed in config.seeds]
    found = {(p, s): np.asarray(path(world.drift(p, s))) for p in config.patterns for s in dict.fromkeys(drawn)}
    values = np.stack([[found[p, s] for s in drawn] for p in config.patterns])  # (P, S, K, D)
    unique, index = np.unique(values.reshape(-1, values.shape[-1]).round(6), axis=0, return_inverse=True)
    returns = np.asarray(best(jnp.asarray(unique, jnp.float32)))[index.reshape(-1)].reshape(values.shape[:-1])
    grid = np.arange(config.evaluations + 1)
    return {
        pattern: {
            str(seed): np.interp(grid, at, returns[i, j]).round(_OPTIMUM_DIGITS).tolist()
            for j, seed in enumerate(config.seeds)
        }
        for i, pattern in enumerate(config.patterns)
    }


def floor_of(config: StudyConfig) -> float:
    """Mean return of uniformly random actions on the steady task: the floor of the offset-safe metrics.

    A fixed key and number of episodes, the same for every study of the task.
    """
    world = world_of(config, config.carriers[0])
    nominal = jit(lambda: world.path(world.drift("steady", 0), jnp.zeros(1, jnp.int32))[0][0])()
    episodes = _FLOOR_STEPS // world.time_limit
    if isinstance(world.task.env, Hosted):  # each is a simulation of its own
        episodes = min(episodes, _SIMULATED)
    returns = jit(lambda key: random_returns(world, world.params_of(nominal), key, episodes))
    mean = float(jnp.mean(returns(jax.random.key(0))))
    if not math.isfinite(mean):
        raise ValueError(f"the random policy's return on '{config.task}' is not finite")
    return mean
