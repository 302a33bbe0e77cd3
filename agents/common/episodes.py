"""Complete episodes in a frozen environment: evaluation of a policy, and the return of random actions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from aesjax.types import Array
from agents.common.masks import kept
from envs.world import World

Policy = Callable[[Array, Array], Array]  # obs (N, S), key -> action (N, A)


def episode_returns(world: World, policy: Policy, params: Any, key: Array, episodes: int) -> Array:
    """Undiscounted returns (episodes,), one episode each; ``params`` are constant during the episode."""
    world = world.for_evaluation()
    key_reset, key_run = jax.random.split(key)
    obs, state = world.reset(key_reset, episodes, params)

    def going_on(carry):
        *_, alive, index = carry
        return (index < world.time_limit) & jnp.any(alive > 0)

    def step(carry):
        obs, state, total, alive, index = carry
        key_act, key_env = jax.random.split(jax.random.fold_in(key_run, index))
        out = world.step(key_env, state, policy(obs, key_act), params)
        obs, state, reward, terminated, truncated, _ = out
        mask = world.mask(state)
        if mask is not None:
            reward, terminated, truncated = kept(mask.valid, (reward, terminated, truncated))
        total = total + jnp.where(alive > 0, reward, 0.0)
        alive = alive * (1.0 - jnp.maximum(terminated, truncated).astype(jnp.float32))
        return obs, state, total, alive, index + 1

    # A while loop, because episodes of agents that fall end long before the time limit.
    start = (obs, state, jnp.zeros(episodes), jnp.ones(episodes), jnp.int32(0))
    return jax.lax.while_loop(going_on, step, start)[2]


def random_returns(world: World, params: Any, key: Array, episodes: int) -> Array:
    """Returns (episodes,) of uniformly random actions; their mean is the floor of the floor-corrected metrics."""

    def policy(obs: Array, key: Array) -> Array:
        return world.random_actions(key, obs.shape[0])

    return episode_returns(world, policy, params, key, episodes)
