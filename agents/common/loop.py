"""Common parts of on-policy and off-policy runs: data, sizes, divergence, evaluation and logs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from aesjax import schedules
from aesjax.adaptations import Adaptation, Supply, together
from aesjax.schedules import DriftProxy, Schedule, required_signals
from aesjax.schedules.rule import Mean
from aesjax.seeding import stream
from aesjax.types import STREAM, Array, DriftAdaptation, EntropySchedule, ScheduleState, Signals
from agents.common import adapting, dynamics
from agents.common.carrier import UpdateOut
from agents.common.episodes import episode_returns
from agents.common.masks import kept
from envs.world import World

REASONS = ("critic loss not finite", "actor loss not finite", "entropy weight negative or not finite")


@dataclass(frozen=True)
class LoopConfig:
    """Static structure of a run; all counts in vector steps (one action in each of ``num_envs`` environments).

    On-policy ``interval`` is a multiple of the rollout length, and warm-up, capacity and newest are unused.
    """

    num_envs: int
    interval: int  # vector steps between two evaluations
    warmup: int = 0  # vector steps without gradient step
    capacity: int = 0  # transitions stored
    episodes: int = 10  # per evaluation
    newest: int = 128  # newest transitions whose residuals a proxy with source "fresh" reads
    random: int | None = None  # vector steps with uniform random actions; None: all of the warm-up
    counterfactual: bool = False  # evaluate under drift values that are not in force, too

    stream_samples: ClassVar[int] = 250  # most samples of the measured proxies per training interval

    def __post_init__(self) -> None:
        if self.capacity % self.num_envs:
            raise ValueError(f"replay capacity {self.capacity} must be a multiple of num_envs {self.num_envs}")


class Run(NamedTuple):
    """One run as data: all of it may differ between the runs of one program."""

    seed: Any  # () uint32
    drift: Any  # the world's data: pattern and drift sample
    schedules: Sequence[Schedule]  # all of the program, with complete options
    hyper: Any  # the carrier's traced floats
    kind: Any = 0  # () int32, which of the schedules is in force
    coupling: Any = None  # () float32; 1: learning rates follow the entropy weight; None: in no run
    adaptations: Sequence[Adaptation] = ()  # all of the program, with complete options
    signals: Sequence[Schedule] = ()  # schedules whose ratios drive adaptations, with complete options
    driver: Any = 0  # () int32, which of the signals drives those of this run
    updates: Any = None  # () float32, that adaptations plan with; None: no run of the program has any
    played: Any = None  # the record that it plays instead; None: no run of the program plays one

    @property
    def needs(self) -> Mapping[str, str]:
        """Fields of `Signals` that schedules of the program read, with the schedules that read them."""
        return required_signals((*self.schedules, *self.signals))


class Health(NamedTuple):
    """First divergence of a run: vector step and reason."""

    diverged_at: Array  # () int32, first vector step with a value of REASONS, -1 before
    reason: Array  # () int32, bit i set: REASONS[i]


def examine(health: Health, out: UpdateOut, weight: Array, step: Array) -> Health:
    """Health after one update that ended with entropy weight ``weight``."""
    losses = (out.metrics["critic_loss"], out.metrics["actor_loss"])
    bad = ~jnp.stack([*map(jnp.isfinite, losses), jnp.isfinite(weight) & (weight >= 0.0)])
    first = (health.diverged_at < 0) & jnp.any(bad)
    reason = jnp.sum(bad * jnp.array([1, 2, 4]))
    return Health(jnp.where(first, step, health.diverged_at), jnp.where(first, reason, health.reason))


class RunState(NamedTuple):
    """All quantities that change during a run."""

    agent: Any
    env: Any
    obs: Array  # (N, S) raw
    replay: Any  # `buffer.Replay`; None on-policy
    schedule: ScheduleState
    newest: Any  # ring of the residuals of the newest transitions; None: no schedule of the program reads it
    episode_return: Array  # (N,) of the unfinished training episodes
    health: Health
    coupling: Any = None  # of learning rates to the entropy weight; None: no run has it
    adaptation: Any = None  # levers other than the entropy weight, and their state; None: no run has any
    model: Any = None  # `dynamics.ModelState`; None: no schedule of the program reads its error


def step_keys(key: Array, steps: Array, count: int) -> Array:
    """``count`` keys per step (n,), as raw words (n, count, 2): JAX's key-reuse check rejects typed keys here."""
    return jax.vmap(lambda step: jax.random.key_data(jax.random.split(jax.random.fold_in(key, step), count)))(steps)


