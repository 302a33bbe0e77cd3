"""Online convex optimisation on the simplex: games, learners as pure pairs of functions, and dynamic regret.

A *game* is data: losses ``f_t(x) = <loss_t, x> + curvature * Psi(x)``, a comparator for every round and the drift
proxy that a schedule may read. A *learner* maps its state and what a round revealed to its next state; the learners
are in `experiments.theory.learners`. `play` runs one learner on one game as a scan; vmap it over games and
hyper-parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.types import Array
from experiments.theory.simplex import negative_entropy


class Game(NamedTuple):
    """One sequence of losses with its comparators; K arms, T rounds."""

    loss: Array | np.ndarray  # (T, K) linear part of the losses
    comparator: Array | np.ndarray  # (T, K) points u_t
    proxy: Array | np.ndarray  # (T,) drift proxy of the round, as the schedules see it
    curvature: Array | np.ndarray | float = 0.0  # () weight of the negative entropy that is part of f_t itself
    observed: Array | np.ndarray | float = 0.0  # () 1: the proxy is the learner's own loss instead of `proxy`
    adversarial: Array | np.ndarray | float = 0.0  # () 1: loss 1 on the learner's heaviest arm replaces `loss`


class Feedback(NamedTuple):
    """Information that a round reveals after the learner has played."""

    gradient: Array  # (K,) of f_t at the point played
    proxy: Array  # () drift proxy, >= 0
    drift: Array  # () true drift ||u_t - u_{t-1}||_1; only reference learners may read it


class Learner(NamedTuple):
    """A learner on K arms as pure functions, safe under jit, vmap and scan."""

    init: Callable[[int], Any]  # K -> state
    point: Callable[[Any], Array]  # state -> (K,) log of the point it plays
    update: Callable[[Any, Feedback], tuple[Any, Array]]  # state, feedback -> state, () entropy weight used


class Played(NamedTuple):
    """A finished game."""

    regret: Array  # (T,) f_t(x_t) - f_t(u_t)
    weight: Array  # (T,) entropy weight of the step after round t; 0 for learners without one
    loss: Array  # (T, K) linear losses as they were (an adversary chooses them during the game)


def path(comparator: Array | np.ndarray) -> Array:
    """(T, K) -> (T,): comparator drift ``xi_t = ||u_t - u_{t-1}||_1``, ``xi_1 = 0``; lies in [0, 2]."""
    steps = jnp.sum(jnp.abs(jnp.diff(comparator, axis=0)), axis=-1)
    return jnp.concatenate([jnp.zeros((1,), steps.dtype), steps])


def play(learner: Learner, game: Game) -> Played:
    """The learner's dynamic regret on the game, AES paper Eq. (dyn-regret-def), round by round."""
    losses, comparators = jnp.asarray(game.loss), jnp.asarray(game.comparator)
    size = losses.shape[-1]
    curvature = jnp.asarray(game.curvature, losses.dtype)

    def round_(state: Any, given: tuple[Array, Array, Array, Array]) -> tuple[Any, Played]:
        loss, comparator, proxy, drift = given
        log_x = learner.point(state)
        x = jnp.exp(log_x)
        worst = jax.nn.one_hot(jnp.argmax(log_x), size, dtype=loss.dtype)
        loss = jnp.where(game.adversarial, worst, loss)
        value = jnp.sum(loss * x) + curvature * negative_entropy(x)
        gradient = loss + curvature * (1.0 + jnp.maximum(log_x, jnp.finfo(log_x.dtype).min))
        best = jnp.sum(loss * comparator) + curvature * negative_entropy(comparator)
        proxy = jnp.where(game.observed, jnp.maximum(value, 0.0), proxy)
        state, weight = learner.update(state, Feedback(gradient, proxy, drift))
        return state, Played(value - best, weight, loss)

    given = (losses, comparators, jnp.asarray(game.proxy), path(comparators))
    return jax.lax.scan(round_, learner.init(size), given)[1]
