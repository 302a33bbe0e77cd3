"""Our tasks with the auto-reset of Isaac Gym, in which the step after the end of an episode is invalid."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from envs.core import Env, Mask, Step, sound

_Array = jax.Array


class PhantomState(NamedTuple):
    """One copy; batched along a leading axis."""

    inner: Any  # the task's own state
    pending: _Array  # () bool, the next step is a phantom
    valid: _Array  # () bool, the newest step took place


class Phantom:
    """One environment that resets in the step after the end of its episode.

    ``reset="after"``: that step moves the terminal state, then resets, and observes the start (Ant, Humanoid, Anymal,
    FrankaCabinet). ``"before"``: it resets, then makes a first step without action (Ingenuity, AllegroHand).
    """

    def __init__(self, env: Env, reset: Literal["after", "before"] = "after") -> None:
        self.env, self.before = env, reset == "before"
        self.spec = env.spec

    def reset(self, key: _Array, params: Any) -> tuple[_Array, PhantomState]:
        obs, inner = self.env.reset(key, params)
        return obs, PhantomState(inner, jnp.bool_(False), jnp.bool_(True))

    def autoreset(self, key_step: _Array, key_reset: _Array, state: PhantomState, action: _Array, params: Any) -> Step:
        """One step; in a phantom step ``action`` is ignored and both flags are False."""
        ended = state.pending

        def chosen(fresh: Any, old: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(ended, a, b), fresh, old)

        fresh = self.env.reset(key_reset, params)
        action = jnp.where(ended, jnp.zeros_like(action), action)
        inner = chosen(fresh[1], state.inner) if self.before else state.inner
        obs, inner, reward, terminated, truncated, info = sound(
            self.env, self.env.step, key_step, inner, action, params
        )
        if not self.before:
            obs, inner = chosen(fresh, (obs, inner))
            terminated, truncated = terminated & ~ended, truncated & ~ended
        after = PhantomState(inner, (terminated | truncated) & ~ended, ~ended)
        return obs, after, reward, terminated, truncated, info | {"final_observation": obs}

    step = None  # it resets internally

    def mask(self, state: PhantomState) -> Mask:
        """Valid copies, see `envs.core.Mask`."""
        return Mask(state.valid, state.valid, ~state.pending)


def seeded_step(env: Phantom, seed: _Array, clock: _Array, state: PhantomState, action: _Array, params: Any) -> Step:
    """Step ``clock`` of N copies, with random numbers from ``seed`` alone."""
    words = jax.random.bits(jax.random.fold_in(jax.random.key(seed), clock), (action.shape[0], 2, 2), jnp.uint32)

    def one(words: _Array, state: PhantomState, action: _Array) -> Step:
        key_step, key_reset = jax.random.wrap_key_data(words)
        return env.autoreset(key_step, key_reset, state, action, params)

    return jax.vmap(one)(words, state, action)
