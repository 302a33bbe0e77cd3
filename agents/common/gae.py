"""Generalised advantage estimation (Schulman et al. 2016) with termination and truncation kept apart."""

import chex
import jax
import jax.numpy as jnp

from aesjax.types import Array


def td_errors(reward: Array, terminated: Array, value: Array, next_value: Array, gamma: Array | float) -> Array:
    """``delta_t = r_t + gamma (1 - term_t) V(s'_t) - V(s_t)``, all (T, N); ``next_value`` before any auto-reset."""
    chex.assert_rank(reward, 2)
    chex.assert_equal_shape([reward, terminated, value, next_value])  # (T,) beside (T, N) would broadcast unnoticed
    return reward + gamma * (1.0 - terminated) * next_value - value


def advantages(delta: Array, terminated: Array, truncated: Array, decay: Array | float) -> Array:
    """``A_t = delta_t + decay (1 - term_t)(1 - trunc_t) A_{t+1}``, (T, N), with ``decay = gamma * lambda``.

    A truncated step has its bootstrap in delta already and cuts the trace; a terminated one has neither.
    """
    chex.assert_rank(delta, 2)
    chex.assert_equal_shape([delta, terminated, truncated])
    keep = decay * (1.0 - terminated) * (1.0 - truncated)

    def step(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, keep = now
        here = delta + keep * after
        return here, here

    return jax.lax.scan(step, jnp.zeros(delta.shape[1:]), (delta, keep), reverse=True)[1]
