"""The residuals of the newest transitions, in a ring that an agent carries: the source of `Signals.fresh_td_error`."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from aesjax.types import Array


class FreshState(NamedTuple):
    """A ring of residuals; a leaf of the caller's scan carry. C = critics, W = size."""

    rows: Array  # (C, W) float32, residuals at the arrival of their transitions, 0 in unused places; reward
    position: Array  # () int32, the place of the next residual
    filled: Array  # () int32, places in use

    @property
    def td_error(self) -> Array:
        """The residuals as `Signals.fresh_td_error` takes them, (C * W,) float32; reward.

        A ring that is not full repeats its m residuals, each W / m times, rounded up or down. An empty ring is all 0,
        which is no observation to `aes_r` and `aes_c`.
        """
        size = self.rows.shape[-1]
        return self.rows[:, jnp.arange(size) % jnp.maximum(self.filled, 1)].reshape(-1)


@dataclass(frozen=True)
class FreshResiduals:
    """Pure functions, as in `EntropySchedule`, safe under ``jit``, ``vmap`` and ``scan``; see `fresh_residuals`."""

    size: int
    critics: int = 1

    def init(self) -> FreshState:
        return FreshState(jnp.zeros((self.critics, self.size), jnp.float32), jnp.int32(0), jnp.int32(0))

    def update(self, state: FreshState, td_error: Array) -> FreshState:
        """The ring with the residuals of the newest transitions."""
        size, critics, new = self.size, self.critics, jnp.asarray(td_error, jnp.float32)
        number = new.shape[-1] if new.ndim else 0
        if new.shape not in [(critics, number), *[(number,)] * (critics == 1)] or not 1 <= number <= size:
            allowed = "(n,) or (1, n)" if critics == 1 else f"({critics}, n)"
            raise ValueError(
                f"fresh_residuals: td_error must have shape {allowed} with n from 1 to {size}; got {new.shape}"
            )
        places = (state.position + jnp.arange(number)) % size
        return FreshState(
            rows=state.rows.at[:, places].set(new.reshape(critics, number)),
            position=(state.position + number) % size,
            filled=jnp.minimum(state.filled + number, size),
        )


def fresh_residuals(size: int, critics: int = 1) -> FreshResiduals:
    """A ring of the residuals of the newest transitions, for `aes_r`, `aes_c` and every proxy with source "fresh".

    ``state = update(state, td_error)`` writes the residuals of the n <= size transitions that have just arrived over
    the oldest ones, (n,) or (critics, n) reward, before a gradient step has used them. ``state.td_error`` is the value
    of `Signals.fresh_td_error`.

    Args:
      size: static number of transitions; 128 in this package's agents.
      critics: static number of residuals per transition, 2 for twin critics.

    Raises:
      ValueError: from ``update``, another shape of ``td_error``.

    >>> ring = fresh_residuals(4)
    >>> state = ring.update(ring.init(), jnp.array([1.0, -2.0]))
    >>> print(state.td_error)
    [ 1. -2.  1. -2.]
    """
    return FreshResiduals(size, critics)
