"""Uniform replay as a ring of packed rows: one insertion and one gather per step."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from aesjax.schedules.fresh import Ring, write
from aesjax.types import Array
from agents.common.carrier import Transition


class Replay(NamedTuple):
    """Ring of the newest ``capacity`` transitions.

    The write position is not stored: it follows from the step, which is common to all stacked runs, so that an
    insertion stays one dynamic slice under ``vmap`` instead of a scatter.
    """

    rows: Array  # (capacity, 2S + A + 2) float32: obs, action, next_obs, reward, terminated
    ring: Ring | None = None  # stored after all where some transitions are left out


def init(capacity: int, obs_size: int, action_size: int, masked: bool = False) -> Replay:
    """Empty ring for ``capacity`` transitions; ``masked`` if `add` leaves some out."""
    rows = jnp.zeros((capacity, 2 * obs_size + action_size + 2), jnp.float32)
    return Replay(rows, Ring.empty() if masked else None)


def pack(batch: Transition) -> Array:
    """Pack (N,) transitions into (N, 2S + A + 2) rows."""
    chex.assert_equal_shape([batch.obs, batch.next_obs])
    chex.assert_equal_shape([batch.reward, batch.terminated])
    chex.assert_rank([batch.obs, batch.action, batch.reward], [2, 2, 1])
    return jnp.concatenate(
        [batch.obs, batch.action, batch.next_obs, batch.reward[:, None], batch.terminated[:, None]], -1
    )


def unpack(rows: Array, obs_size: int, action_size: int) -> Transition:
    """Inverse of `pack`."""
    s, a = obs_size, action_size
    return Transition(
        obs=rows[:, :s],
        action=rows[:, s : s + a],
        next_obs=rows[:, s + a : 2 * s + a],
        reward=rows[:, -2],
        terminated=rows[:, -1],
    )


def add(replay: Replay, batch: Transition, step: Array, stored: Array | None = None) -> Replay:
    """Write the ``stored`` (N,) transitions of a vector step over the oldest ones; None: all."""
    if replay.ring is not None and stored is not None:
        ring, rows = write(replay.ring, replay.rows, pack(batch), stored)
        return Replay(rows, ring)
    num, capacity = batch.reward.shape[0], replay.rows.shape[0]
    # Slot index first: step * num would overflow int32 at a few hundred thousand steps of many environments.
    position = (step % (capacity // num)) * num
    return Replay(jax.lax.dynamic_update_slice(replay.rows, pack(batch), (position, jnp.zeros_like(position))))


def sample(
    replay: Replay,
    key: Array,
    batch_size: int,
    step: Array,
    num_envs: int,
    newest: Array | None = None,
    recency: Array | None = None,
) -> Array:
    """Sample ``batch_size`` packed rows, with replacement, from the transitions stored after ``step``.

    Args:
      newest: () >= 1, only so many of the most recent transitions are drawn; inf draws the same rows as None.
      recency: () > 0, a transition has the weight ``exp(-age / recency)``; inf or None: all have the same.
    """
    capacity = replay.rows.shape[0]
    filled = jnp.minimum(step + 1, capacity // num_envs) * num_envs
    end = (step % (capacity // num_envs) + 1) * num_envs  # after the newest row
    if replay.ring is not None:
        filled, end = jnp.maximum(replay.ring.filled, 1), replay.ring.position
    filled = filled.astype(jnp.uint32)
    # One draw of 32 bits where `randint` takes three; its bias, filled / 2^32, is below 1e-3 for a million rows.
    draws = jax.random.bits(key, (batch_size,), jnp.uint32)
    if newest is None and recency is None:
        return replay.rows[draws % filled]
    end, count, first = end.astype(jnp.uint32), filled, jnp.uint32(0)
    if newest is not None:
        narrow = newest < filled.astype(jnp.float32)
        count = jnp.where(narrow, newest, 1.0).astype(jnp.uint32)
        first = jnp.where(narrow, end + filled - count, 0)
        count = jnp.where(narrow, count, filled)
    place = first + draws % count
    if recency is not None:
        place = jnp.where(jnp.isinf(recency), place, end + filled - 1 - geometric_ages(draws, recency, count))
    return replay.rows[place % filled]


def geometric_ages(draws: Array, scale: Array, count: Array) -> Array:
    """Ages 0 to ``count - 1`` with probabilities proportional to ``exp(-age / scale)``, by the inverse of their sum.

    Args:
      draws: (B,) uint32, random bits; scale: () > 0; count: () uint32.
    """
    share = (draws >> 8).astype(jnp.float32) / 2.0**24
    scale = jnp.where(jnp.isinf(scale), 1.0, scale)
    ages = -scale * jnp.log1p(share * jnp.expm1(-count.astype(jnp.float32) / scale))
    return jnp.minimum(ages.astype(jnp.uint32), count - 1)


def effective_size(scale: Array, count: Array) -> Array:
    """Exponential of the entropy of `geometric_ages` of () ``scale`` and float32 ``count``; of inf it is ``count``."""
    finite = jnp.where(jnp.isinf(scale), 1.0, scale)
    newest = jnp.expm1(-1.0 / finite) / jnp.expm1(-count / finite)
    mean_age = 1.0 / jnp.expm1(1.0 / finite) - count / jnp.expm1(count / finite)
    return jnp.where(jnp.isinf(scale), count, jnp.exp(mean_age / finite) / newest)
