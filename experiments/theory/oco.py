"""Online learning on the simplex under drift: games, entropy mirror descent under a schedule, dynamic regret; and the
study that compares every schedule with the constant weight that is best in hindsight.

A game is data: linear losses ``f_t(x) = <loss_t, x>``, a comparator for every round and the drift proxy that a
schedule reads. Games are drawn with NumPy, so that all methods have equal losses; `play` is one scan and may be
vmapped over games and hyper-parameters.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aesjax import schedules
from aesjax.compiling import jit
from aesjax.schedules import AnySchedule, Schedule
from aesjax.schedules.rule import read_signal
from aesjax.types import Array, Signals
from experiments.measure.stats import t_interval
from experiments.theory import bounds
from experiments.theory.simplex import mirror_step, path

C, FLOOR, SPREAD = 10.0, 1e-3, 0.5  # steps per weight, floor of the truncated simplex, bound on the losses' half-range
WEIGHTS = (1e-3, 0.3)  # clip of every scheduled weight; c * 0.3**2 < 1 keeps the entropy step stable
SCALES = 2.0 ** np.arange(-4, 7.5, 0.5)  # times the theory's tuning; equally many for every method
ARMS, ROUNDS, SWITCHES = 10, 4096, (0, 1, 4, 16, 64)
_GAP, _NOISE = 0.25, 0.35  # gap of the best arm's mean loss to the others'; half-width of the losses' noise


class Game(NamedTuple):
    """One sequence of losses with its comparators; K arms, T rounds."""

    loss: Array | np.ndarray  # (T, K)
    comparator: Array | np.ndarray  # (T, K) points u_t
    proxy: Array | np.ndarray  # (T,) drift proxy of the round, read by schedules


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
    return schedules.aes_d(drift_proxy, 1.0, window=1.0, prior=0.0, beta=beta, **rule)


def play(
    schedule: AnySchedule, game: Game, c: Array | float, floor: Array | float, *, entropy: Array | float = 1.0
) -> Played:
    """Dynamic regret of entropy mirror descent on ``f_t + entropy * lam_t * Psi`` with steps ``eta_t = c * lam_t``.

    AES paper Section 3 and Eq. (dyn-regret-def), from the uniform point. Weight t uses the proxy of round t, as the
    theorems need.

    Args:
      schedule: gives ``lam_t``; any of `aesjax.schedules`, the objects that drive the deep agents, on `drift_proxy`.
      game: losses (T, K), comparators and proxies.
      c: () step per weight; stable for ``c * lam**2 < 2``, without oscillation up to 1.
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


#: From a base weight, the scale of the square-root rules and the number of rounds.
METHODS: dict[str, Callable[[Any, dict[str, Any], int], AnySchedule]] = {
    "constant": lambda base, rule, n: schedules.fixed(base),
    "aes": lambda base, rule, n: schedules.aes(drift_proxy, **rule),
    "aes_prior": lambda base, rule, n: schedules.aes_prior(drift_proxy, **rule),
    "aes_d": lambda base, rule, n: schedules.aes_d(drift_proxy, n, window=0.05, **rule),
    "aes_m": lambda base, rule, n: schedules.aes_m(drift_proxy, updates=n, **rule),
    "aes_r": lambda base, rule, n: schedules.aes_r(drift_proxy, base, n, lambda_max=WEIGHTS[1]),
    "per-round oracle": lambda base, rule, n: per_round_oracle(**rule),
}


def schedule_of(name: str, scale: Any, game: Game) -> AnySchedule:
    """A method at ``scale`` times the theory's choice for a game, which needs the true comparator."""
    rounds, arms = game.loss.shape
    kappa, constants = bounds.self_consistent(arms, FLOOR, C, SPREAD)
    base = scale * bounds.constant_weight(arms, C, constants, path(game.comparator))
    rule = {"kappa": scale * kappa, "beta": 0.0, "lambda_min": WEIGHTS[0], "lambda_max": WEIGHTS[1]}
    return METHODS[name](jnp.clip(base, *WEIGHTS), rule, rounds)


@functools.cache
def _compiled(name: str) -> Callable[..., Array]:
    def one(scale: Array, game: Game, entropy: Array) -> Array:
        return jnp.sum(play(schedule_of(name, scale, game), game, C, FLOOR, entropy=entropy).regret)

    return jit(jax.vmap(jax.vmap(one, (0, None, None)), (None, 0, None)))


def regrets(name: str, games: Game, entropy: float) -> np.ndarray:
    """(games, scales): total regret of one method on stacked games; ``entropy=0`` leaves the entropy term out."""
    return np.asarray(_compiled(name)(jnp.asarray(SCALES), games, jnp.asarray(entropy)))


def run(seeds: int, rounds: int = ROUNDS) -> dict[str, dict[str, float | str]]:
    """Regret by method and number of switches: mean, and the paired difference from the best constant, 95 % interval.

    ``theory``: at the theory's scale. ``hindsight``: at the scale with the best mean over these seeds. ``without
    entropy``: the entropy term is left out at the theory's scale, in equal steps.
    """
    rows: dict[str, dict[str, float | str]] = {}
    for switches in SWITCHES:
        rngs = [np.random.default_rng([seed, ARMS, rounds]) for seed in range(seeds)]
        draws = [switching(rng, ARMS, rounds, switches) for rng in rngs]
        games = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *draws)
        best = None
        for name in METHODS:
            both = [regrets(name, games, entropy) for entropy in (1.0, 0.0)]
            tuned = both[0][:, both[0].mean(0).argmin()]
            best = tuned if best is None else best
            unit = int(np.argmin(np.abs(SCALES - 1.0)))
            theory, plain = (regret[:, unit] for regret in both)
            difference = t_interval(tuned - best)
            rows[f"{name}, S={switches}"] = {
                "theory": float(theory.mean()),
                "hindsight": float(tuned.mean()),
                "minus best constant": f"{difference.value:.1f} [{difference.low:.1f}, {difference.high:.1f}]",
                "without entropy": float(plain.mean()),
            }
    return rows
