"""Parts of every run, on-policy or not: data, sizes, health, evaluation and logs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.seeding import stream
from aesjax.types import STREAM, Array, DriftAdaptation, EntropySchedule, ScheduleState, Signals
from agents.common.carrier import Carrier, OnPolicyCarrier, UpdateOut
from agents.common.episodes import episode_returns
from agents.common.masks import kept
from envs.world import World

REASONS = ("critic loss not finite", "actor loss not finite", "entropy weight negative or not finite")


@dataclass(frozen=True)
class LoopConfig:
    """Static structure of a run; all counts in vector steps (one action in each of ``num_envs`` copies).

    An on-policy carrier collects whole rollouts, so ``chunk`` is a multiple of its rollout length, and has no use for
    warm-up, capacity and a window of newest transitions: its update batch is the newest data.
    """

    num_envs: int
    chunk: int  # vector steps between two evaluations
    warmup: int = 0  # vector steps with uniform random actions and no gradient step
    capacity: int = 0  # transitions kept
    episodes: int = 10  # per evaluation
    fresh_window: int = 128  # newest transitions whose residuals a proxy with source "fresh" reads
    fresh: bool = True  # track them; off when no schedule of the program asks
    coupling: bool = False  # some run of the program couples learning rates to the entropy weight
    refresh: bool = False  # some run of the program refreshes its parameters
    plasticity: bool = False  # measure networks before every evaluation
    counterfactual: bool = False  # evaluate under drift values that are not in force, too
    stream_samples: int = 250  # at most so many samples of the measured proxies per chunk
    warm: bool = False  # the agent has been trained before: in the warm-up its own policy acts
    recycle: bool = False  # some refresh of the program is of single units
    model: bool = False  # train a model of reward and dynamics, whose error some schedule of the program reads
    updates: int = 1  # most gradient steps per vector step; 1: no run of the program takes more

    def __post_init__(self) -> None:
        if self.capacity % self.num_envs:
            raise ValueError(f"replay capacity {self.capacity} must be a multiple of num_envs {self.num_envs}")
        if self.fresh and self.fresh_window % self.num_envs:
            raise ValueError(f"fresh_window {self.fresh_window} must be a multiple of num_envs {self.num_envs}")
        if self.capacity and self.fresh and self.warmup * self.num_envs < self.fresh_window:
            raise ValueError(
                f"warm-up of {self.warmup * self.num_envs} environment steps must cover the "
                f"{self.fresh_window} newest transitions that the fresh proxy reads"
            )


class Run(NamedTuple):
    """One run as data: all of it may differ between the runs of one program."""

    seed: Any  # () uint32
    drift: Any  # the world's data: pattern and realisation
    schedule: Any  # its schedule as data, `aesjax.schedules.ScheduleData`
    hyper: Any  # the carrier's traced floats
    coupling: Any = 0.0  # () float32; 1: learning rates follow the entropy weight, see `adapting.Coupling`
    adaptation: Any = None  # its adaptations beyond the entropy weight; None: no run of the program has any
    played: Any = None  # the record that it plays instead; None: no run of the program plays one


ScheduleOf = Callable[[Run], EntropySchedule]
AdaptationOf = Callable[[Run], DriftAdaptation]


class Health(NamedTuple):
    """When and why a run stopped being one."""

    diverged_at: Array  # () int32, first vector step with a value of REASONS, -1 while there is none
    reason: Array  # () int32, bit i set: REASONS[i]


def examine(health: Health, out: UpdateOut, weight: Array, step: Array) -> Health:
    """Health after one update that ended with entropy weight ``weight``."""
    losses = (out.metrics["critic_loss"], out.metrics["actor_loss"])
    bad = ~jnp.stack([*map(jnp.isfinite, losses), jnp.isfinite(weight) & (weight >= 0.0)])
    first = (health.diverged_at < 0) & jnp.any(bad)
    reason = jnp.sum(bad * jnp.array([1, 2, 4]))
    return Health(jnp.where(first, step, health.diverged_at), jnp.where(first, reason, health.reason))


class RunState(NamedTuple):
    """Everything that changes during a run."""

    agent: Any
    env: Any
    obs: Array  # (N, S) raw
    replay: Any  # `buffer.Replay`; None on-policy
    schedule: ScheduleState
    fresh: Any  # (critics, W) residuals of the newest transitions at their arrival; None when not tracked
    fresh_ring: Any  # where they continue, in a world whose copies do not always count
    episode_return: Array  # (N,) of the training episodes under way
    health: Health
    coupling: Any = None  # of learning rates to the entropy weight; None: no run has any
    adaptation: Any = None  # levers beyond the entropy weight and what moves them; None: no run has any
    model: Any = None  # `dynamics.ModelState`; None: no schedule of the program reads its error


def begin(world: World, run: Run, num: int, schedule_of: ScheduleOf, init: Callable[[Array], Any]) -> RunState:
    """A run before its first step; ``init``: key -> agent."""
    key = jax.random.key(run.seed)
    values, _ = world.path(run.drift, jnp.zeros(1, jnp.int32))
    obs, env = world.reset(stream(key, "reset"), num, world.params_of(values[0]))
    return RunState(
        agent=init(stream(key, "network")),
        env=env,
        obs=obs,
        replay=None,
        schedule=schedule_of(run).init(),
        fresh=None,
        fresh_ring=None,
        episode_return=jnp.zeros(num),
        health=Health(jnp.int32(-1), jnp.int32(0)),
    )


def step_keys(key: Array, steps: Array, count: int) -> Array:
    """``count`` keys for every step (n,), as raw words (n, count, 2).

    As words, because JAX's key-reuse check takes scanning over typed keys under vmap for reuse.
    """
    return jax.vmap(lambda step: jax.random.key_data(jax.random.split(jax.random.fold_in(key, step), count)))(steps)


def finished_episodes(
    total: Array, reward: Array, done: Array, valid: Array | None = None
) -> tuple[Array, dict[str, Array]]:
    """Returns (N,) of the episodes under way after a step, and count and sum of those that ended with it.

    Args:
      valid: (N,) bool, the copies whose step counts; None: all.
    """
    reward, done = kept(valid, (reward, done))
    total = total + reward
    sums = {"finished": jnp.sum(done), "finished_return": jnp.sum(done * total)}
    return total * (1.0 - done), sums if valid is None else sums | {"valid": jnp.mean(valid.astype(jnp.float32))}


def evaluation(world: World, carrier: Carrier | OnPolicyCarrier, config: LoopConfig) -> Callable[..., dict[str, Array]]:
    """Deterministic policy, drift frozen at ``step``; all methods, patterns and drift values share initial states."""

    def evaluate(state: Any, run: Run, step: Array) -> dict[str, Array]:
        key = stream(stream(jax.random.key(run.seed), "evaluation"), world.name)
        # By number, not by vector step, of which carriers with other numbers of environments take others.
        key = jax.random.fold_in(key, step // config.chunk)
        values, _ = world.path(run.drift, step[None])
        params = world.params_of(values[0])

        def policy(obs: Array, key: Array) -> Array:
            del key
            return carrier.act_deterministic(state.agent, obs)

        # As words, because JAX's key-reuse check takes the intended use of one key under several values for reuse.
        words = jax.random.key_data(key)

        def mean_return(values: Array) -> Array:
            again = jax.random.wrap_key_data(words)
            return jnp.mean(episode_returns(world, policy, world.params_of(values), again, config.episodes))

        returns = episode_returns(world, policy, params, key, config.episodes)
        others = {}
        if config.counterfactual:
            elsewhere = world.elsewhere(run.drift, step)
            means = jax.lax.map(mean_return, jnp.stack([*elsewhere.values()]))
            others = {f"return_{name}": means[i] for i, name in enumerate(elsewhere)}
        return {
            "return_mean": jnp.mean(returns),
            "return_std": jnp.std(returns),
            "drift": values[0],
            "drift_value": world.displacement(values[0]),
        } | others

    return evaluate


def chunk_metrics(
    world: World,
    state: Any,
    sums: Mapping[str, Array],
    updates: Array,
    streams: Mapping[str, Array],
    config: LoopConfig,
) -> dict[str, Array]:
    """Metrics of a training interval: means over its updates, the schedule's final state and the strided streams.

    Args:
      sums: () each, over the updates of the chunk; with ``finished`` and ``finished_return``.
      updates: (), how many.
      streams: (K,) each, one value per update, NaN where there was none.
    """
    sums = dict(sums)
    finished, finished_return = sums.pop("finished"), sums.pop("finished_return")
    logs = state.schedule.logs
    faults, valid, taken = world.faults(state.env), sums.pop("valid", None), sums.pop("gradient_steps", None)
    return (
        {name: _ratio(value, updates) for name, value in sums.items()}
        | {
            "train_return": _ratio(finished_return, finished),
            "entropy_weight": state.schedule.weight,
            "weight_raw": logs.weight_raw,
            "proxy_smooth": logs.proxy_smooth,
            "diverged_at": state.health.diverged_at,
            "reason": state.health.reason,
        }
        | ({} if faults is None else {"simulation_faults": faults})
        | ({} if valid is None else {"valid_fraction": valid / config.chunk})
        | ({} if taken is None else {"gradient_steps": taken})
        | {STREAM + name: _strided(value, config.stream_samples) for name, value in streams.items()}
    )


def make_update(carrier: Carrier | OnPolicyCarrier) -> Callable[..., Any]:
    """The carrier's gradient step on a state: the state after it, and the carrier's `UpdateOut`."""

    def update(state: Any, run: Run, *batch: Any) -> tuple[Any, UpdateOut]:
        out = carrier.update(state.agent, *batch, entropy_weight=state.schedule.weight, hyper=run.hyper)
        return state._replace(agent=out.state), out

    return update


def make_tick(schedule_of: ScheduleOf, config: LoopConfig) -> Callable[..., Any]:
    """The schedule's step after an update that ended with ``out``, and what the update adds to its chunk's sums."""

    def tick(state: Any, run: Run, signals: Signals, out: UpdateOut, step: Array) -> tuple[Any, dict[str, Array]]:
        schedule = schedule_of(run).update(signals, state.schedule)
        logs = {"critic_loss": out.metrics["critic_loss"]}
        logs |= {name: getattr(schedule.logs, name) for name in ("proxy", "at_min", "at_max")}
        logs |= {"grad_norm": out.metrics["grad_norm"]} if config.plasticity else {}
        logs |= {"gradient_steps": out.metrics["gradient_steps"]} if config.updates > 1 else {}
        return state._replace(schedule=schedule, health=examine(state.health, out, schedule.weight, step)), logs

    return tick


def in_parts(part: Callable[..., Any], length: int) -> Callable[..., Any]:
    """A `part` of ``length`` vector steps, done again and again over inputs with a leading axis of steps.

    Its outputs are joined; of the rest it reports, refreshes are counted and the latest of all other values is kept.
    """

    def parts(state: Any, run: Run, key: Array, *inputs: Any) -> Any:
        def body(state: Any, now: Any) -> Any:
            state, *outputs = part(state, run, key, *now)
            return state, outputs

        cut = jax.tree.map(lambda x: x.reshape(x.shape[0] // length, length, *x.shape[1:]), inputs)  # sizes may be 0
        state, (outputs, more) = jax.lax.scan(body, state, cut)
        outputs = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), outputs)
        return state, outputs, {name: jnp.sum(x) if name == "refreshes" else x[-1] for name, x in more.items()}

    return parts


def stream_stride(length: int, samples: int) -> int:
    """Updates per sample of a stream: the smallest divisor of ``length`` that leaves at most ``samples``."""
    return next(s for s in range(1, length + 1) if length % s == 0 and length // s <= samples)


def _strided(values: Array, samples: int) -> Array:
    stride = stream_stride(values.shape[0], samples)
    return jnp.mean(values.reshape(-1, stride), -1)


def _ratio(total: Array, count: Array) -> Array:
    """``total / count``, NaN where nothing was counted."""
    return jnp.where(count > 0, total / jnp.maximum(count, 1.0), jnp.nan)
