"""Paired contrasts between methods: which of two does better on equal seeds, corrected for how many were asked."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.measure.stats import Interval, holm, paired_t_p, t_interval

#: One number per run (higher is better): method -> pattern -> seed -> score.
Scores = Mapping[str, Mapping[str, Mapping[int, float]]]


class Contrast(NamedTuple):
    """``first`` minus ``second`` under one pattern, over the seeds that both have."""

    first: str
    second: str
    pattern: str
    seeds: int
    difference: Interval  # mean of the paired differences with Student's 95 % interval
    wins: int  # seeds on which the first is better
    p: float  # two-sided paired t test
    p_holm: float  # adjusted over all contrasts asked together

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``undecided`` of the first, at 5 % after adjustment."""
        if not self.p_holm < 0.05:  # NaN decides nothing
            return "undecided"
        return "better" if self.difference.value > 0 else "worse"


def best_of(scores: Scores, methods: Sequence[str], pattern: str) -> str | None:
    """The method with the highest mean score under ``pattern``; None where none has any.

    By the seeds that all of them have, if there are any, so that none is chosen for its seeds; on the very runs that it
    is then compared on, so it looks a little better than it is: a hard opponent.
    """
    found = {m: runs for m in methods if (runs := scores.get(m, {}).get(pattern))}
    common = set.intersection(*map(set, found.values())) if found else set()
    means = {m: float(np.mean([runs[seed] for seed in sorted(common or runs)])) for m, runs in found.items()}
    return max(means, key=means.__getitem__, default=None)


def contrasts(scores: Scores, pairs: Sequence[tuple[str, str, str]]) -> list[Contrast]:
    """Every (first, second, pattern) of ``pairs`` that share a seed, in order; adjusted by Holm over those.

    >>> runs = {"a": {"abrupt": {1: 3.0, 2: 4.0, 3: 5.5}}, "b": {"abrupt": {1: 1.0, 2: 2.1, 3: 3.4}}}
    >>> [found] = contrasts(runs, [("a", "b", "abrupt")])
    >>> found.wins, found.verdict
    (3, 'better')
    """
    found = []
    for first, second, pattern in pairs:
        mine, theirs = (scores.get(m, {}).get(pattern, {}) for m in (first, second))
        seeds = sorted(set(mine) & set(theirs))
        if seeds:
            apart = np.array([mine[seed] - theirs[seed] for seed in seeds])
            interval, p = t_interval(apart), paired_t_p(apart)
            found.append(Contrast(first, second, pattern, len(seeds), interval, int(np.sum(apart > 0)), p, p))
    adjusted = holm([contrast.p for contrast in found])
    return [contrast._replace(p_holm=float(p)) for contrast, p in zip(found, adjusted, strict=True)]


def share_of(scores: Scores, method: str, opponent: str, pattern: str, floor: float = 0.0) -> float:
    """Mean score of ``method`` above ``floor`` over that of ``opponent``; NaN where either has none."""
    means = []
    for name in (method, opponent):
        runs = scores.get(name, {}).get(pattern, {})
        means.append(float(np.mean(list(runs.values()))) - floor if runs else float("nan"))
    return means[0] / means[1] if means[1] > 0 else float("nan")
