"""Rings of the newest rows that a scan carries; a ring of residuals is the source of `Signals.fresh_td_error`."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from aesjax.types import Array


class Ring(NamedTuple):
    """Position in a ring of rows, for insertions whose size may differ between steps and runs."""

    position: Array  # () int32, the next place
    filled: Array  # () int32, places in use

    @classmethod
    def empty(cls) -> "Ring":
        """Position in a ring without rows."""
        return cls(jnp.int32(0), jnp.int32(0))


def write(ring: Ring, rows: Array, new: Array, valid: Array | None = None) -> tuple[Ring, Array]:
    """Write the ``valid`` (N,) bool rows of ``new`` (N, ...) over the oldest of ``rows`` (W, ...); N <= W."""
    size = rows.shape[0]
    valid = jnp.ones(new.shape[0], bool) if valid is None else valid
    order = jnp.cumsum(valid.astype(jnp.int32))
    place = jnp.where(valid, (ring.position + order - 1) % size, size)  # one past the end is dropped
    total = order[-1]
    ring = Ring((ring.position + total) % size, jnp.minimum(ring.filled + total, size))
    return ring, rows.at[place].set(new, mode="drop")


def spread(rows: Array, filled: Array) -> Array:
    """Repeat the first ``filled`` of ``rows`` (W, ...) evenly until all W places are used.

    Statistics of the result equal those of the filled rows, to 1 / filled.
    """
    size = rows.shape[0]
    share = jnp.maximum(filled, 1).astype(jnp.float32) / size
    at = jnp.floor((jnp.arange(size, dtype=jnp.float32) + 0.5) * share).astype(jnp.int32)
    return rows[jnp.minimum(at, jnp.maximum(filled, 1) - 1)]


class FreshState(NamedTuple):
    """A ring of residuals; a leaf of the caller's scan carry. C = critics, W = size."""

    rows: Array  # (W, C) float32, residuals at the arrival of their transitions, 0 in unused places; reward
    ring: Ring

    @property
    def td_error(self) -> Array:
        """The residuals as `Signals.fresh_td_error` takes them, (C * W,) float32; reward.

        A ring that is not full repeats its m residuals, each W / m times, rounded up or down. An empty ring is all 0,
        which is no observation to `aes_r` and `aes_c`.
        """
        return spread(self.rows, self.ring.filled).T.reshape(-1)


@dataclass(frozen=True)
class FreshResiduals:
    """Pure functions, as in `EntropySchedule`, safe under ``jit``, ``vmap`` and ``scan``; see `fresh_residuals`."""

    size: int
    critics: int = 1

    def init(self) -> FreshState:
        return FreshState(jnp.zeros((self.size, self.critics), jnp.float32), Ring.empty())

    def update(self, state: FreshState, td_error: Array, valid: Array | None = None) -> FreshState:
        """The ring with the residuals of the newest transitions; of these the ``valid`` (n,) bool, None: all."""
        size, critics, new = self.size, self.critics, jnp.asarray(td_error, jnp.float32)
        number = new.shape[-1] if new.ndim else 0
        if new.shape not in [(critics, number), *[(number,)] * (critics == 1)] or not 1 <= number <= size:
            allowed = "(n,) or (1, n)" if critics == 1 else f"({critics}, n)"
            raise ValueError(
                f"fresh_residuals: td_error must have shape {allowed} with n from 1 to {size}; got {new.shape}"
            )
        ring, rows = write(state.ring, state.rows, new.reshape(critics, number).T, valid)
        return FreshState(rows, ring)


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
    [ 1.  1. -2. -2.]
    """
    return FreshResiduals(size, critics)
