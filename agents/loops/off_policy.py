"""The off-policy run as three pure functions of one run: `init`, `chunk` (the scan between two evaluations) and
`evaluate`. Everything a run needs is in its state; the step counter comes from the host and is common to all
stacked runs, so that under `vmap` insertions stay slices and conditions stay branches. What depends on the step
alone (drift, keys) is computed for a whole chunk at once, outside the scan."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.seeding import stream
from aesjax.types import Array, Program, ScheduleState
from agents import buffer
from agents.loops.common import (
    Coupling,
    Health,
    LoopConfig,
    Run,
    ScheduleOf,
    chunk_metrics,
    evaluation,
    examine,
    finished_episodes,
    reset_world,
    step_keys,
    update_logs,
)
from agents.types import Carrier, Transition, World

__all__ = ["RunState", "make_off_policy"]


class RunState(NamedTuple):
    """Everything that changes during a run."""

    agent: Any
    env: Any
    obs: Array  # (N, S)
    replay: buffer.Replay
    schedule: ScheduleState
    coupling: Coupling
    fresh: Any  # (critics, W) residuals of the newest transitions at their arrival; None when not tracked
    episode_return: Array  # (N,) of the training episodes under way
    health: Health


def make_off_policy(world: World, carrier: Carrier, schedule_of: ScheduleOf, config: LoopConfig) -> Program:
    """One run of SAC, SQL or MEow as a program that `aesjax.lab.sweep` can stack.

    Order inside vector step t: act, environment step, store, residuals of the newest transitions, one gradient
    step with ``lambda_{t-1}``, then the schedule turns that step's signals into ``lambda_t``.
    """
    num = config.num_envs
    s, a = world.obs_size, world.action_size

    def init(run: Run) -> RunState:
        obs, env, key = reset_world(world, run, num)
        return RunState(
            agent=carrier.init(stream(key, "network")),
            env=env,
            obs=obs,
            replay=buffer.init(config.capacity, s, a),
            schedule=schedule_of(run).init(),
            coupling=Coupling.start(),
            fresh=jnp.zeros((2, config.fresh_window)) if config.fresh else None,
            episode_return=jnp.zeros(num),
            health=Health.good(),
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
        total, finished = finished_episodes(state.episode_return, reward, done)
        state = state._replace(env=env, obs=obs, replay=buffer.add(state.replay, batch, step), episode_return=total)
        return state, batch, finished

    def learn(state: RunState, run: Run, step: Array, keys: Array, newest: Transition, drift_change: Array):
        key_batch, key_update = keys
        schedule = schedule_of(run)
        rows = buffer.sample(state.replay, key_batch, carrier.batch_size, step, num)
        hyper, coupling = run.hyper, state.coupling
        if config.coupling:
            hyper, coupling = coupling.apply(hyper, state.schedule.weight, run.coupling)
        out = carrier.update(
            state.agent, buffer.unpack(rows, s, a), key_update, step, entropy_weight=state.schedule.weight, hyper=hyper
        )
        # What no schedule of the program reads is dead code, which the compiler removes.
        after, before = (
            carrier.q_value(agent, newest.obs, newest.action, entropy_weight=state.schedule.weight, hyper=hyper)
            for agent in (out.state, state.agent)
        )
        signals = schedule.measure(
            out.signals._replace(
                fresh_td_error=None if state.fresh is None else state.fresh.reshape(-1),
                fresh_critic_drift=jnp.mean(jnp.abs(after - before)),
                true_drift=drift_change,
            )
        )
        ticked = schedule.update(signals, state.schedule)
        health = examine(state.health, out, ticked.weight, step)
        state = state._replace(agent=out.state, schedule=ticked, coupling=coupling, health=health, replay=None)
        return state, update_logs(out, ticked.logs), dict(signals.measured or {}), jnp.ones(())

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

        # The replay is read inside the branch but does not pass through it: a branch copies what it returns.
        ring = state.replay

        def learning(state: RunState):
            return learn(state._replace(replay=ring), run, step, keys[4:], newest, change)

        def skip(state: RunState):
            _, *logs = jax.eval_shape(learning, state)
            return state, *jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), logs)

        state, logs, measured, learned = jax.lax.cond(
            step >= config.warmup, learning, skip, state._replace(replay=None)
        )
        return state._replace(replay=ring), (finished | logs, measured, learned)

    def entropy_of(state: RunState, key: Array, step: Array) -> Array:
        """The carrier's estimate on stored observations; once per chunk, as some carriers pay dearly for it."""
        key_rows, key_policy = jax.random.split(stream(jax.random.fold_in(key, step), "entropy"))
        rows = buffer.sample(state.replay, key_rows, carrier.batch_size, step, num)
        return carrier.entropy(state.agent, buffer.unpack(rows, s, a).obs, key_policy)

    def chunk(state: RunState, run: Run, step: Array) -> tuple[RunState, dict[str, Array]]:
        steps = step + jnp.arange(config.chunk, dtype=jnp.int32)
        key = stream(jax.random.key(run.seed), "train")
        values, changes = world.path(run.drift, steps)

        def body(state, now):
            step, words, values, change = now
            return one_step(state, run, step, jax.random.wrap_key_data(words), values, change)

        state, (logs, measured, learned) = jax.lax.scan(body, state, (steps, step_keys(key, steps, 6), values, changes))
        streams = {name: jnp.where(learned > 0, value, jnp.nan) for name, value in measured.items()}
        metrics = chunk_metrics(world, state, jax.tree.map(jnp.sum, logs), jnp.sum(learned), streams, config)
        return state, metrics | {"policy_entropy": entropy_of(state, key, steps[-1])}

    return Program(init, chunk, evaluation(world, carrier, config))
