"""The methods of the online-learning study: each a learner with one scale, tuned by theory or in hindsight."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from aesjax import schedules
from experiments.theory import bounds, games, learners
from experiments.theory.oco import Game, Learner, play
from experiments.theory.simplex import largest_log_range

Array = jax.Array
C, FLOOR, SPREAD = 10.0, 1e-3, 0.5  # steps per weight, floor of the truncated simplex, bound on the losses' half-range
WEIGHTS = (1e-3, 0.3)  # clip of every scheduled weight; c * 0.3**2 < 1 keeps the entropy step stable
SCALES = 2.0 ** np.arange(-4, 7.5, 0.5)  # times the theory's tuning; the same number of them for every method


class Tuning(NamedTuple):
    """Theoretical settings for one game with a known comparator path; all ()."""

    weight: Any  # constant entropy weight
    eta: Any  # constant step without an entropy term
    share: Any  # switches per round
    kappa: Any  # scale of the square-root rule


class Method(NamedTuple):
    """A learner with one scale: 1 is the theory's tuning."""

    label: str
    build: Callable[[Any, Tuning, int], Learner]  # scale, tuning, rounds
    tuned: bool = True  # False: has no scale


def tuning(game: Game, switches: int) -> Tuning:
    """The theory's choices for a game; needs the true comparator."""
    rounds, arms = game.loss.shape
    drift = games.drift(np.asarray(game.comparator))
    kappa, constants = bounds.self_consistent(arms, FLOOR, C, SPREAD)
    weight = bounds.constant_weight(arms, C, constants, jnp.asarray(drift))
    mass = 2.0 * np.log(arms) + float(largest_log_range(arms, FLOOR)) * drift.sum()
    eta = np.sqrt(mass / (SPREAD**2 * rounds))
    return Tuning(float(weight), float(eta), max(switches, 1) / rounds, float(kappa))


def _rule(scale: Any, t: Tuning) -> dict:
    return {"kappa": scale * t.kappa, "beta": 0.0, "lambda_min": WEIGHTS[0], "lambda_max": WEIGHTS[1]}


def _aes(scale: Any, t: Tuning, rounds: int) -> Any:
    return schedules.aes(learners.drift_proxy, **_rule(scale, t))


def _base(scale: Any, t: Tuning) -> Array:
    return jnp.clip(scale * t.weight, *WEIGHTS)


_SCHEDULES: dict[str, tuple[str, Callable[[Any, Tuning, int], Any]]] = {
    "constant": ("constant", lambda s, t, n: schedules.fixed(_base(s, t))),
    "aes": ("AES (paper)", _aes),
    "aes_prior": ("AES-P", lambda s, t, n: schedules.aes_prior(learners.drift_proxy, **_rule(s, t))),
    "aes_d": ("AES-D", lambda s, t, n: schedules.aes_d(learners.drift_proxy, n, window=0.05, **_rule(s, t))),
    "aes_m": ("AES-M", lambda s, t, n: schedules.aes_m(learners.drift_proxy, updates=n, **_rule(s, t))),
    "aes_r": ("AES-R", lambda s, t, n: schedules.aes_r(learners.drift_proxy, _base(s, t), n, lambda_max=WEIGHTS[1])),
    "envelope": ("monotone envelope", lambda s, t, n: learners.envelope(_aes(s, t, n))),
    "oracle": ("per-round oracle", lambda s, t, n: learners.per_round_oracle(**_rule(s, t))),
}


def _mirror(schedule: Callable[[Any, Tuning, int], Any], entropy: float) -> Callable[[Any, Tuning, int], Learner]:
    return lambda s, t, n: learners.mirror(schedule(s, t, n), C, FLOOR, entropy=entropy)


METHODS: dict[str, Method] = {
    "frozen": Method("frozen uniform", lambda s, t, n: learners.frozen(), tuned=False),
    **{name: Method(label, _mirror(build, 1.0)) for name, (label, build) in _SCHEDULES.items()},
    **{
        f"{name}_plain": Method(f"{label}, no entropy", _mirror(build, 0.0))
        for name, (label, build) in _SCHEDULES.items()
        if name != "constant"
    },
    "constant_plain": Method("constant, no entropy", lambda s, t, n: learners.hedge(s * t.eta, floor=FLOOR)),
    "fixed_share": Method("fixed share S/T", lambda s, t, n: learners.hedge(s * t.eta, share=t.share, floor=FLOOR)),
    "fixed_share_tuned": Method(
        "fixed share, tuned", lambda s, t, n: learners.hedge(t.eta, share=jnp.minimum(s * t.share, 0.5), floor=FLOOR)
    ),
    "ader": Method("Ader", lambda s, t, n: learners.ader(n, FLOOR, scale=s)),
    "restart": Method(
        "restart at true switches",
        lambda s, t, n: learners.mirror(schedules.fixed(s * t.eta / C), C, FLOOR, entropy=0.0, restart=True),
    ),
}


def stack(items: Sequence[Any]) -> Any:
    """Equally shaped tuples to one tuple of arrays with a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *items)


def outcomes(
    build: Callable[[Any, Tuning, int], Learner], stacked: Game, tunings: Tuning, scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Total regret and mean weight, both (games, scales), of one method on stacked games.

    The axis of games is divided among the devices, padded to a multiple of their number. Compiled once for every
    ``build`` and shape, so keep the function and the number of games. ``scales`` may have further axes.
    """
    count, rounds = stacked.loss.shape[:2]
    devices = len(jax.local_devices())
    padded = np.arange(-(-count // devices) * devices) % count
    given = jax.tree.map(lambda leaf: np.asarray(leaf)[padded], (stacked, tunings))
    regret, weight = _compiled(build, rounds)(jnp.asarray(scales), *given)
    return np.asarray(regret)[:count], np.asarray(weight)[:count]


@functools.cache
def _compiled(build: Callable[[Any, Tuning, int], Learner], rounds: int) -> Callable:
    mesh = Mesh(np.array(jax.local_devices()), axis_names=("games",))

    def one(scale: Array, game: Game, t: Tuning) -> tuple[Array, Array]:
        played = play(build(scale, t, rounds), game)
        return jnp.sum(played.regret), jnp.mean(played.weight)

    over = jax.vmap(jax.vmap(one, in_axes=(0, None, None)), in_axes=(None, 0, 0))
    rows = PartitionSpec("games")
    return jax.jit(
        jax.shard_map(over, mesh=mesh, in_specs=(PartitionSpec(), rows, rows), out_specs=rows, check_vma=False)
    )
