"""Part of the online-learning study: a proxy that the learner itself observes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aesjax import schedules
from experiments.measure.stats import Interval
from experiments.theory import learners
from experiments.theory.findings import Finding, TheoryStudy, claim, paired, show
from experiments.theory.oco import Game, Learner, play
from experiments.theory.oco_grid import switching_groups
from experiments.theory.oco_methods import FLOOR, METHODS, SCALES, WEIGHTS, C, Tuning, outcomes, stack, tuning

_ONES = np.ones(1)
_FACTORS, _GAINS = (0.25, 1.0, 4.0), (2.0, 4.0, 16.0)
_PAIRS = [(factor, gain) for factor in _FACTORS for gain in _GAINS]


def _constant(factor: Any, t: Tuning, rounds: int) -> Learner:
    """``factor`` times the weight that is passed as the theory's."""
    return learners.mirror(schedules.fixed(factor * t.weight), C, FLOOR)


def _relative(factor_and_gain: Any, t: Tuning, rounds: int) -> Learner:
    """`aes_r` over ``factor`` times that weight."""
    factor, gain = factor_and_gain
    schedule = schedules.aes_r(learners.drift_proxy, factor * t.weight, rounds, gain=gain, lambda_max=1.0)
    return learners.mirror(schedule, C, FLOOR)


def _aes_wide(kappa: Any, t: Tuning, rounds: int) -> Learner:
    schedule = schedules.aes(learners.drift_proxy, kappa=kappa, beta=0.0, lambda_min=1e-3, lambda_max=1.0)
    return learners.mirror(schedule, C, FLOOR)


def observed(study: TheoryStudy, rounds: int) -> tuple[dict, list[Finding]]:
    """The proxy is the learner's own loss, all it can see: prediction 7, with the control of wrong timing."""
    names = {"S=4": (4, (0.0, 1.0)), "S=16": (16, (0.0, 1.0)), "S=16 late": (16, (0.9, 1.0))}
    data: dict[str, Any] = {}
    same, gains, small, large, timing = {}, {}, {}, {}, {}
    for label, (count, place) in names.items():
        ((group, _),) = switching_groups(study, 10, rounds, [count], placement=place, observed=True)
        given, tunings = stack(group), stack([tuning(game, count) for game in group])

        constants, _ = outcomes(METHODS["constant"].build, given, tunings, SCALES)
        best = float(np.clip(SCALES[constants.mean(0).argmin()] * tunings.weight[0], *WEIGHTS))
        base = tunings._replace(weight=np.full(len(group), best))

        # `aes` with the kappa that suits best, beside the constant at its mean weight, game by game.
        kappas = best / np.sqrt(0.45) * 2.0 ** np.arange(-2, 2.5, 0.5)
        regrets, weights = outcomes(_aes_wide, given, tunings, kappas)
        chosen = regrets.mean(0).argmin()
        twin, _ = outcomes(_constant, given, tunings._replace(weight=weights[:, chosen].astype(float)), _ONES)
        same[label] = paired(regrets[:, chosen], twin[:, 0])
        reference = dict(zip(_FACTORS, outcomes(_constant, given, base, np.array(_FACTORS))[0].T, strict=True))
        adapted = dict(zip(_PAIRS, outcomes(_relative, given, base, np.array(_PAIRS))[0].T, strict=True))
        gain = {(f, a): paired(regret, reference[f]) for (f, a), regret in adapted.items()}
        gains[label] = {a: gain[1.0, a] for a in _GAINS}
        small[label], large[label] = ({a: gain[f, a] for a in _GAINS[1:]} for f in (0.25, 4.0))
        timing[label] = paired(adapted[1.0, 4.0], _permuted(given, base))
        data[label] = {
            "best_constant": best,
            "constant": reference,
            "aes_r": {f"base x{f:g}, gain {a:g}": r for (f, a), r in adapted.items()},
            "aes": regrets,
            "aes_twin": twin,
        }
        print(f"  {label}: constant {reference[1.0].mean():.1f}, aes {regrets[:, chosen].mean():.1f}", flush=True)

    below = [x.high < 0 for x in timing.values()]
    relative_size = {label: abs(x.value) / data[label]["constant"][1.0].mean() for label, x in same.items()}
    findings = [
        claim(
            "5.1-7a",
            "on an observable proxy AES is a constant with its mean weight (difference below 5 % of the regret)",
            max(relative_size.values()) < 0.05,
            _listed(same),
        ),
        claim(
            "5.1-7b",
            "AES-R improves the best constant by 4 to 12 % (a = 4 and 16)",
            all(xs[a].high < 0 for xs in gains.values() for a in _GAINS[1:]),
            _by_gain(gains),
        ),
        claim(
            "5.1-7c",
            "AES-R improves a base four times too small",
            all(x.high < 0 for xs in small.values() for x in xs.values()),
            _by_gain(small),
        ),
        claim(
            "5.1-7d",
            "and cannot repair a base four times too large",
            all(x.high > 0 for xs in large.values() for x in xs.values()),
            _by_gain(large),
        ),
        claim(
            "5.1-7e",
            "the gain of AES-R (a = 4) is timing: it beats its own weights in the wrong order",
            True if all(below) else None if any(below) else False,
            _listed(timing),
        ),
    ]
    return data, findings


def _listed(intervals: dict[str, Interval]) -> str:
    return "; ".join(f"{label} {show(x)}" for label, x in intervals.items())


def _by_gain(intervals: dict[str, dict[float, Interval]]) -> str:
    lines = {label: ", ".join(f"a={a:g}: {show(x)}" for a, x in xs.items()) for label, xs in intervals.items()}
    return "; ".join(f"{label} {line}" for label, line in lines.items())


def _permuted(given: Game, base: Tuning) -> np.ndarray:
    """(games,) regret under each game's own weights (base, a = 4) with twenty blocks of time in random order."""
    rounds = given.loss.shape[1]

    def one(game: Game, t: Tuning, key: jax.Array) -> jax.Array:
        weights = play(_relative(jnp.array([1.0, 4.0]), t, rounds), game).weight
        return jnp.sum(play(learners.mirror(schedules.permuted(weights, key), C, FLOOR), game).regret)

    keys = jax.random.split(jax.random.key(0), given.loss.shape[0])
    return np.asarray(jax.jit(jax.vmap(one))(jax.tree.map(jnp.asarray, given), base, keys))
