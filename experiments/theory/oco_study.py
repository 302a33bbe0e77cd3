"""Study of regret under drift: every schedule against the constant weight that was best in hindsight."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aesjax import schedules
from aesjax.compiling import jit
from aesjax.schedules import AnySchedule
from experiments.measure.stats import t_interval
from experiments.theory import bounds, oco
from experiments.theory.oco import Game, drift_proxy

Array = jax.Array
C, FLOOR, SPREAD = 10.0, 1e-3, 0.5  # steps per weight, floor of the truncated simplex, bound on the losses' half-range
WEIGHTS = (1e-3, 0.3)  # clip of every scheduled weight; c * 0.3**2 < 1 keeps the entropy step stable
SCALES = 2.0 ** np.arange(-4, 7.5, 0.5)  # times the theory's tuning; equally many for every method
ARMS, ROUNDS, SWITCHES = 10, 4096, (0, 1, 4, 16, 64)

#: From a base weight, the scale of the square-root rules and the number of rounds.
METHODS: dict[str, Callable[[Any, dict[str, Any], int], AnySchedule]] = {
    "constant": lambda base, rule, n: schedules.fixed(base),
    "aes": lambda base, rule, n: schedules.aes(drift_proxy, **rule),
    "aes_prior": lambda base, rule, n: schedules.aes_prior(drift_proxy, **rule),
    "aes_d": lambda base, rule, n: schedules.aes_d(drift_proxy, n, window=0.05, **rule),
    "aes_m": lambda base, rule, n: schedules.aes_m(drift_proxy, updates=n, **rule),
    "aes_r": lambda base, rule, n: schedules.aes_r(drift_proxy, base, n, lambda_max=WEIGHTS[1]),
    "per-round oracle": lambda base, rule, n: oco.per_round_oracle(**rule),
}


def schedule_of(name: str, scale: Any, game: Game) -> AnySchedule:
    """A method at ``scale`` times the theory's choice for a game, which needs the true comparator."""
    rounds, arms = game.loss.shape
    kappa, constants = bounds.self_consistent(arms, FLOOR, C, SPREAD)
    base = scale * bounds.constant_weight(arms, C, constants, oco.path(game.comparator))
    rule = {"kappa": scale * kappa, "beta": 0.0, "lambda_min": WEIGHTS[0], "lambda_max": WEIGHTS[1]}
    return METHODS[name](jnp.clip(base, *WEIGHTS), rule, rounds)


@functools.cache
def _compiled(name: str) -> Callable[..., Array]:
    def one(scale: Array, game: Game, entropy: Array) -> Array:
        return jnp.sum(oco.play(schedule_of(name, scale, game), game, C, FLOOR, entropy=entropy).regret)

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
        draws = [
            oco.switching(np.random.default_rng([seed, ARMS, rounds]), ARMS, rounds, switches) for seed in range(seeds)
        ]
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
