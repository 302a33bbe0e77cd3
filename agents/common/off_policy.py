"""The off-policy run: act, step, store, learn, schedule.

The step counter comes from the host and is common to all vmapped runs, so that insertions stay slices and conditions
stay branches. Drift and keys depend on the step alone and are computed once per training interval, outside the scan.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aesjax.schedules import fresh_residuals
from aesjax.schedules.fresh import FreshResiduals
from aesjax.seeding import stream
from aesjax.types import Array, Signals
from agents.common import adapting, buffer, loop, masks
from agents.common.carrier import Carrier, Transition, UpdateOut
from agents.common.loop import Loop, Run, RunState

_BLOCK = 64  # vector steps
TRACKED = frozenset({"fresh_td_error", "fresh_critic_drift"})  # signals of the newest transitions


class Arrived(NamedTuple):
    """The transitions of one vector step."""

    rows: Transition  # (N,), zeros where not stored
    stored: Array | None  # (N,) bool; None: all


@dataclass(frozen=True)
class OffPolicy(Loop):
    """One run of SAC, CrossQ, SQL or MEow as pure functions, to be batched by `vmap`.

    In vector step t the gradient steps use ``lambda_{t-1}``; from the signals of the last one the schedule computes
    ``lambda_t`` and the adaptations the levers of step t + 1. A due refresh is applied before the next block of at
    most `_BLOCK` steps, because under `vmap` new networks are drawn even if they are not used.
    """

    carrier: Carrier

    @property
    def ring(self) -> FreshResiduals:
        """The ring of the residuals of the newest transitions."""
        return fresh_residuals(self.config.newest, critics=2)

    def init(self, run: Run) -> RunState:
        """State before the first step; ValueError if the window of newest transitions does not fit the environments."""
        num, newest, waiting = self.config.num_envs, self.config.newest, self.config.warmup * self.config.num_envs
        tracked = bool(TRACKED & run.needs.keys())
        if tracked and newest % num:
            raise ValueError(f"window of newest transitions {newest} must be a multiple of num_envs {num}")
        if tracked and waiting < newest:
            raise ValueError(
                f"warm-up of {waiting} environment steps must cover the {newest} newest transitions "
                "that the fresh proxy reads"
            )
        state = self.begin(run, self.carrier.init, newest)
        masked = self.world.mask(state.env) is not None
        return state._replace(
            replay=buffer.init(self.config.capacity, self.world.obs_size, self.world.action_size, masked),
            newest=self.ring.init() if tracked else None,
        )

    def train(self, state: RunState, run: Run, step: Array) -> tuple[RunState, dict[str, Array]]:
        """Run one training interval from vector step ``step`` on, and return its metrics."""
        interval, refreshes = self.config.interval, adapting.refreshes(state)
        steps = step + jnp.arange(interval, dtype=jnp.int32)
        key = stream(jax.random.key(run.seed), "train")
        words = loop.step_keys(key, steps, 6 if state.model is None else 7)
        inputs = (steps, words, *self.world.path(run.drift, steps), self.world.notice(run.drift, steps))
        if refreshes:
            length = next(n for n in range(_BLOCK, 0, -1) if interval % n == 0)
            state, (logs, measured, learned), more = loop.in_parts(self.block, length)(state, run, key, *inputs)
        else:
            state, (logs, measured, learned), more = self.block(state, run, key, *inputs)
        streams = {name: jnp.where(learned > 0, value, jnp.nan) for name, value in measured.items()}
        reward = loop.mean_of(logs.pop("reward"))
        metrics = self.metrics(state, jax.tree.map(jnp.sum, logs), jnp.sum(learned), streams, reward)
        # The carrier's estimate, once per interval, because it is expensive for some carriers.
        key_rows, key_policy = jax.random.split(stream(jax.random.fold_in(key, steps[-1]), "entropy"))
        entropy = self.carrier.entropy(state.agent, self.sample(state, key_rows, steps[-1]).obs, key_policy)
        return state, metrics | more | {"policy_entropy": entropy}

    def block(self, state: RunState, run: Run, key: Array, steps: Array, *inputs: Any) -> Any:
        """A due refresh of parameters, then vector steps ``steps`` (n,) in order.

        An evaluation, which ends a block, thus sees the agent that has acted and not a fresh one.
        """
        first = jax.random.fold_in(key, steps[0])
        state, refreshes = adapting.refresh(state, self.carrier, self.carrier.init, first)
        state, outputs = jax.lax.scan(lambda state, now: self.step(state, run, *now), state, (steps, *inputs))
        return state, outputs, refreshes

    def step(
        self, state: RunState, run: Run, step: Array, words: Array, values: Array, change: Array, notice: Any
    ) -> Any:
        """One vector step: act, step, store, learn, schedule."""
        keys, params = jax.random.wrap_key_data(words), self.world.params_of(values, notice)
        key_random, key_policy, key_env = keys[:3]
        state = state._replace(obs=self.world.seen(state.obs, params))
        action = self.act(state, step, key_random, key_policy)
        state, arrived, finished = self.store(state, step, action, key_env, params)
        if state.newest is not None:
            state = self.track(state, run, keys[3], arrived)

        # The replay is read inside the branch but not returned, because a branch copies its results.
        replay = state.replay

        def learning(state: RunState) -> Any:
            return self.learn(state._replace(replay=replay), run, step, keys[4:], arrived, change)

        def skip(state: RunState) -> Any:
            _, *logs = jax.eval_shape(learning, state)
            return state, *jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), logs)

        state, logs, measured, learned = jax.lax.cond(
            step >= self.config.warmup, learning, skip, state._replace(replay=None)
        )
        return state._replace(replay=replay), (finished | logs, measured, learned)

    def act(self, state: RunState, step: Array, key_random: Array, key_policy: Array) -> Array:
        """Actions (N, A) of the policy, or uniform ones before learning starts."""
        config = self.config
        random = config.warmup if config.random is None else config.random

        def behave() -> Array:
            return self.carrier.act(state.agent, state.obs, key_policy)

        def explore() -> Array:
            return self.world.random_actions(key_random, config.num_envs)

        return jax.lax.cond(step < random, explore, behave) if random else behave()

    def store(
        self, state: RunState, step: Array, action: Array, key: Array, params: Any
    ) -> tuple[RunState, Arrived, dict[str, Array]]:
        """Step the environments and store the transitions; counts and sums of finished episodes."""
        obs, env, reward, terminated, truncated, final_obs = self.world.step(key, state.env, action, params)
        mask = self.world.mask(env)
        valid, stored = (None, None) if mask is None else (mask.valid, mask.stored)
        rows = Transition(state.obs, action, reward, terminated.astype(jnp.float32), final_obs)
        rows = masks.kept(stored, rows)
        done = jnp.maximum(terminated, truncated).astype(jnp.float32)
        total, finished = loop.finished_episodes(state.episode_return, reward, done, valid)
        replay = buffer.add(state.replay, rows, step, stored)
        state = state._replace(env=env, obs=obs, replay=replay, episode_return=total)
        return state, Arrived(rows, stored), finished

    def track(self, state: RunState, run: Run, key: Array, arrived: Arrived) -> RunState:
        """Store the residuals of the newest transitions at their arrival."""
        weight = state.schedule.weight
        error = self.carrier.td_error(state.agent, arrived.rows, key, entropy_weight=weight, hyper=run.hyper)
        error = error.reshape(-1, self.config.num_envs)
        return state._replace(newest=self.ring.update(state.newest, error, arrived.stored))

    def learn(self, state: RunState, run: Run, step: Array, keys: Array, arrived: Arrived, change: Array) -> Any:
        """Gradient steps, then the schedule and the adaptations; the replay is read but not returned."""
        model = self.model(run, self.config.newest)
        if model is not None:
            known = model.observe(state.model, arrived.rows, arrived.stored)
            state = state._replace(model=model.learn(known, self.batch(state, keys[2], step)))
        after, out = adapting.repeated(self.gradient_step, state, run, keys[:2], step)
        signals = self.signals(state, after, run, out, arrived, change)
        after, logs = self.tick(after, run, signals, out, step)
        return after._replace(replay=None), logs, dict(signals.measured or {}), jnp.ones(())

    def gradient_step(self, state: RunState, run: Run, keys: Array, step: Array) -> tuple[RunState, UpdateOut]:
        """One gradient step on a new batch."""
        key_batch, key_update = keys
        return self.update(state, run, self.batch(state, key_batch, step), key_update, step)

    def signals(
        self, before: RunState, after: RunState, run: Run, out: UpdateOut, arrived: Arrived, change: Array
    ) -> Signals:
        """Signals of an update, with the measured proxies of the program."""
        rows, stored = arrived
        # The compiler removes this where no schedule of the program reads it.
        new, old = (
            self.carrier.q_value(
                each.agent, rows.obs, rows.action, entropy_weight=before.schedule.weight, hyper=run.hyper
            )
            for each in (after, before)
        )
        counts = None if stored is None else jnp.broadcast_to(stored[None], new.shape).astype(jnp.float32)
        return self.schedule_of(run).measure(
            out.signals._replace(
                fresh_td_error=None if before.newest is None else before.newest.td_error,
                fresh_critic_drift=masks.mean(jnp.abs(new - old), counts),
                model_error=None if before.model is None else before.model.error,
                true_drift=change,
                reward=masks.compact(rows.reward, stored),
                online_reward=masks.mean(rows.reward, None if stored is None else stored.astype(jnp.float32)),
            )
        )

    def batch(self, state: RunState, key: Array, step: Array) -> Transition:
        """Update batch, drawn from newer transitions if the adaptations require it."""
        levers = adapting.levers_of(state)
        return self.sample(state, key, step, levers.window, levers.recency)

    def sample(self, state: RunState, key: Array, step: Array, *newest: Array | None) -> Transition:
        """Transitions (B,), uniform over the replay or as ``newest``, further arguments of `buffer.sample`, weighs."""
        rows = buffer.sample(state.replay, key, self.carrier.config.batch_size, step, self.config.num_envs, *newest)
        return buffer.unpack(rows, self.world.obs_size, self.world.action_size)
