"""Drift as data: which mixture of given waypoints is in force in each round, and the soft MDPs that follow from it."""

import jax.numpy as jnp
import numpy as np

from experiments.theory.softmdp import SoftMDP

DRIFTS = ("abrupt", "linear", "periodic", "mixed")


def drift_weights(kind: str, waypoints: int, rounds: int, *, cycles: int = 4) -> np.ndarray:
    """(rounds, waypoints): each row the convex combination of waypoints that is in force in that round.

    Goals drift as ``weights @ goals``; rewards and kernels of arbitrary MDPs likewise, since convex combinations of
    kernels are kernels. The total way travelled does not depend on ``rounds``.

    Args:
      kind: "abrupt": equal stretches at each waypoint; "linear": at constant speed through all of them; "periodic":
        ``cycles`` times round the closed loop of them; "mixed": quiet at the first waypoint, all jumps evenly spread
        over the tenth of the time around the middle, then quiet at the last one.
      waypoints: static, at least 2.
      rounds: static, at least 2.
      cycles: static number of loops of "periodic".

    Raises:
      ValueError: an unknown kind, or too few waypoints, rounds or cycles.

    >>> print(drift_weights("linear", 2, 3))
    [[1.  0. ]
     [0.5 0.5]
     [0.  1. ]]
    """
    if waypoints < 2 or rounds < 2 or cycles < 1:
        given = f"{waypoints}, {rounds} and {cycles}"
        raise ValueError(f"a drift needs at least 2 waypoints, 2 rounds and 1 cycle; got {given}")
    step = np.arange(rounds)
    if kind == "abrupt":
        position = step * waypoints // rounds
    elif kind == "linear":
        position = (waypoints - 1) * step / (rounds - 1)
    elif kind == "periodic":
        position = np.mod(waypoints * cycles * step / (rounds - 1), waypoints)
    elif kind == "mixed":
        position = np.clip(1 + np.floor((step / rounds - 0.45) / 0.1 * (waypoints - 1)), 0, waypoints - 1)
    else:
        raise ValueError(f"unknown drift {kind!r}; kinds: {', '.join(DRIFTS)}")
    lower = np.floor(position).astype(int)
    share = position - lower
    eye = np.eye(waypoints)
    return (1.0 - share)[:, None] * eye[lower % waypoints] + share[:, None] * eye[(lower + 1) % waypoints]


def drift_sequence(ends: SoftMDP, kind: str, rounds: int, cycles: int = 1) -> SoftMDP:
    """T MDPs between the given ones, mixing rewards and kernels by `drift_weights`.

    Args:
      ends: N >= 2 stacked MDPs, reward (N, S, A) and so on; the first one's discount and temperature hold throughout.
      kind, rounds, cycles: see `drift_weights`.

    Returns:
      T stacked MDPs, reward (T, S, A), transition (T, S, A, S), discount (T,), temperature (T,).

    Raises:
      ValueError: for an unknown kind, or fewer than 2 ends or rounds, or fewer than 1 cycle.
    """
    if ends.reward.ndim != 3:
        raise ValueError(f"drift_sequence needs stacked MDPs, reward (N, S, A); got {ends.reward.shape}")
    weights = jnp.asarray(drift_weights(kind, ends.reward.shape[0], rounds, cycles=cycles), ends.reward.dtype)
    return SoftMDP(
        jnp.tensordot(weights, ends.reward, 1, precision="highest"),
        jnp.tensordot(weights, ends.transition, 1, precision="highest"),
        jnp.full((rounds,), ends.discount[0]),
        jnp.full((rounds,), ends.temperature[0]),
    )
