"""Performance profiles: the whole distribution of normalised returns over settings and seeds (Agarwal et al. 2021)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.measure.catalog import CATALOG, run_metrics
from experiments.measure.curves import nan_mean
from experiments.measure.stats import draw_resamples
from experiments.measure.study import RecordedStudy

_THRESHOLDS = np.linspace(0.0, 1.2, 61)
_REPLICATES = 1_000


class Profile(NamedTuple):
    """Distribution of one method's normalised returns."""

    thresholds: np.ndarray  # (K,)
    share: np.ndarray  # (K,) of runs above each threshold, settings weighed equally
    low: np.ndarray  # (K,) of the pointwise 95 % band; NaN with one seed
    high: np.ndarray
    mean: float
    worst: float  # lowest score of a run
    settings: int


def profiles(study: RecordedStudy, methods: Sequence[str]) -> dict[str, Profile]:
    """Profile of every method over the settings, pairs of task and pattern, in which all of them have valid runs.

    The score of a run is ``(R - floor) / (best - floor)``: R its mean return, floor the return of random
    actions, best the mean over seeds of the best of the methods in the setting. A setting in which no method is above
    the floor is left out. Bands resample seeds within each setting.

    Returns:
      Empty without such a setting.
    """
    row, values = CATALOG["mean_return"], dict[tuple[str, str], dict[str, list[float]]]()
    for key in study.runs:
        if key.method in methods and key.task in study.floors:
            value = run_metrics(study, key, [row])[row.name].value - study.floors[key.task]
            if np.isfinite(value):
                values.setdefault((key.task, key.pattern), {}).setdefault(key.method, []).append(value)
    scores: dict[str, list[np.ndarray]] = {method: [] for method in methods}
    for of_methods in values.values():
        best = max(np.mean(of_seeds) for of_seeds in of_methods.values())
        if len(of_methods) == len(methods) and best > 0.0:
            for method, of_seeds in of_methods.items():
                scores[method].append(np.array(of_seeds) / best)
    return {method: _profile(settings) for method, settings in scores.items() if settings}


def _profile(settings: Sequence[np.ndarray]) -> Profile:
    """Profile of the scores (n,) of one method in each setting."""
    above = np.full((len(settings), max(map(len, settings)), len(_THRESHOLDS)), np.nan)
    for at, of_seeds in enumerate(settings):
        above[at, : len(of_seeds)] = of_seeds[:, None] > _THRESHOLDS
    share = nan_mean(nan_mean(above, axis=1), axis=0)
    low = high = np.full(len(_THRESHOLDS), np.nan)
    if min(map(len, settings)) > 1:
        index = draw_resamples(np.random.default_rng(0), [len(of_seeds) for of_seeds in settings], _REPLICATES)
        resampled = np.zeros((_REPLICATES, len(_THRESHOLDS)))
        for at in range(len(settings)):
            seeds = index[:, at, : len(settings[at])]
            resampled += above[at][seeds].mean(axis=1) / len(settings)
        low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    mean = float(np.mean([np.mean(of_seeds) for of_seeds in settings]))
    return Profile(_THRESHOLDS, share, low, high, mean, float(min(map(np.min, settings))), len(settings))
