"""The off-policy run as three pure functions of one run: `init`, `chunk` (the scan between two evaluations) and
`evaluate`. Everything a run needs is in its state; the step counter comes from the host and is common to all
stacked runs, so that under `vmap` insertions stay slices and conditions stay branches. What depends on the step
alone (drift, keys) is computed for a whole chunk at once, outside the scan."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.lab.sweep import Program
from aesjax.seeding import stream
from aesjax.types import Array, EntropySchedule, ScheduleState
from agents import replay as rb
from agents.rollout import episode_returns
from agents.types import Carrier, Transition, World

__all__ = ["REASONS", "LoopConfig", "Run", "RunState", "make_off_policy"]

REASONS = ("critic loss not finite", "actor loss not finite", "entropy weight not finite")


@dataclass(frozen=True)
class LoopConfig:
    """Static structure of a run; all counts in vector steps (one action in each of ``num_envs`` copies)."""

    num_envs: int
    chunk: int  # vector steps between two evaluations
    warmup: int  # vector steps with uniform random actions and no gradient step
    capacity: int  # transitions kept
    episodes: int = 10  # per evaluation
    fresh_window: int = 128  # newest transitions whose residuals a proxy with source "fresh" reads
    fresh: bool = True  # track them; off when no schedule of the program asks

    def __post_init__(self) -> None:
        if self.capacity % self.num_envs:
            raise ValueError(f"replay capacity {self.capacity} must be a multiple of num_envs {self.num_envs}")
        if self.fresh and self.fresh_window % self.num_envs:
            raise ValueError(f"fresh_window {self.fresh_window} must be a multiple of num_envs {self.num_envs}")
        if self.fresh and self.warmup * self.num_envs < self.fresh_window:
            raise ValueError(
                f"warm-up of {self.warmup * self.num_envs} environment steps must cover the "
                f"{self.fresh_window} newest transitions that the fresh proxy reads"
            )


class Run(NamedTuple):
    """One run as data: all of it may differ between the runs of one program."""

    seed: Any  # () uint32
    drift: Any  # the world's data: pattern and realisation
    schedule: Any  # () int32, which of the program's schedules
    schedule_hyper: Any
    hyper: Any  # the carrier's traced floats


class RunState(NamedTuple):
    """Everything that changes during a run."""

    agent: Any
    env: Any
    obs: Array  # (N, S)
    replay: rb.Replay
    schedule: ScheduleState
    fresh: Array  # (critics, W) residuals of the newest transitions at their arrival; W = 0 when not tracked
    episode_return: Array  # (N,) of the training episodes under way
    diverged_at: Array  # () int32, first vector step with a non-finite value, -1 while there is none
    reason: Array  # () int32, bit i set: REASONS[i]


def make_off_policy(
    world: World, carrier: Carrier, schedule_of: Callable[[Run], EntropySchedule], config: LoopConfig
) -> Program:
    """One run of SAC, SQL or MEow as a program that `aesjax.lab.sweep` can stack.

    Order inside vector step t: act, environment step, store, residuals of the newest transitions, one gradient
    step with ``lambda_{t-1}``, then the schedule turns that step's signals into ``lambda_t``.
    """
    num = config.num_envs
    s, a = world.obs_size, world.action_size

    def init(run: Run) -> RunState:
        key = jax.random.key(run.seed)
        values, _ = world.path(run.drift, jnp.zeros(1, jnp.int32))
        obs, env = world.reset(stream(key, "reset"), num, world.params_of(values[0]))
        return RunState(
            agent=carrier.init(stream(key, "network")),
            env=env,
            obs=obs,
            replay=rb.init(config.capacity, s, a),
            schedule=schedule_of(run).init(),
            fresh=jnp.zeros((2, config.fresh_window if config.fresh else 0)),
            episode_return=jnp.zeros(num),
            diverged_at=jnp.int32(-1),
            reason=jnp.int32(0),
        )

    def collect(state: RunState, step: Array, keys: Array, params: Any):
        key_random, key_policy, key_env = keys
        action = jax.lax.cond(
            step < config.warmup,
            lambda: jax.random.uniform(key_random, (num, a), minval=-1.0, maxval=1.0),
            lambda: carrier.act(state.agent, state.obs, key_policy),
        )
        obs, env, reward, terminated, truncated, final_obs = world.step(key_env, state.env, action, params)
        batch = Transition(state.obs, action, reward, terminated.astype(jnp.float32), final_obs)
        done = jnp.maximum(terminated, truncated).astype(jnp.float32)
        total = state.episode_return + reward
        finished = {"finished": jnp.sum(done), "finished_return": jnp.sum(done * total)}
        state = state._replace(
            env=env, obs=obs, replay=rb.add(state.replay, batch, step), episode_return=total * (1.0 - done)
        )
        return state, batch, finished

    def learn(state: RunState, run: Run, step: Array, keys: Array, newest: Transition, drift_change: Array):
        key_batch, key_update = keys
        schedule = schedule_of(run)
        rows = rb.sample(state.replay, key_batch, carrier.batch_size, step, num)
        out = carrier.update(
            state.agent,
            rb.unpack(rows, s, a),
            key_update,
            step,
            entropy_weight=state.schedule.weight,
            hyper=run.hyper,
        )
        # What no schedule of the program reads is dead code, which the compiler removes.
        moved = carrier.q_value(out.state, newest.obs, newest.action) - carrier.q_value(
            state.agent, newest.obs, newest.action
        )
        signals = out.signals._replace(
            fresh_td_error=state.fresh.reshape(-1) if config.fresh else None,
            fresh_critic_drift=jnp.mean(jnp.abs(moved)),
            true_drift=drift_change,
        )
        after = schedule.update(signals, state.schedule)
        bad = jnp.stack(
            [~jnp.isfinite(x) for x in (out.metrics["critic_loss"], out.metrics["actor_loss"], after.weight)]
        )
        first = (state.diverged_at < 0) & jnp.any(bad)
        state = state._replace(
            agent=out.state,
            schedule=after,
            diverged_at=jnp.where(first, step, state.diverged_at),
            reason=jnp.where(first, jnp.sum(bad * jnp.array([1, 2, 4])), state.reason),
        )
        return state, {
            "critic_loss": out.metrics["critic_loss"],
            "proxy": after.logs.proxy,
            "at_min": after.logs.at_min,
            "at_max": after.logs.at_max,
            "updates": jnp.ones(()),
        }

    def one_step(state: RunState, run: Run, step: Array, keys: Array, values: Array, change: Array):
        state, newest, finished = collect(state, step, keys[:3], world.params_of(values))
        if config.fresh:
            error = carrier.td_error(
                state.agent, newest, keys[3], entropy_weight=state.schedule.weight, hyper=run.hyper
            )
            slot = (step % (config.fresh_window // num)) * num
            error = error.reshape(-1, num)
            fresh = jax.lax.dynamic_update_slice(state.fresh, error, (jnp.zeros_like(slot), slot))
            state = state._replace(fresh=fresh)

        def skip(state: RunState):
            zero = jnp.zeros(())
            names = ("critic_loss", "proxy", "at_min", "at_max", "updates")
            return state, dict.fromkeys(names, zero)

        # The replay is read inside the branch but does not pass through it: a branch copies what it returns.
        ring = state.replay
        state, learned = jax.lax.cond(
            step >= config.warmup,
            lambda st: _without_replay(learn(st._replace(replay=ring), run, step, keys[4:], newest, change)),
            skip,
            state._replace(replay=None),
        )
        return state._replace(replay=ring), finished | learned

    def entropy_of(state: RunState, key: Array, step: Array) -> Array:
        """The carrier's estimate on stored observations; once per chunk, as some carriers pay dearly for it."""
        key_rows, key_policy = jax.random.split(stream(jax.random.fold_in(key, step), "entropy"))
        rows = rb.sample(state.replay, key_rows, carrier.batch_size, step, num)
        return carrier.entropy(state.agent, rb.unpack(rows, s, a).obs, key_policy)

    def chunk(state: RunState, run: Run, step: Array) -> tuple[RunState, dict[str, Array]]:
        steps = step + jnp.arange(config.chunk, dtype=jnp.int32)
        key = stream(jax.random.key(run.seed), "train")
        # As raw words, because JAX's key-reuse check takes scanning over typed keys under vmap for reuse.
        words = jax.vmap(lambda step: jax.random.key_data(jax.random.split(jax.random.fold_in(key, step), 6)))(steps)
        values, changes = world.path(run.drift, steps)

        def body(state, now):
            step, words, values, change = now
            return one_step(state, run, step, jax.random.wrap_key_data(words), values, change)

        state, logs = jax.lax.scan(body, state, (steps, words, values, changes))
        logs = jax.tree.map(jnp.sum, logs)
        updates = logs.pop("updates")
        finished, finished_return = logs.pop("finished"), logs.pop("finished_return")
        schedule = state.schedule
        metrics = {name: _ratio(value, updates) for name, value in logs.items()}
        metrics |= {
            "train_return": _ratio(finished_return, finished),
            "policy_entropy": entropy_of(state, key, steps[-1]),
            "entropy_weight": schedule.weight,
            "weight_raw": schedule.logs.weight_raw,
            "proxy_smooth": schedule.logs.proxy_smooth,
            "diverged_at": state.diverged_at,
            "reason": state.reason,
        }
        return state, metrics

    def evaluate(state: RunState, run: Run, step: Array) -> dict[str, Array]:
        """Deterministic policy, drift frozen at ``step``, initial states common to all methods and patterns."""
        key = jax.random.fold_in(stream(stream(jax.random.key(run.seed), "evaluation"), world.name), step)
        values, _ = world.path(run.drift, step[None])
        params = world.params_of(values[0])

        def policy(obs: Array, key: Array) -> Array:
            del key
            return carrier.act_deterministic(state.agent, obs)

        returns = episode_returns(world, policy, params, key, config.episodes)
        return {
            "return_mean": jnp.mean(returns),
            "return_std": jnp.std(returns),
            "drift": values[0],
            "drift_value": world.displacement(values[0]),
        }

    return Program(init, chunk, evaluate)


def _without_replay(result: tuple[RunState, dict[str, Array]]) -> tuple[RunState, dict[str, Array]]:
    state, logs = result
    return state._replace(replay=None), logs


def _ratio(total: Array, count: Array) -> Array:
    """``total / count``, NaN where nothing was counted."""
    return jnp.where(count > 0, total / jnp.maximum(count, 1.0), jnp.nan)
