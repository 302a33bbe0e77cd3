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

    def rollout(state: Any, actions: _Array) -> _Array:
        def step(state: Any, action: _Array) -> tuple[Any, _Array]:
            _, state, reward, *_ = env.step(key, state, action, params)
            return state, reward

        return jnp.sum(jax.lax.scan(step, state, actions)[1])

    def refine(state: Any, plan: _Array, key: _Array) -> tuple[_Array, None]:
        noise = _SPREAD * jax.random.normal(key, (_SAMPLES, _HORIZON, size))
        plans = jnp.clip(plan[None] + noise.at[0].set(0.0), -1.0, 1.0)
        gains = jax.vmap(rollout, (None, 0))(state, plans)
        weights = jax.nn.softmax(gains / (_TEMPERATURE * jnp.std(gains) + 1e-6))
        return jnp.einsum("s,sha->ha", weights, plans), None

    def episode(key: _Array) -> _Array:
        start, key = jax.random.split(key)

        def step(carry: tuple[Any, _Array], key: _Array) -> tuple[tuple[Any, _Array], _Array]:
            state, plan = carry
            plan, _ = jax.lax.scan(partial(refine, state), plan, jax.random.split(key, _ROUNDS))
            _, state, reward, *_ = env.step(key, state, plan[0], params)
            return (state, jnp.concatenate([plan[1:], jnp.zeros((1, size))])), reward

        begin = env.reset(start, params)[1], jnp.zeros((_HORIZON, size))
        return jnp.sum(jax.lax.scan(step, begin, jax.random.split(key, env.spec.time_limit))[1])

    return jax.jit(jax.vmap(episode))(jax.random.split(key, episodes))
