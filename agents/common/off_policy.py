"""The off-policy run as three pure functions of one run: `init`, `chunk` (the scan between two evaluations) and
`evaluate`. Everything a run needs is in its state; the step counter comes from the host and is common to all
stacked runs, so that under `vmap` insertions stay slices and conditions stay branches. What depends on the step
alone (drift, keys) is computed for a whole chunk at once, outside the scan."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.seeding import stream
from aesjax.types import Array, Program, ScheduleState
from agents.common import buffer, masks
from agents.common.adapting import adaptation_logs, check_adaptations, levers_of, plasticity_of, refreshed
from agents.common.carrier import Carrier, Transition
from agents.common.loop import (
    AdaptationOf,
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
    scaled_rates,
    step_keys,
    update_logs,
)
from envs.world import World

_BLOCK = 64  # vector steps


class RunState(NamedTuple):
    """Everything that changes during a run."""

    agent: Any
    env: Any
    obs: Array  # (N, S)
    replay: buffer.Replay
    schedule: ScheduleState
    coupling: Coupling
    fresh: Any  # (critics, W) residuals of the newest transitions at their arrival; None when not tracked
    fresh_ring: masks.Ring | None  # where they continue, in a world whose copies do not always count
    episode_return: Array  # (N,) of the training episodes under way
    health: Health
    adaptation: Any = None  # levers beyond the entropy weight and what moves them; None: no run has any


def make_off_policy(
    world: World,
    carrier: Carrier,
    schedule_of: ScheduleOf,
    config: LoopConfig,
    adaptation_of: AdaptationOf | None = None,
) -> Program:
    """One run of SAC, SQL or MEow as a program that `experiments.study.sweep` can stack.

    Order inside vector step t: act, environment step, store, residuals of the newest transitions, one gradient
    step with ``lambda_{t-1}``, then the schedule turns that step's signals into ``lambda_t``, and the adaptations turn
    them into the levers of step t + 1. A refresh that is due waits for the end of a block of at most `_BLOCK` steps:
    under `vmap` drawing fresh networks cannot hide behind a condition.
    """
    check_adaptations(carrier, adaptation_of, config)
    num = config.num_envs
    s, a = world.obs_size, world.action_size

    def init(run: Run) -> RunState:
        obs, env, key = reset_world(world, run, num)
        masked = world.mask(env) is not None
        return RunState(
            agent=carrier.init(stream(key, "network")),
            env=env,
            obs=obs,
            replay=buffer.init(config.capacity, s, a, masked),
            schedule=schedule_of(run).init(),
            coupling=Coupling.start(),
            fresh=jnp.zeros((2, config.fresh_window)) if config.fresh else None,
            fresh_ring=masks.start() if config.fresh and masked else None,
            episode_return=jnp.zeros(num),
            health=Health.good(),
            adaptation=None if adaptation_of is None else adaptation_of(run).init(),
        )

    def sample(replay: buffer.Replay, key: Array, step: Array, newest: Array | None = None) -> Array:
        return buffer.sample(replay, key, carrier.batch_size, step, num, newest)

    def collect(state: RunState, step: Array, keys: Array, params: Any):
        key_random, key_policy, key_env = keys

        def behave() -> Array:
            return carrier.act(state.agent, state.obs, key_policy)

        def explore() -> Array:
            return jax.random.uniform(key_random, (num, a), minval=-1.0, maxval=1.0)

        action = behave() if config.warm else jax.lax.cond(step < config.warmup, explore, behave)
        obs, env, reward, terminated, truncated, final_obs = world.step(key_env, state.env, action, params)
        mask = world.mask(env)
        valid, stored = (None, None) if mask is None else (mask.valid, mask.stored)
        batch = Transition(state.obs, action, reward, terminated.astype(jnp.float32), final_obs)
        batch = masks.kept(stored, batch)
        done = jnp.maximum(terminated, truncated).astype(jnp.float32)
        total, finished = finished_episodes(state.episode_return, reward, done, valid)
        replay = buffer.add(state.replay, batch, step, stored)
        return state._replace(env=env, obs=obs, replay=replay, episode_return=total), batch, stored, finished

    def learn(state: RunState, run: Run, step: Array, keys: Array, newest: Transition, stored: Any, change: Array):
        key_batch, key_update = keys
        schedule, levers = schedule_of(run), levers_of(state.adaptation)
        rows = sample(state.replay, key_batch, step, levers.window)
        hyper, coupling = run.hyper, state.coupling
        if config.coupling:
            hyper, coupling = coupling.apply(hyper, state.schedule.weight, run.coupling)
        if levers.rate is not None:
            hyper = scaled_rates(hyper, levers.rate)
        out = carrier.update(
            state.agent, buffer.unpack(rows, s, a), key_update, step, entropy_weight=state.schedule.weight, hyper=hyper
        )
        # What no schedule of the program reads is dead code, which the compiler removes.
        after, before = (
            carrier.q_value(agent, newest.obs, newest.action, entropy_weight=state.schedule.weight, hyper=hyper)
            for agent in (out.state, state.agent)
        )
        fresh = state.fresh
        if state.fresh_ring is not None:
            fresh = masks.spread(fresh.T, state.fresh_ring.filled).T
        counts = None if stored is None else jnp.broadcast_to(stored[None], after.shape).astype(jnp.float32)
        signals = schedule.measure(
            out.signals._replace(
                fresh_td_error=None if fresh is None else fresh.reshape(-1),
                fresh_critic_drift=masks.mean(jnp.abs(after - before), counts),
                true_drift=change,
                reward=masks.compact(newest.reward, stored),
            )
        )
        ticked = schedule.update(signals, state.schedule)
        health = examine(state.health, out, ticked.weight, step)
        logs = update_logs(out, ticked.logs, config) | adaptation_logs(state.adaptation)
        adaptation = None if adaptation_of is None else adaptation_of(run).update(signals, state.adaptation)
        state = state._replace(
            agent=out.state, schedule=ticked, coupling=coupling, health=health, adaptation=adaptation, replay=None
        )
        return state, logs, dict(signals.measured or {}), jnp.ones(())

    def one_step(state: RunState, run: Run, step: Array, keys: Array, values: Array, change: Array):
        state, newest, stored, finished = collect(state, step, keys[:3], world.params_of(values))
        if config.fresh:
            error = carrier.td_error(
                state.agent, newest, keys[3], entropy_weight=state.schedule.weight, hyper=run.hyper
            )
            error = error.reshape(-1, num)
            if stored is None or state.fresh_ring is None:
                slot = (step % (config.fresh_window // num)) * num
                fresh = jax.lax.dynamic_update_slice(state.fresh, error, (jnp.zeros_like(slot), slot))
                state = state._replace(fresh=fresh)
            else:
                ring, fresh = masks.write(state.fresh_ring, state.fresh.T, error.T, stored)
                state = state._replace(fresh=fresh.T, fresh_ring=ring)

        # The replay is read inside the branch but does not pass through it: a branch copies what it returns.
        ring = state.replay

        def learning(state: RunState):
            return learn(state._replace(replay=ring), run, step, keys[4:], newest, stored, change)

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
        rows = sample(state.replay, key_rows, step)
        return carrier.entropy(state.agent, buffer.unpack(rows, s, a).obs, key_policy)

    def chunk(state: RunState, run: Run, step: Array) -> tuple[RunState, dict[str, Array]]:
        steps = step + jnp.arange(config.chunk, dtype=jnp.int32)
        key = stream(jax.random.key(run.seed), "train")
        values, changes = world.path(run.drift, steps)

        def body(state, now):
            step, words, values, change = now
            return one_step(state, run, step, jax.random.wrap_key_data(words), values, change)

        def block(state, now):
            state, logs = jax.lax.scan(body, state, now)
            last, seen = jax.random.fold_in(key, now[0][-1]), None
            fresh = carrier.init(stream(last, "refresh"))
            if config.recycle:
                rows = buffer.unpack(sample(state.replay, stream(last, "recycle"), now[0][-1]), s, a)
                seen = (rows.obs, rows.action)
            agent, adaptation, done = refreshed(carrier, state.agent, fresh, state.adaptation, seen)
            return state._replace(agent=agent, adaptation=adaptation), (logs, done)

        inputs, more = (steps, step_keys(key, steps, 6), values, changes), {}
        if config.refresh:
            length = next(n for n in range(_BLOCK, 0, -1) if config.chunk % n == 0)
            inputs = jax.tree.map(lambda x: x.reshape(config.chunk // length, length, *x.shape[1:]), inputs)
            state, (outputs, done) = jax.lax.scan(block, state, inputs)
            logs, measured, learned = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), outputs)
            more = {"refreshes": jnp.sum(done)}
        else:
            state, (logs, measured, learned) = jax.lax.scan(body, state, inputs)
        streams = {name: jnp.where(learned > 0, value, jnp.nan) for name, value in measured.items()}
        metrics = chunk_metrics(world, state, jax.tree.map(jnp.sum, logs), jnp.sum(learned), streams, config)
        if config.plasticity:
            rows = sample(state.replay, stream(key, "plasticity"), steps[-1])
            seen = buffer.unpack(rows, s, a)
            more |= plasticity_of(carrier, state.agent, seen.obs, seen.action)
        return state, metrics | more | {"policy_entropy": entropy_of(state, key, steps[-1])}

    return Program(init, chunk, evaluation(world, carrier, config))
