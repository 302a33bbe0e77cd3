"""Task ``grid``: a small world with discrete moves and an exact optimum; drift moves the goal and changes the slip."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.compiling import jit
from envs.core import Channel, EnvSpec, Step, Task

Array = jax.Array

_SIDE = 7  # cells per axis
_AXIS = np.linspace(-1.0, 1.0, _SIDE, dtype=np.float32)
CELLS = np.stack(np.meshgrid(_AXIS, _AXIS, indexing="ij"), -1).reshape(-1, 2)  # (C, 2) centres
_MOVES = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)])  # (A, 2) in cells
_PLACES = np.stack(np.divmod(np.arange(_SIDE**2), _SIDE), -1)
_ARRIVALS = np.clip(_PLACES[:, None] + _MOVES[None], 0, _SIDE - 1) @ np.array([_SIDE, 1])  # (C, A) cell after a move


class GridParams(NamedTuple):
    """Constants of the task; lengths in coordinates where the grid spans [-1, 1]^2."""

    goal: Any = np.zeros(2, np.float32)  # (2,) where the reward is 1: a drift channel
    slip: Any = np.float32(0.1)  # () probability of a random move: a drift channel
    width: Any = np.float32(0.3)  # () standard deviation of the reward's bump


PARAMS = GridParams()


class GridState(NamedTuple):
    """One episode."""

    cell: Array  # () int32
    time: Array  # () int32, steps of this episode


def cell_rewards(params: GridParams) -> Array:
    """Reward (C,) of arriving in each cell: ``exp(-|p - goal|^2 / (2 width^2))``."""
    away = CELLS - params.goal[None, :]
    return jnp.exp(-jnp.sum(away**2, -1) / (2.0 * params.width**2))


class Grid:
    """A walk on 7 x 7 cells: stay or move to one of four neighbours; observation: the cell's centre; 30 steps.

    The move is random with probability ``slip``. The goal is not observed. Episodes are truncated, never terminated.
    """

    spec = EnvSpec(obs_size=2, action_size=len(_MOVES), time_limit=30, discrete=True)

    def reset(self, key: Array, params: GridParams) -> tuple[Array, GridState]:
        """Start in any cell."""
        cell = jax.random.randint(key, (), 0, len(CELLS))
        return jnp.asarray(CELLS)[cell], GridState(cell, jnp.zeros((), jnp.int32))

    def step(self, key: Array, state: GridState, action: Array, params: GridParams) -> Step:
        """One move; ``action`` (5,) is one-hot: stay, right, left, up, down."""
        key_slip, key_move = jax.random.split(key)
        slips = jax.random.bernoulli(key_slip, params.slip)
        move = jnp.where(slips, jax.random.randint(key_move, (), 0, len(_MOVES)), jnp.argmax(action))
        cell, time = jnp.asarray(_ARRIVALS, jnp.int32)[state.cell, move], state.time + 1
        reward, never = cell_rewards(params)[cell], jnp.zeros((), bool)
        return jnp.asarray(CELLS)[cell], GridState(cell, time), reward, never, time >= self.spec.time_limit, {}


def optimal_return(values: Array) -> Array:
    """Optimal expected return (M,) under drift values (M, 3): exact dynamic programming over cells and steps."""
    return jit(jax.vmap(_optimal_return))(jnp.asarray(values, jnp.float32))


def _optimal_return(values: Array) -> Array:
    params = _drifted(PARAMS, values)
    rewards = cell_rewards(params)

    def backup(_: int, value: Array) -> Array:
        worth = (rewards + value)[_ARRIVALS]  # (C, A)
        return (1.0 - params.slip) * jnp.max(worth, -1) + params.slip * jnp.mean(worth, -1)

    return jnp.mean(jax.lax.fori_loop(0, Grid.spec.time_limit, backup, jnp.zeros(len(CELLS))))


def _drifted(params: GridParams, values: Array) -> GridParams:
    return params._replace(goal=values[:2], slip=values[2])


TASK = Task(
    name="grid",
    family="toy",
    env=Grid(),
    params=PARAMS,
    channels=(Channel("goal", -0.6, 0.6, 0.0, size=2, kind="planar"), Channel("slip", 0.0, 0.4, 0.1)),
    apply_drift=_drifted,
    description="7 x 7 grid with discrete moves and a hidden goal; the goal and the share of random moves drift",
)