def finished_episodes(
    total: Array, reward: Array, done: Array, valid: Array | None = None
) -> tuple[Array, dict[str, Array]]:
    """Episode returns (N,) so far after a step, number and sum of the episodes that ended with it, mean reward."""
    reward, done = kept(valid, (reward, done))
    total = total + reward
    sums = {"finished": jnp.sum(done), "finished_return": jnp.sum(done * total), "reward": jnp.mean(reward)}
    return total * (1.0 - done), sums if valid is None else sums | {"valid": jnp.mean(valid.astype(jnp.float32))}


def in_parts(part: Callable[..., Any], length: int) -> Callable[..., Any]:
    """Repeat a `part` of ``length`` vector steps over inputs with a leading axis of steps.

    Its outputs are concatenated, its refreshes are summed, and of its other values the last is used.
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


def mean_of(values: Array) -> Array:
    """Mean () of many values (n,), by parts of equal length: one float32 sum of all would lose digits."""
    return jnp.mean(_strided(values, LoopConfig.stream_samples))


def _ratio(total: Array, count: Array) -> Array:
    """``total / count``, NaN where nothing was counted."""
    return jnp.where(count > 0, total / jnp.maximum(count, 1.0), jnp.nan)


@dataclass(frozen=True)
class Loop:
    """Parts that on-policy and off-policy runs share."""

    world: World
    carrier: Any  # `Carrier` or `OnPolicyCarrier`
    config: LoopConfig
    supply: Supply = field(default_factory=Supply)  # transitions from which a run draws its batches
    record: tuple[DriftProxy, ...] = ()  # proxies to measure besides those that schedules read

    def begin(self, run: Run, init: Callable[[Array], Any], window: int) -> RunState:
        """State before the first step; ``init`` maps a key to an agent, ``window`` is the window of `model`."""
        key, model = jax.random.key(run.seed), self.model(run, window)
        values, _ = self.world.path(run.drift, jnp.zeros(1, jnp.int32))
        obs, env = self.world.reset(stream(key, "reset"), self.config.num_envs, self.world.params_of(values[0]))
        state = RunState(
            agent=init(stream(key, "network")),
            env=env,
            obs=obs,
            replay=None,
            schedule=self.schedule_of(run).init(),
            newest=None,
            episode_return=jnp.zeros(self.config.num_envs),
            health=Health(jnp.int32(-1), jnp.int32(0)),
            coupling=None if run.coupling is None else adapting.Coupling(Mean.zero(), jnp.int32(0)),
            adaptation=None if run.updates is None else self.adaptation_of(run).init(),
            model=None if model is None else model.init(stream(key, "model")),
        )
        adapting.check(state, self.carrier)
        return state

    def schedule_of(self, run: Run) -> EntropySchedule:
        """Schedule of a run, or the record that it plays."""
        own = schedules.together(run.schedules, run.kind, self.record)
        if run.played is None:
            return own
        return schedules.overridden(own, run.played.weight, run.played.stride, run.played.on)

    def adaptation_of(self, run: Run) -> DriftAdaptation:
        """Adaptations of a run that has some."""
        return together(run.adaptations, run.signals, run.driver, run.updates, self.supply, run.played)

    def model(self, run: Run, window: int) -> dynamics.Model | None:
        """Model of the dynamics, its error a mean over ``window`` transitions; None if no schedule reads it."""
        sizes = (self.world.obs_size, self.world.action_size)
        return dynamics.make(*sizes, window) if "model_error" in run.needs else None

    def update(self, state: RunState, run: Run, *batch: Any) -> tuple[RunState, UpdateOut]:
        """State after the carrier's gradient step, and the carrier's `UpdateOut`."""
        state, hyper = adapting.paced(state, run)
        out = self.carrier.update(state.agent, *batch, entropy_weight=state.schedule.weight, hyper=hyper)
        return state._replace(agent=out.state), out

    def tick(
        self, state: RunState, run: Run, signals: Signals, out: UpdateOut, step: Array
    ) -> tuple[RunState, dict[str, Array]]:
        """Advance the schedule after an update that ended with ``out``, and add the update to the sums of the logs."""
        schedule = self.schedule_of(run).update(signals, state.schedule)
        logs = {"critic_loss": out.metrics["critic_loss"]}
        logs |= {name: getattr(schedule.logs, name) for name in ("proxy", "at_min", "at_max")}
        logs |= {name: out.metrics[name] for name in ("gradient_steps",) if name in out.metrics}
        health = examine(state.health, out, schedule.weight, step)
        logs |= adapting.in_force(state)
        if state.adaptation is not None:
            state = state._replace(adaptation=self.adaptation_of(run).update(signals, state.adaptation))
        return state._replace(schedule=schedule, health=health), logs

    def metrics(
        self, state: RunState, sums: Mapping[str, Array], updates: Array, streams: Mapping[str, Array], reward: Array
    ) -> dict[str, Array]:
        """Metrics of a training interval from () ``sums`` over its ``updates``, and the strided streams (K,).

        Args:
          reward: mean () over all environments and vector steps, 0 where not valid.
        """
        sums = dict(sums)
        finished, finished_return = sums.pop("finished"), sums.pop("finished_return")
        logs = state.schedule.logs
        faults, valid, taken = self.world.faults(state.env), sums.pop("valid", None), sums.pop("gradient_steps", None)
        if valid is not None:  # mean over the valid steps
            reward = jnp.where(valid > 0.0, reward * self.config.interval / valid, jnp.nan)
        return (
            {name: _ratio(value, updates) for name, value in sums.items()}
            | {
                "online_return": reward * self.world.time_limit,
                "train_return": _ratio(finished_return, finished),
                "entropy_weight": state.schedule.weight,
                "weight_raw": logs.weight_raw,
                "proxy_smooth": logs.proxy_smooth,
                "diverged_at": state.health.diverged_at,
                "reason": state.health.reason,
            }
            | ({} if faults is None else {"simulation_faults": faults})
            | ({} if valid is None else {"valid_fraction": valid / self.config.interval})
            | ({} if taken is None else {"gradient_steps": taken})
            | {STREAM + name: _strided(value, self.config.stream_samples) for name, value in streams.items()}
        )

    def evaluate(self, state: RunState, run: Run, step: Array) -> dict[str, Array]:
        """Returns of the deterministic policy, drift frozen at ``step``; all methods share initial states."""
        world, episodes = self.world, self.config.episodes
        key = stream(stream(jax.random.key(run.seed), "evaluation"), world.name)
        # Keyed by evaluation index, because vector steps differ with num_envs.
        key = jax.random.fold_in(key, step // self.config.interval)
        values, _ = world.path(run.drift, step[None])
        notice = jax.tree.map(lambda rows: rows[0], world.notice(run.drift, step[None]))  # None stays None
        params_of = partial(world.params_of, notice=notice)
        params = params_of(values[0])

        def policy(obs: Array, key: Array) -> Array:
            return self.carrier.act_deterministic(state.agent, obs)

        # As words, because JAX's key-reuse check takes the intended use of one key under several values for reuse.
        words = jax.random.key_data(key)

        def mean_return(values: Array) -> Array:
            again = jax.random.wrap_key_data(words)
            return jnp.mean(episode_returns(world, policy, params_of(values), again, episodes))

        returns = episode_returns(world, policy, params, key, episodes)
        others = {}
        if self.config.counterfactual:
            elsewhere = world.elsewhere(run.drift, step)
            means = jax.lax.map(mean_return, jnp.stack([*elsewhere.values()]))
            others = {f"return_{name}": means[i] for i, name in enumerate(elsewhere)}
        return {
            "return_mean": jnp.mean(returns),
            "return_std": jnp.std(returns),
            "drift": values[0],
            "drift_value": world.displacement(values[0]),
        } | others
