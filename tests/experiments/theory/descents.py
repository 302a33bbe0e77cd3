"""Mirror descent against adversaries that see the iterate, and games of curved losses, on which bounds are tested."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.types import Array
from experiments.theory.games import drift
from experiments.theory.oco import Game
from experiments.theory.simplex import mirror_step


class Descent(NamedTuple):
    """A run of plain mirror descent, all that its bounds need."""

    log_x: Array  # (T + 1, K) iterates, the first is the start
    gradient: Array  # (T, K)


def descend(
    adversary: Callable[[Any, Array, Array], Array], rounds: Any, etas: Array, log_start: Array, floor: Array | float
) -> Descent:
    """Mirror descent with given steps against an adversary that sees the iterate.

    Args:
      adversary: maps (data of the round, log x_t (K,), eta_t ()) to the gradient (K,).
      rounds: pytree of data with leading axis T.
      etas: (T,) positive, in any order.
      log_start: (K,) log of the first point.
      floor: () of the truncated simplex; 0 is the full one.
    """

    def step(log_x: Array, given: tuple[Any, Array]) -> tuple[Array, tuple[Array, Array]]:
        data, eta = given
        gradient = adversary(data, log_x, eta)
        return mirror_step(log_x, gradient, eta, floor), (log_x, gradient)

    last, (points, gradients) = jax.lax.scan(step, log_start, (rounds, etas))
    return Descent(jnp.concatenate([points, last[None]]), gradients)


def march(data: tuple[Array, Array], log_x: Array, eta: Array) -> Array:
    """Adversary that walks the learner to a target in a straight line of the dual space.

    The one-step inequality becomes tight as the number of steps grows. The gradient is centred, which moves no
    iterate but makes its largest entry its half-range, so that bounds in either norm meet the same loss. ``data`` is
    (log target (K,), steps left including this one ()).
    """
    log_target, left = data
    way = log_x - log_target
    return (way - (jnp.max(way) + jnp.min(way)) / 2.0) / (left * eta)


def drifting_utilities(
    rng: np.random.Generator, arms: int, rounds: int, legs: int, *, curvature: float = 0.1, floor: float = 1e-3
) -> Game:
    """Curved losses ``-<q_t, x> + curvature * Psi(x)``, q_t moving in straight lines through ``legs + 1`` points.

    The points are uniform in the unit cube; the comparator is the minimiser ``softmax(q_t / curvature)``, mapped
    into the truncated simplex. The proxy is its true drift.
    """
    anchors = rng.uniform(0.0, 1.0, (legs + 1, arms))
    place = np.linspace(0.0, legs, rounds)
    low = np.minimum(place.astype(int), max(legs - 1, 0))
    part = (place - low)[:, None]
    q = (1.0 - part) * anchors[low] + part * anchors[np.minimum(low + 1, legs)]
    logits = q / curvature
    best = np.exp(logits - logits.max(-1, keepdims=True))
    comparator = floor + (1.0 - arms * floor) * best / best.sum(-1, keepdims=True)
    return Game(-q, comparator, drift(comparator), curvature=np.float64(curvature))
