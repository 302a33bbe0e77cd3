"""A strong reference for small tasks with known dynamics: model-predictive path integral control, true parameters.

Not an optimum: a lower bound on it. Williams et al. 2017, "Information theoretic MPC for model-based reinforcement
learning", without its cost of control and with a temperature in standard deviations of the sampled returns.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from envs.core import Task

_Array = jax.Array
_SAMPLES, _HORIZON, _ROUNDS, _SPREAD, _TEMPERATURE = 256, 25, 3, 0.5, 0.2


def planned_returns(task: Task, values: Any, key: _Array, episodes: int = 4) -> _Array:
    """Returns (episodes,) of the planner under frozen drift ``values`` (D,); for tasks without noise."""
    env, size = task.env, task.env.spec.action_size
    params = task.apply_drift(task.params, jnp.asarray(values, jnp.float32))
    start, key = jax.random.split(key)

    def rollout(state: Any, actions: _Array) -> _Array:
        def step(state: Any, action: _Array) -> tuple[Any, _Array]:
            _, state, reward, *_ = env.step(jax.random.key(0), state, action, params)
            return state, reward

        return jnp.sum(jax.lax.scan(step, state, actions)[1])

    def refine(state: Any, plan: _Array, number: _Array) -> tuple[_Array, None]:
        noise = _SPREAD * jax.random.normal(jax.random.fold_in(key, number), (_SAMPLES, _HORIZON, size))
        plans = jnp.clip(plan[None] + noise.at[0].set(0.0), -1.0, 1.0)
        gains = jax.vmap(rollout, (None, 0))(state, plans)
        weights = jax.nn.softmax(gains / (_TEMPERATURE * jnp.std(gains) + 1e-6))
        return jnp.einsum("s,sha->ha", weights, plans), None

    def episode(number: _Array) -> _Array:
        def step(carry: tuple[Any, _Array], time: _Array) -> tuple[tuple[Any, _Array], _Array]:
            state, plan = carry
            rounds = _ROUNDS * (env.spec.time_limit * number + time) + jnp.arange(_ROUNDS)
            plan, _ = jax.lax.scan(partial(refine, state), plan, rounds)
            _, state, reward, *_ = env.step(jax.random.key(0), state, plan[0], params)
            return (state, jnp.concatenate([plan[1:], jnp.zeros((1, size))])), reward

        _, state = env.reset(jax.random.fold_in(start, number), params)
        carry = state, jnp.zeros((_HORIZON, size))
        return jnp.sum(jax.lax.scan(step, carry, jnp.arange(env.spec.time_limit))[1])

    return jax.jit(jax.vmap(episode))(jnp.arange(episodes))
