"""Online learning on the simplex under drift: games, entropy mirror descent under a schedule, dynamic regret.

A game is data: linear losses ``f_t(x) = <loss_t, x>``, a comparator for every round and the drift proxy that a
schedule reads. Games are drawn with NumPy, so that all methods meet equal losses; `play` is one scan and may be
vmapped over games and hyper-parameters.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax.schedules import AnySchedule, Schedule
from aesjax.schedules.accumulated import aes_d
from aesjax.schedules.rule import read_signal
from aesjax.types import Array, Signals
from experiments.theory.simplex import mirror_step

_GAP, _NOISE = 0.25, 0.35  # of the best arm's mean loss below the others'; half-width of the losses' noise


class Game(NamedTuple):
    """One sequence of losses with its comparators; K arms, T rounds."""

    loss: Array | np.ndarray  # (T, K)
    comparator: Array | np.ndarray  # (T, K) points u_t
    proxy: Array | np.ndarray  # (T,) drift proxy of the round, as the schedules see it


class Played(NamedTuple):
    """A finished game."""

    regret: Array  # (T,) f_t(x_t) - f_t(u_t)
    weight: Array  # (T,) entropy weight of the step after round t
    log_x: Array  # (T, K) logarithm of the points played


def drift_proxy(signals: Signals) -> Array:
    """The proxy that reads ``Signals.true_drift``, which contains the game's proxy; () float32."""
    return read_signal("drift_proxy", signals, "true_drift")


def per_round_oracle(*, beta: float = 0.0, **rule: Any) -> Schedule:
    """``clip(kappa * sqrt(xi_t))``: the paper's per-round oracle, Eq. (lambda-star), as a schedule.

    It is `aes_d` with a memory of one round and no prior; ``rule`` are kappa, lambda_min and lambda_max.
    """
    return aes_d(drift_proxy, 1.0, window=1.0, prior=0.0, beta=beta, **rule)


def path(comparator: Any) -> Any:
    """(T, K) -> (T,): comparator drift ``xi_t = ||u_t - u_{t-1}||_1``, ``xi_1 = 0``; lies in [0, 2].

    An array of NumPy stays one, in its precision.
    """
    xp = np if isinstance(comparator, np.ndarray) else jnp
    return xp.sum(xp.abs(xp.diff(comparator, axis=0, prepend=comparator[:1])), axis=-1)


def play(
    schedule: AnySchedule, game: Game, c: Array | float, floor: Array | float, *, entropy: Array | float = 1.0
) -> Played:
    """Dynamic regret of entropy mirror descent on ``f_t + entropy * lam_t * Psi`` with steps ``eta_t = c * lam_t``.

    AES paper Section 3 and Eq. (dyn-regret-def), from the uniform point. Weight t uses the proxy of round t, as the
    theorems need.

    Args:
      schedule: gives ``lam_t``; any of `aesjax.schedules`, the objects that drive the deep agents, on `drift_proxy`.
      game: losses (T, K), comparators and proxies.
      c: () step per weight; stable for ``c * lam**2 < 2``, without oscillation for at most 1.
      floor: () of the truncated simplex.
      entropy: () 0 leaves the entropy term out, at equal steps.
    """
    losses, comparators = jnp.asarray(game.loss), jnp.asarray(game.comparator)
    size = losses.shape[-1]

    def round_(state: tuple, given: tuple[Array, Array, Array]) -> tuple[tuple, Played]:
        (log_x, inner), (loss, comparator, proxy) = state, given
        x = jnp.exp(log_x)
        inner = schedule.update(Signals(true_drift=proxy.astype(jnp.float32)), inner)
        weight = inner.weight.astype(log_x.dtype)
        log_next = mirror_step(log_x, loss + entropy * weight * log_x, c * weight, floor)
        return (log_next, inner), Played(jnp.sum(loss * (x - comparator)), weight, log_x)

    start = (jnp.full(size, -jnp.log(float(size))), schedule.init())
    return jax.lax.scan(round_, start, (losses, comparators, jnp.asarray(game.proxy)))[1]


def switching(rng: np.random.Generator, arms: int, rounds: int, switches: int, *, floor: float = 1e-3) -> Game:
    """Losses ``0.5 + U(-0.35, 0.35)`` with one better arm, whose mean is 0.25 lower and which switches.

    Args:
      switches: distinct rounds, never the first, in which the best arm becomes another one.
      floor: of the truncated simplex; comparators are its vertices.

    Raises:
      ValueError: more switches than rounds after the first.
    """
    if not 0 <= switches < rounds:
        raise ValueError(f"switches must lie between 0 and {rounds - 1} in {rounds} rounds; got {switches}")
    times = np.sort(rng.choice(np.arange(1, rounds), switches, replace=False))
    jumps, first = rng.integers(1, arms, switches), rng.integers(arms)
    walk = (first + np.concatenate([[0], np.cumsum(jumps)])) % arms
    best = walk[np.searchsorted(times, np.arange(rounds), side="right")]
    loss = 0.5 + rng.uniform(-_NOISE, _NOISE, (rounds, arms))
    loss[np.arange(rounds), best] -= _GAP
    comparator = floor + (1.0 - arms * floor) * np.eye(arms)[best]
    return Game(loss, comparator, path(comparator))
