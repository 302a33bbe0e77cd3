"""The on-policy run: act, step, store, learn, schedule.

A training interval is a scan over rollouts; a rollout is a scan over vector steps, followed by epochs of minibatches.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from aesjax.seeding import stream
from aesjax.types import Array, Signals
from agents.common import adapting, dynamics, loop, masks
from agents.common.carrier import OnPolicyCarrier, Rollout
from agents.common.loop import Loop, Run, RunState


def minibatches(key: Array, size: int, epochs: int, count: int) -> Array:
    """Row numbers (epochs, count, size // count): every epoch has each row once, in its own order.

    There is one true shuffle per rollout, which each epoch reads with a randomly drawn stride prime to ``size``. A
    shuffle per epoch would be a sort, and XLA's sort on a CPU costs more than a minibatch.
    """
    largest = min(size, 2**32 // size)  # stride times position must fit in 32 bits
    strides = [n for n in range(1, largest) if math.gcd(n, size) == 1] or [1]
    strides = jnp.array(strides[:: max(1, len(strides) // 1024)], jnp.uint32)
    key_order, key_stride = jax.random.split(key)
    order = jax.random.permutation(key_order, size)
    stride = strides[jax.random.bits(key_stride, (epochs,), jnp.uint32) % strides.shape[0]]
    position = (jnp.arange(size, dtype=jnp.uint32)[None] * stride[:, None]) % size
    return order[position.astype(jnp.int32)].reshape(epochs, count, size // count)


@dataclass(frozen=True)
class OnPolicy(Loop):
    """One run of PPO as pure functions, to be batched by `vmap`.

    T vector steps, residuals and proxy of the rollout, then epochs x minibatches gradient steps, each followed by one
    update of schedule and adaptations. A due refresh is applied before the next rollout.
    """

    carrier: OnPolicyCarrier

    def __post_init__(self) -> None:
        interval, length, count = self.config.interval, self.carrier.config.rollout, self.carrier.config.minibatches
        if interval % length:
            raise ValueError(f"{interval} vector steps between evaluations must be a multiple of the rollout {length}")
        if self.rows % count:
            raise ValueError(f"a rollout of {self.rows} transitions cannot be cut into {count} equal minibatches")
        if self.rows == count and getattr(self.carrier.config, "normalise_advantage", False):
            sizes = f"rollout={length} (it divides the interval {interval}) x num_envs={self.config.num_envs}"
            raise ValueError(f"normalised advantages need 2 rows per minibatch; got {sizes} / minibatches={count}")

    @property
    def rows(self) -> int:
        return self.config.num_envs * self.carrier.config.rollout

    def init(self, run: Run) -> RunState:
        """State before the first step."""
        return self.begin(run, self.new_agent, self.rows)

    def new_agent(self, key: Array) -> Any:
        return self.carrier.init(key, self.config.num_envs)

    def train(self, state: RunState, run: Run, step: Array) -> tuple[RunState, dict[str, Array]]:
        """Run one training interval from vector step ``step`` on, and return its metrics."""
        config, steps = self.carrier.config, step + jnp.arange(self.config.interval, dtype=jnp.int32)
        key = stream(jax.random.key(run.seed), "train")
        values, changes = self.world.path(run.drift, steps)
        words, notice = loop.step_keys(key, steps, 2), self.world.notice(run.drift, steps)
        inputs = steps, changes, words, values, notice
        state, (logs, measured), more = loop.in_parts(self.rollout, config.rollout)(state, run, key, *inputs)
        updates = jnp.float32(config.epochs * config.minibatches * (self.config.interval // config.rollout))
        reward = loop.mean_of(logs.pop("reward")) / config.rollout
        metrics = self.metrics(state, jax.tree.map(jnp.sum, logs), updates, measured, reward)
        key_entropy = stream(jax.random.fold_in(key, steps[-1]), "entropy")
        entropy = self.carrier.entropy(state.agent, state.obs, key_entropy)
        return state, metrics | more | {"policy_entropy": entropy}

    def rollout(self, state: RunState, run: Run, key: Array, steps: Array, changes: Array, *inputs: Any) -> Any:
        """Apply a due refresh of parameters, collect one rollout and learn from it."""
        first = jax.random.fold_in(key, steps[0])
        state, more = adapting.refresh(state, self.carrier, self.new_agent, first)
        state, (rollout, finished) = jax.lax.scan(lambda state, at: self.step(state, run, *at), state, inputs)
        reward, valid = (jnp.mean(finished.get(name, 1.0)) for name in ("reward", "valid"))
        known = {"true_drift": jnp.sum(changes), "online_reward": reward / jnp.maximum(valid, 1.0 / self.rows)}
        state, (logs, measured) = self.learn(state, run, key, steps[-1], rollout, known)
        return state, (jax.tree.map(jnp.sum, finished) | logs, measured), more

    def step(self, state: RunState, run: Run, words: Array, values: Array, notice: Any) -> Any:
        """One vector step: act, step, store."""
        key_policy, key_env = jax.random.wrap_key_data(words)
        mask, params = self.world.mask(state.env), self.world.params_of(values, notice)
        state = state._replace(obs=self.world.seen(state.obs, params))
        agent, seen = self.carrier.observe(state.agent, state.obs, None if mask is None else mask.live)
        action = self.carrier.act(agent, seen, key_policy)
        obs, env, reward, terminated, truncated, final_obs = self.world.step(
            key_env, state.env, jnp.clip(action, -1.0, 1.0), params
        )
        terminated, truncated = terminated.astype(jnp.float32), truncated.astype(jnp.float32)
        done = jnp.maximum(terminated, truncated)
        mask = self.world.mask(env)
        valid = None if mask is None else mask.valid
        agent, scaled = self.carrier.scale_reward(agent, reward, done, run.hyper, valid)
        total, finished = loop.finished_episodes(state.episode_return, reward, done, valid)
        row = Rollout(seen, action, scaled, terminated, truncated, self.carrier.view(agent, final_obs))
        if valid is not None:  # an invalid row ends the episode
            row = masks.kept(valid, row)._replace(truncated=jnp.where(valid, truncated, 1.0), valid=valid)
        return state._replace(agent=agent, env=env, obs=obs, episode_return=total), (row, finished)

    def learn(
        self, state: RunState, run: Run, key: Array, step: Array, rollout: Rollout, known: dict[str, Array]
    ) -> Any:
        """Run all epochs on one rollout; the schedule and the adaptations advance after every minibatch.

        Args:
          known: signals () of the rollout by field: ``true_drift``, the sum of its changes, and ``online_reward``.
        """
        schedule, carrier, config = self.schedule_of(run), self.carrier, self.carrier.config
        key_order = stream(jax.random.fold_in(key, step), "minibatches")
        order = minibatches(key_order, self.rows, config.epochs, config.minibatches)
        model = self.model(run, self.rows)
        if model is not None:
            state = state._replace(model=modelled(model, state.model, rollout, order))
        agent, rows, residuals = carrier.prepare(state.agent, rollout, run.hyper)
        residuals = masks.compact(residuals, None if rollout.valid is None else rollout.valid.reshape(-1))
        state = state._replace(agent=agent)
        # The rollout is the newest data, so both sources of a proxy are the same residuals. They are long:
        # measured here, once, and not at every tick.
        error = None if state.model is None else state.model.error
        residual = {"td_error": residuals, "fresh_td_error": residuals, "model_error": error}
        measured = schedule.measure(Signals(**residual)).measured
        # A change is spread over the ticks of the rollout in which it happened.
        known = known | residual | {"true_drift": known["true_drift"] / (config.epochs * config.minibatches)}

        def minibatch(state: RunState, index: Array) -> Any:
            state, out = self.update(state, run, jax.tree.map(lambda x: x[index], rows))
            signals = schedule.measure(out.signals._replace(**known, measured=measured))
            state, logs = self.tick(state, run, signals, out, step)
            return state, (logs, dict(signals.measured or {}), out.metrics)

        def epoch(state: RunState, indices: Array) -> Any:
            state, (logs, measured, metrics) = jax.lax.scan(minibatch, state, indices)
            agent = carrier.end_epoch(state.agent, jax.tree.map(jnp.mean, metrics), run.hyper)
            return state._replace(agent=agent), (logs, measured)

        state, (logs, measured) = jax.lax.scan(epoch, state, order)
        return state, (jax.tree.map(jnp.sum, logs), jax.tree.map(jnp.ravel, measured))


def modelled(model: dynamics.Model, state: Any, rollout: Rollout, order: Array) -> dynamics.ModelState:
    """Model after a rollout: its error on the rollout first, then a gradient step per minibatch of ``order``."""
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout)

    def step(state: dynamics.ModelState, index: Array) -> tuple[dynamics.ModelState, None]:
        batch = jax.tree.map(lambda x: x[index], rows)
        return model.learn(state, batch, batch.valid), None

    known = model.observe(state, rows, rows.valid)
    return jax.lax.scan(step, known, order.reshape(-1, order.shape[-1]))[0]
