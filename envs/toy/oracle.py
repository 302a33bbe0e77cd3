"""Optimal return of task ``toy`` with known goals: finite-horizon value iteration on a grid.

The value of a next position is ``W = reward + value to go``, and the control cost is a sum over the two axes. So the
best action is found by two one-dimensional passes, ``max_a W(p + 0.1 a) - cost(a)`` along x, then along y, over actions
that move by an integer number of cells, without interpolation. Process noise is a three-point rule per axis with the
correct variance. Returns are undiscounted over the time limit, like evaluation returns.
"""

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.compiling import jit
from envs.toy.multigoal import PARAMS, MultiGoal, MultiGoalParams, goal_reward

Array = jax.Array

_NODES = 201  # per axis; cell 0.01, so off-grid goals cost less than 0.05 % of the return
_CELL = 2.0 / (_NODES - 1)
_NOISE_CELLS = 2  # the noise rule has nodes at -2, 0, +2 cells: valid for a standard deviation of up to 0.02
_HORIZON = MultiGoal.spec.time_limit
_REACH = 10  # cells moved by a full action
_LINE = np.linspace(-1.0, 1.0, _NODES, dtype=np.float32)


def _shifts(table: Array, reach: int, axis: int) -> list[Array]:
    """``table`` moved by -reach .. reach cells along ``axis``; the border repeats: positions are clipped."""
    widths = [(0, 0), (0, 0)]
    widths[axis] = (reach, reach)
    padded = jnp.pad(table, widths, mode="edge")
    return [jax.lax.slice_in_dim(padded, k, k + _NODES, axis=axis) for k in range(2 * reach + 1)]


def _backup(value: Array, reward: Array, params: MultiGoalParams) -> Array:
    """Values one step earlier, (201, 201)."""
    worth = reward + value
    side = params.process_noise**2 / (2.0 * (_NOISE_CELLS * _CELL) ** 2)
    for axis in (0, 1):
        low, *_, high = _shifts(worth, _NOISE_CELLS, axis)
        worth = (1.0 - 2.0 * side) * worth + side * (low + high)
    for axis in (0, 1):
        moved = _shifts(worth, _REACH, axis)
        costs = [params.control_cost * ((k - _REACH) / _REACH) ** 2 for k in range(2 * _REACH + 1)]
        worth = moved[_REACH]
        for table, cost in zip(moved, costs, strict=True):
            worth = jnp.maximum(worth, table - cost)
    return worth


def _reward_table(params: MultiGoalParams) -> Array:
    at = jax.vmap(jax.vmap(lambda x, y: goal_reward(jnp.stack([x, y]), params), (None, 0)), (0, None))
    return at(jnp.asarray(_LINE), jnp.asarray(_LINE))


def optimal_return(offsets: Array) -> Array:
    """Optimal expected return (M,) of an episode, with goals shifted by ``offsets`` (M, 2)."""
    return jit(_optimal_return)(jnp.asarray(offsets, jnp.float32), PARAMS)


def _optimal_return(offsets: Array, params: MultiGoalParams) -> Array:
    density = jnp.exp(-(jnp.asarray(_LINE) ** 2) / (2.0 * params.start_std**2))
    density = density / jnp.sum(density)

    def one(offset):
        shifted = params._replace(goal_offset=offset)
        reward = _reward_table(shifted)
        start = jnp.zeros((_NODES, _NODES), jnp.float32)
        value = jax.lax.fori_loop(0, _HORIZON, lambda _, v: _backup(v, reward, shifted), start)
        return density @ value @ density

    return jax.lax.map(one, offsets)
