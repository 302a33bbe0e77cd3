"""The on-policy run as three pure functions of one run, like `off_policy`: a chunk is a scan over rollouts, a
rollout a scan over vector steps followed by epochs of minibatches."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from aesjax.seeding import stream
from aesjax.types import Array, Program, Signals
from agents.common import adapting, dynamics, loop, masks
from agents.common.carrier import OnPolicyCarrier, Rollout
from agents.common.loop import AdaptationOf, LoopConfig, Run, RunState, ScheduleOf
from envs.world import World


def minibatches(key: Array, size: int, epochs: int, count: int) -> Array:
    """Row numbers (epochs, count, size // count): in every epoch each row once, in an order of its own.

    One true shuffle per rollout. The order of an epoch is that shuffle read with a stride prime to ``size``, drawn
    for every epoch: a shuffle of its own would be a sort, and XLA's sort on a CPU costs more than a minibatch.
    """
    largest = min(size, 2**32 // size)  # stride times position must fit in 32 bits
    strides = [n for n in range(1, largest) if math.gcd(n, size) == 1] or [1]
    strides = jnp.array(strides[:: max(1, len(strides) // 1024)], jnp.uint32)
    key_order, key_stride = jax.random.split(key)
    order = jax.random.permutation(key_order, size)
    stride = strides[jax.random.bits(key_stride, (epochs,), jnp.uint32) % strides.shape[0]]
    position = (jnp.arange(size, dtype=jnp.uint32)[None] * stride[:, None]) % size
    return order[position.astype(jnp.int32)].reshape(epochs, count, size // count)


def modelled(model: dynamics.Model, state: Any, rollout: Rollout, order: Array) -> dynamics.ModelState:
    """The model after a rollout: its error on it first, then a gradient step on every minibatch of ``order``."""
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout)

    def step(state: dynamics.ModelState, index: Array) -> tuple[dynamics.ModelState, None]:
        batch = jax.tree.map(lambda x: x[index], rows)
        return model.learn(state, batch, batch.valid), None

    known = model.observe(state, rows, rows.valid)
    return jax.lax.scan(step, known, order.reshape(-1, order.shape[-1]))[0]


def make_on_policy(
    world: World,
    carrier: OnPolicyCarrier,
    schedule_of: ScheduleOf,
    config: LoopConfig,
    adaptation_of: AdaptationOf | None = None,
) -> Program:
    """One run of PPO as a program that `experiments.study.sweep` can stack.

    Order: T vector steps with the current policy, residuals of the whole rollout and from them the proxy, then
    epochs x minibatches gradient steps, each with ``lambda_{t-1}`` and followed by one tick of the schedule and of the
    adaptations. A refresh that is due waits for the end of the rollout's last epoch.
    """
    adapting.check_adaptations(carrier, adaptation_of, config)
    num, length = config.num_envs, carrier.rollout
    size = num * length
    if config.chunk % length:
        raise ValueError(f"{config.chunk} vector steps between evaluations must be a multiple of the rollout {length}")
    if size % carrier.minibatches:
        raise ValueError(f"a rollout of {size} transitions cannot be cut into {carrier.minibatches} equal minibatches")
    ticks = carrier.epochs * carrier.minibatches
    model = dynamics.make(world.obs_size, world.action_size, size) if config.model else None

    def init(run: Run) -> RunState:
        state = loop.begin(world, run, num, schedule_of, lambda key: carrier.init(key, num))
        return state if model is None else state._replace(model=model.init(stream(jax.random.key(run.seed), "model")))

    def collect(state: RunState, run: Run, words: Array, values: Array):
        key_policy, key_env = jax.random.wrap_key_data(words)
        mask, params = world.mask(state.env), world.params_of(values)
        state = state._replace(obs=world.seen(state.obs, params))
        agent, seen = carrier.observe(state.agent, state.obs, *(() if mask is None else (mask.live,)))
        action = carrier.act(agent, seen, key_policy)
        obs, env, reward, terminated, truncated, final_obs = world.step(
            key_env, state.env, jnp.clip(action, -1.0, 1.0), params
        )
        terminated, truncated = terminated.astype(jnp.float32), truncated.astype(jnp.float32)
        done = jnp.maximum(terminated, truncated)
        mask = world.mask(env)
        valid = None if mask is None else mask.valid
        agent, scaled = carrier.scale_reward(agent, reward, done, run.hyper, *(() if valid is None else (valid,)))
        total, finished = loop.finished_episodes(state.episode_return, reward, done, valid)
        row = Rollout(seen, action, scaled, terminated, truncated, carrier.view(agent, final_obs))
        if valid is not None:  # a row that does not count ends what went before
            row = masks.kept(valid, row)._replace(truncated=jnp.where(valid, truncated, 1.0), valid=valid)
        return state._replace(agent=agent, env=env, obs=obs, episode_return=total), (row, finished)

    def epochs(state: RunState, run: Run, key: Array, steps: Array, rollout: Rollout, drift_change: Array):
        schedule, step = schedule_of(run), steps[-1]
        key_order = stream(jax.random.fold_in(key, step), "minibatches")
        order = minibatches(key_order, size, carrier.epochs, carrier.minibatches)
        if model is not None:
            state = state._replace(model=modelled(model, state.model, rollout, order))
        error = None if state.model is None else state.model.error
        agent, rows, residuals = carrier.prepare(state.agent, rollout, run.hyper)
        residuals = masks.compact(residuals, None if rollout.valid is None else rollout.valid.reshape(-1))
        state = state._replace(agent=agent)
        # The rollout is the newest data there is, so both sources of a proxy are the same residuals. They are long:
        # measured here, once, and not at every tick.
        whole = schedule.measure(Signals(td_error=residuals, fresh_td_error=residuals, model_error=error))

        def minibatch(state: RunState, index: Array):
            state, out = update(state, run, jax.tree.map(lambda x: x[index], rows))
            signals = schedule.measure(
                out.signals._replace(
                    td_error=residuals,
                    fresh_td_error=residuals,
                    model_error=error,
                    measured=whole.measured,
                    true_drift=drift_change / ticks,  # spread over the ticks of the rollout in which it happened
                )
            )
            state, logs = tick(state, run, signals, out, step)
            return state, (logs, dict(signals.measured or {}), out.metrics)

        def epoch(state: RunState, indices: Array):
            state, (logs, measured, metrics) = jax.lax.scan(minibatch, state, indices)
            agent = carrier.end_epoch(state.agent, jax.tree.map(jnp.mean, metrics), run.hyper)
            return state._replace(agent=agent), (logs, measured)

        state, (logs, measured) = jax.lax.scan(epoch, state, order)
        return state, (jax.tree.map(jnp.sum, logs), jax.tree.map(jnp.ravel, measured)), {}

    def look(state: RunState, key: Array, step: Array, rollout: Rollout, *_: Any) -> tuple[Array, Array]:
        del state, key, step
        return jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), (rollout.obs, rollout.action))

    update, tick, learn = loop.make_update(carrier), loop.make_tick(schedule_of, config), epochs
    if adaptation_of is not None:
        update, tick = adapting.rated(update), adapting.adjusted(tick, adaptation_of)
    if config.coupling:
        update = adapting.coupled(update)
    if config.refresh:
        init_agent, seen = lambda key: carrier.init(key, num), look if config.recycle else None
        learn = adapting.refreshing(learn, carrier, init_agent, seen)
    if config.plasticity:
        learn = adapting.measuring(learn, carrier, look)

    def one_rollout(state: RunState, run: Run, key: Array, steps: Array, words: Array, values: Array, changes: Array):
        state, (rollout, finished) = jax.lax.scan(lambda state, at: collect(state, run, *at), state, (words, values))
        state, (logs, measured), more = learn(state, run, key, steps, rollout, jnp.sum(changes))
        return state, (jax.tree.map(jnp.sum, finished) | logs, measured), more

    def chunk(state: RunState, run: Run, step: Array) -> tuple[RunState, dict[str, Array]]:
        steps = step + jnp.arange(config.chunk, dtype=jnp.int32)
        key = stream(jax.random.key(run.seed), "train")
        inputs = (steps, loop.step_keys(key, steps, 2), *world.path(run.drift, steps))
        state, (logs, measured), more = loop.in_parts(one_rollout, length)(state, run, key, *inputs)
        updates = jnp.float32(ticks * (config.chunk // length))
        metrics = loop.chunk_metrics(world, state, jax.tree.map(jnp.sum, logs), updates, measured, config)
        key_entropy = stream(jax.random.fold_in(key, steps[-1]), "entropy")
        entropy = carrier.entropy(state.agent, state.obs, key_entropy)
        return state, metrics | more | {"policy_entropy": entropy}

    return Program(adapting.started(init, adaptation_of, config), chunk, loop.evaluation(world, carrier, config))
