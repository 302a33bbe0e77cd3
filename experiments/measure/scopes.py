"""Scopes of aggregates, and the matrix of one metric's values behind each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.measure import stats
from experiments.measure.curves import Metric
from experiments.measure.study import RecordedStudy, RunKey

NAN = float("nan")
#: Metric -> run -> its value.
Cells = dict[str, dict[RunKey, Metric]]


class Scope(NamedTuple):
    """Scope of an aggregate: one task, or all tasks of a family (``task`` is None)."""

    family: str
    task: str | None
    tasks: tuple[str, ...]


def scopes(study: RecordedStudy) -> Iterator[Scope]:
    """Every family, after its tasks where it has several."""
    for family in dict.fromkeys(k.family for k in study.runs):
        tasks = study.tasks(family)
        if len(tasks) > 1:
            yield from (Scope(family, task, (task,)) for task in tasks)
        yield Scope(family, None, tuple(tasks))


def inside(key: RunKey, scope: Scope, method: str, pattern: str) -> bool:
    """Whether a run is one of those that are aggregated."""
    return key.family == scope.family and key.task in scope.tasks and key[2:4] == (method, pattern)


def matrix(
    study: RecordedStudy, column: Mapping[RunKey, Metric], scope: Scope, method: str | Mapping[str, str], pattern: str
) -> np.ndarray:
    """(M, n) values, one column per seed of the study; NaN where a run is missing or has no value.

    Args:
      method: one, or the one of every task.
    """
    rows = []
    for task in scope.tasks:
        name = method if isinstance(method, str) else method.get(task, "")
        keys = [RunKey(scope.family, task, name, pattern, seed) for seed in study.seeds()]
        rows.append([column.get(key, Metric(NAN)).value for key in keys])
    return np.array(rows, np.float64)


def draw_interval(arrays: Sequence[np.ndarray], statistic: Callable, *, seed: int, replicates: int) -> stats.Interval:
    """Bootstrap with a fresh generator, so that an interval does not depend on which others the study has."""
    return stats.bootstrap_interval(np.random.default_rng(seed), arrays, statistic, replicates=replicates)


def numbers(interval: stats.Interval) -> tuple[float, float | None, float | None]:
    """Value and ends as the tidy frame holds them: None for an end that there is not."""
    low, high = (x if np.isfinite(x) else None for x in interval[1:])
    return interval.value, low, high
