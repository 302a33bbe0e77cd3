"""A strong reference for small tasks with known dynamics: model-predictive path integral control, true parameters.

Not an optimum: a lower bound on it. Williams et al. 2017, "Information theoretic MPC for model-based reinforcement
learning", without its cost of control and with a temperature in standard deviations of the sampled returns.
"""

from functools import partial

import jax
import jax.numpy as jnp

_SAMPLES, _HORIZON, _ROUNDS, _SPREAD, _TEMPERATURE = 256, 25, 3, 0.5, 0.2


def planned_returns(task, values, key):
    """Returns (n,) of one episode of the planner under each of frozen drift ``values`` (n, D); without noise."""
    env, size = task.env, task.env.spec.action_size
    start, key = jax.random.split(key)

    def rollout(params, state, actions):
        def step(state, action):
            _, state, reward, *_ = env.step(jax.random.key(0), state, action, params)
            return state, reward

        return jnp.sum(jax.lax.scan(step, state, actions)[1])

    def refine(params, state, plan, number):
        noise = _SPREAD * jax.random.normal(jax.random.fold_in(key, number), (_SAMPLES, _HORIZON, size))
        plans = jnp.clip(plan[None] + noise.at[0].set(0.0), -1.0, 1.0)
        gains = jax.vmap(rollout, (None, None, 0))(params, state, plans)
        weights = jax.nn.softmax(gains / (_TEMPERATURE * jnp.std(gains) + 1e-6))
        return jnp.einsum("s,sha->ha", weights, plans), None

    def episode(values):
        params = task.apply_drift(task.params, values)

        def step(carry, time):
            state, plan = carry
            plan, _ = jax.lax.scan(partial(refine, params, state), plan, _ROUNDS * time + jnp.arange(_ROUNDS))
            _, state, reward, *_ = env.step(jax.random.key(0), state, plan[0], params)
            return (state, jnp.concatenate([plan[1:], jnp.zeros((1, size))])), reward

        _, state = env.reset(start, params)
        carry = state, jnp.zeros((_HORIZON, size))
        return jnp.sum(jax.lax.scan(step, carry, jnp.arange(env.spec.time_limit))[1])

    return jax.jit(jax.vmap(episode))(jnp.asarray(values, jnp.float32))
