"""Families of games: drifting losses, their comparators and the drift proxies a schedule may be given.

Games are drawn with a NumPy generator on the host and handed to the compiled learners as data, so that every method
meets the same losses (common random numbers).
"""

import numpy as np

from experiments.theory.oco import Game

LARGEST_GAP = 0.25  # between the mean losses of the best arm and of the others


def switch_times(rng: np.random.Generator, rounds: int, switches: int, placement: tuple[float, float]) -> np.ndarray:
    """(switches,) distinct rounds, sorted, drawn from the share ``placement`` of the rounds; never the first round.

    Raises:
      ValueError: more switches than rounds to put them in.
    """
    low, high = max(1, int(placement[0] * rounds)), int(placement[1] * rounds)
    if switches > high - low:
        raise ValueError(f"{switches} switches do not fit into rounds {low} to {high - 1}.")
    return np.sort(rng.choice(np.arange(low, high), switches, replace=False))


def best_arms(rng: np.random.Generator, arms: int, rounds: int, times: np.ndarray) -> np.ndarray:
    """(rounds,) int: index of the best arm, which jumps to a different one at ``times``."""
    jumps = rng.integers(1, arms, len(times))
    walk = (rng.integers(arms) + np.concatenate([[0], np.cumsum(jumps)])) % arms
    return walk[np.searchsorted(times, np.arange(rounds), side="right")]


def minimax_gap(arms: int, rounds: int, switches: int) -> float:
    """Gap at which the best arm is hardest to find: ``sqrt(log K * (S + 1) / T)``, at most `LARGEST_GAP`."""
    return min(LARGEST_GAP, float(np.sqrt(np.log(arms) * (switches + 1) / rounds)))


def switching(
    rng: np.random.Generator,
    arms: int,
    rounds: int,
    switches: int,
    *,
    gap: float = LARGEST_GAP,
    noise: float = 0.35,
    floor: float = 1e-3,
    placement: tuple[float, float] = (0.0, 1.0),
    observed: bool = False,
) -> Game:
    """Noisy linear losses ``0.5 + U(-noise, noise)`` with one better arm, which switches.

    Args:
      gap: how much lower the best arm's mean loss is.
      floor: of the truncated simplex; comparators are its vertices.
      placement: share of the rounds in which the switches fall (a burst when short).
      observed: the proxy is the learner's own loss.
    """
    times = switch_times(rng, rounds, switches, placement)
    best = best_arms(rng, arms, rounds, times)
    loss = 0.5 + rng.uniform(-noise, noise, (rounds, arms))
    loss[np.arange(rounds), best] -= gap
    comparator = segment_comparator(best, arms, floor)
    return Game(loss, comparator, drift(comparator), observed=np.float64(observed))


def segment_comparator(best: np.ndarray, arms: int, floor: float) -> np.ndarray:
    """(rounds,) int -> (rounds, arms): the vertex of the truncated simplex at the best arm."""
    return floor + (1.0 - arms * floor) * np.eye(arms)[best]


def drift(comparator: np.ndarray) -> np.ndarray:
    """(rounds, arms) -> (rounds,): `experiments.theory.oco.path` on the host, in the precision of the comparator."""
    return np.abs(np.diff(comparator, axis=0, prepend=comparator[:1])).sum(-1)
