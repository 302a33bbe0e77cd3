"""A one-step bandit whose maximum-entropy optimum is known, and helpers to stack runs of it."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest


@dataclass(frozen=True)
class Bandit:
    """A world of one step with the reward ``-5 (a - 0.3)^2``; the optimum is N(0.3, lam / 10)."""

    name: str = "bandit"
    obs_size: int = 1
    action_size: int = 1
    time_limit: int = 1

    def path(self, drift: Any, steps: jax.Array):
        return jnp.zeros((steps.shape[0], 1)), jnp.zeros(steps.shape[0])

    def displacement(self, values: jax.Array):
        return jnp.sum(values)

    def notice(self, drift: Any, steps: jax.Array):
        return None

    def params_of(self, values: jax.Array, notice: Any = None):
        return ()

    def seen(self, obs: jax.Array, params: Any):
        return obs

    def reset(self, key: jax.Array, num: int, params: Any):
        return jnp.zeros((num, 1)), ()

    def random_actions(self, key: jax.Array, num: int):
        return jax.random.uniform(key, (num, self.action_size), minval=-1.0, maxval=1.0)

    def faults(self, state: Any):
        return None

    def mask(self, state: Any):
        return None

    def for_evaluation(self):
        return self

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any):
        obs = jnp.zeros((action.shape[0], 1))
        reward = -5.0 * (action[:, 0] - 0.3) ** 2
        done = jnp.ones(action.shape[0], bool)
        return obs, (), reward, done, ~done, obs


@pytest.fixture
def bandit() -> Bandit:
    return Bandit()
