"""The off-policy run as three pure functions of one run: `init`, `chunk` (the scan between two evaluations) and
`evaluate`. Everything a run needs is in its state; the step counter comes from the host and is common to all
stacked runs, so that under `vmap` insertions stay slices and conditions stay branches. What depends on the step
alone (drift, keys) is computed for a whole chunk at once, outside the scan."""

from typing import Any

import jax
import jax.numpy as jnp

from aesjax.seeding import stream
from aesjax.types import Array, Program
from agents.common import adapting, buffer, dynamics, loop, masks
from agents.common.carrier import Carrier, Transition
from agents.common.loop import AdaptationOf, LoopConfig, Run, RunState, ScheduleOf
from envs.world import World

_BLOCK = 64  # vector steps


def make_off_policy(
    world: World,
    carrier: Carrier,
    schedule_of: ScheduleOf,
    config: LoopConfig,
    adaptation_of: AdaptationOf | None = None,
) -> Program:
    """One run of SAC, SQL or MEow as a program that `experiments.study.sweep` can stack.

    Order inside vector step t: act, environment step, store, residuals of the newest transitions, one gradient
    step with ``lambda_{t-1}`` (or several, `adapting.repeated`), then the schedule turns the last one's signals into
    ``lambda_t``, and the adaptations turn them into the levers of step t + 1. A refresh that is due waits for the end
    of a block of at most `_BLOCK` steps: under `vmap` drawing fresh networks cannot hide behind a condition.
    """
    adapting.check_adaptations(carrier, adaptation_of, config)
    num = config.num_envs
    s, a = world.obs_size, world.action_size
    model = dynamics.make(s, a, config.fresh_window) if config.model else None

    def init(run: Run) -> RunState:
        state = loop.begin(world, run, num, schedule_of, carrier.init)
        masked = world.mask(state.env) is not None
        return state._replace(
            replay=buffer.init(config.capacity, s, a, masked),
            fresh=jnp.zeros((2, config.fresh_window)) if config.fresh else None,
            fresh_ring=masks.start() if config.fresh and masked else None,
            model=None if model is None else model.init(stream(jax.random.key(run.seed), "model")),
        )

    def sample(state: RunState, key: Array, step: Array, newest: Array | None = None) -> Transition:
        return buffer.unpack(buffer.sample(state.replay, key, carrier.batch_size, step, num, newest), s, a)

    def collect(state: RunState, step: Array, keys: Array, params: Any):
        key_random, key_policy, key_env = keys
        state = state._replace(obs=world.seen(state.obs, params))

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
        total, finished = loop.finished_episodes(state.episode_return, reward, done, valid)
        replay = buffer.add(state.replay, batch, step, stored)
        return state._replace(env=env, obs=obs, replay=replay, episode_return=total), batch, stored, finished

    def track(state: RunState, run: Run, step: Array, key: Array, newest: Transition, stored: Any) -> RunState:
        """Residuals of the newest transitions at their arrival."""
        error = carrier.td_error(state.agent, newest, key, entropy_weight=state.schedule.weight, hyper=run.hyper)
        error = error.reshape(-1, num)
        if stored is None or state.fresh_ring is None:
            slot = (step % (config.fresh_window // num)) * num
            fresh = jax.lax.dynamic_update_slice(state.fresh, error, (jnp.zeros_like(slot), slot))
            return state._replace(fresh=fresh)
        ring, fresh = masks.write(state.fresh_ring, state.fresh.T, error.T, stored)
        return state._replace(fresh=fresh.T, fresh_ring=ring)

    def learn(state: RunState, run: Run, step: Array, keys: Array, newest: Transition, stored: Any, change: Array):
        if model is not None:
            known = model.observe(state.model, newest, stored)
            state = state._replace(model=model.learn(known, draw(state, keys[2], step)))
        after, out = improve(state, run, keys[:2], step)
        # The compiler removes this where no schedule of the program reads it.
        new, old = (
            carrier.q_value(
                each.agent, newest.obs, newest.action, entropy_weight=state.schedule.weight, hyper=run.hyper
            )
            for each in (after, state)
        )
        counts = None if stored is None else jnp.broadcast_to(stored[None], new.shape).astype(jnp.float32)
        fresh = state.fresh
        if state.fresh_ring is not None:
            fresh = masks.spread(fresh.T, state.fresh_ring.filled).T
        signals = schedule_of(run).measure(
            out.signals._replace(
                fresh_td_error=None if fresh is None else fresh.reshape(-1),
                fresh_critic_drift=masks.mean(jnp.abs(new - old), counts),
                model_error=None if state.model is None else state.model.error,
                true_drift=change,
                reward=masks.compact(newest.reward, stored),
            )
        )
        after, logs = tick(after, run, signals, out, step)
        return after._replace(replay=None), logs, dict(signals.measured or {}), jnp.ones(())

    def gradient_step(state: RunState, run: Run, keys: Array, step: Array):
        key_batch, key_update = keys
        return update(state, run, draw(state, key_batch, step), key_update, step)

    def one_step(state: RunState, run: Run, step: Array, words: Array, values: Array, change: Array):
        keys = jax.random.wrap_key_data(words)
        state, newest, stored, finished = collect(state, step, keys[:3], world.params_of(values))
        if config.fresh:
            state = track(state, run, step, keys[3], newest, stored)

        # The replay is read inside the branch but does not pass through it: a branch copies what it returns.
        replay = state.replay

        def learning(state: RunState):
            return learn(state._replace(replay=replay), run, step, keys[4:], newest, stored, change)

        def skip(state: RunState):
            _, *logs = jax.eval_shape(learning, state)
            return state, *jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), logs)

        state, logs, measured, learned = jax.lax.cond(
            step >= config.warmup, learning, skip, state._replace(replay=None)
        )
        return state._replace(replay=replay), (finished | logs, measured, learned)

    def steps_in_turn(state: RunState, run: Run, key: Array, *inputs: Array):
        del key  # the steps have theirs
        state, outputs = jax.lax.scan(lambda state, now: one_step(state, run, *now), state, inputs)
        return state, outputs, {}

    def look(state: RunState, key: Array, step: Array, *_: Any) -> tuple[Array, Array]:
        rows = sample(state, key, step)
        return rows.obs, rows.action

    draw, update, tick, train = sample, loop.make_update(carrier), loop.make_tick(schedule_of, config), steps_in_turn
    if adaptation_of is not None:
        draw, update, tick = adapting.windowed(draw), adapting.rated(update), adapting.adjusted(tick, adaptation_of)
    if config.coupling:
        update = adapting.coupled(update)
    improve = adapting.repeated(gradient_step, config.updates) if config.updates > 1 else gradient_step
    if config.refresh:
        block = next(n for n in range(_BLOCK, 0, -1) if config.chunk % n == 0)
        train = adapting.refreshing(train, carrier, carrier.init, look if config.recycle else None)
        train = loop.in_parts(train, block)
    if config.plasticity:
        train = adapting.measuring(train, carrier, look)

    def chunk(state: RunState, run: Run, step: Array) -> tuple[RunState, dict[str, Array]]:
        steps = step + jnp.arange(config.chunk, dtype=jnp.int32)
        key = stream(jax.random.key(run.seed), "train")
        inputs = (steps, loop.step_keys(key, steps, 7 if config.model else 6), *world.path(run.drift, steps))
        state, (logs, measured, learned), more = train(state, run, key, *inputs)
        streams = {name: jnp.where(learned > 0, value, jnp.nan) for name, value in measured.items()}
        metrics = loop.chunk_metrics(world, state, jax.tree.map(jnp.sum, logs), jnp.sum(learned), streams, config)
        # The carrier's estimate, once per chunk, as some carriers pay dearly for it.
        key_rows, key_policy = jax.random.split(stream(jax.random.fold_in(key, steps[-1]), "entropy"))
        entropy = carrier.entropy(state.agent, sample(state, key_rows, steps[-1]).obs, key_policy)
        return state, metrics | more | {"policy_entropy": entropy}

    return Program(adapting.started(init, adaptation_of, config), chunk, loop.evaluation(world, carrier, config))
