"""A gridworld whose goal moves, as soft MDPs, and the paths along which goals (or whole MDPs) drift.

Cells are numbered row by row; a goal is a pair (row, column) of real numbers and pays on the cells around it in
proportion to how near they are, so that a goal may glide from cell to cell.
"""

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.types import Array
from experiments.theory.softmdp import SoftMDP, occupancy

MOVES = np.array([[0, 0], [-1, 0], [0, 1], [1, 0], [0, -1]])  # (A, 2) row and column: stay, up, right, down, left


def goal_weights(goal: Array, *, size: int = 5) -> Array:
    """(2,) -> (S,): share of the goal that lies on each cell, by bilinear interpolation; sums to one on the grid.

    >>> print(goal_weights(jnp.array([0.0, 0.25]), size=2))
    [0.75 0.25 0.   0.  ]
    """
    goal = jnp.asarray(goal, jnp.result_type(float))
    row, column = (jnp.maximum(0.0, 1.0 - jnp.abs(jnp.arange(size) - goal[i])) for i in (0, 1))
    return jnp.reshape(row[:, None] * column[None, :], (size * size,))


def gridworld(
    goal: Array,
    *,
    size: int = 5,
    slip: Array | float = 0.1,
    discount: Array | float = 0.95,
    temperature: Array | float = 0.05,
) -> SoftMDP:
    """The MDP of one goal position: S = size**2 cells, the five actions `MOVES`, reward 1 for each arrival at the goal.

    The walls stop a move. The world goes on at the goal, so that the best return is about ``1 / (1 - discount)``.

    Args:
      goal: (2,) row and column in [0, size - 1], real; may be traced.
      size: static number of rows and columns.
      slip: () probability that a uniformly drawn one of the four real moves replaces the action; its drift is a
        drift of the kernel. May be traced, as the following.
      discount: () in [0, 1).
      temperature: () mu > 0; reward per nat.

    Raises:
      ValueError: a grid of fewer than two rows.

    >>> mdp = gridworld(jnp.array([2.0, 2.0]), size=3)
    >>> mdp.reward.shape, mdp.transition.shape
    ((9, 5), (9, 5, 9))
    """
    if size < 2:
        raise ValueError(f"a gridworld needs at least 2 rows; got size {size}")
    dtype = jnp.result_type(float)
    cells = np.stack(np.divmod(np.arange(size * size), size), -1)  # (S, 2)
    target = np.clip(cells[:, None] + MOVES[None], 0, size - 1)  # (S, A, 2)
    exact = jax.nn.one_hot(target[..., 0] * size + target[..., 1], size * size, dtype=dtype)
    slip = jnp.asarray(slip, dtype)
    kernel = (1.0 - slip) * exact + slip * jnp.mean(exact[:, 1:], axis=1, keepdims=True)
    reward = jnp.sum(kernel * goal_weights(goal, size=size)[None, None, :], axis=-1)
    return SoftMDP(reward, kernel, jnp.asarray(discount, dtype), jnp.asarray(temperature, dtype))


def start_at(cell: tuple[int, int], *, size: int = 5, uniform: Array | float = 0.0) -> Array:
    """(S,) start distribution: the given cell, mixed with a uniform start of probability ``uniform``.

    Raises:
      ValueError: a cell outside the grid.
    """
    if not all(0 <= i < size for i in cell):
        raise ValueError(f"the start cell must lie in a grid of {size} rows and columns; got {cell}")
    place = jax.nn.one_hot(cell[0] * size + cell[1], size * size, dtype=jnp.result_type(float))
    return (1.0 - uniform) * place + uniform / (size * size)


def visitation(mdp: SoftMDP, log_policy: Array, start: Array, goal: Array, *, size: int = 5) -> Array:
    """() share of the discounted visits that a policy pays to a goal it may know nothing of.

    Args:
      mdp: the gridworld that the policy acts in.
      log_policy: (S, A).
      start: (S,) distribution of the first cell.
      goal: (2,) the goal asked about.
      size: static number of rows.
    """
    return jnp.sum(occupancy(mdp, log_policy, start) * goal_weights(goal, size=size))


def arrows(log_policy: Array, *, size: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """(S, A) -> two (size, size) arrays: mean step to the right and mean step *down* of the policy, for drawing."""
    step = np.exp(np.asarray(log_policy)) @ MOVES
    return step[:, 1].reshape(size, size), step[:, 0].reshape(size, size)
