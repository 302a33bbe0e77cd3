"""Columns of a study's curves as arrays over seeds, with the runs left out that no mean of the report counts."""

from typing import TYPE_CHECKING

import numpy as np

from experiments.measure.curves import nan_mean
from experiments.measure.stats import draw_resamples
from experiments.report.plots import Line

if TYPE_CHECKING:
    import polars as pl


_REPLICATES = 500
POINTS = 240  # of a line at most; a panel is some 400 pixels wide


class Series:
    """One column of the runs of one task, pattern and method.

    Seeds that diverged or stopped early have no part in means, as everywhere in the report, unless there are no others.

    Attributes:
      steps: (m,) environment steps of all evaluations.
      values: (n, m), NaN where a seed has no finite value.
      seeds: (n,) numbers.
      valid: (n,) bool, the seeds that evaluated to the end.
    """

    def __init__(self, steps: np.ndarray, values: np.ndarray, seeds: np.ndarray, valid: np.ndarray):
        self.steps, self.values, self.seeds, self.valid = steps, values, seeds, valid

    @property
    def counted(self) -> np.ndarray:
        """(k, m) values of the seeds that means are over."""
        return self.values[self.valid] if np.any(self.valid) else self.values


def read(rows: "pl.DataFrame", method: str, column: str) -> Series:
    """A column of ``rows`` (one task and pattern) for one method; NaN everywhere if nobody logged it."""
    part = rows.filter(method=method)
    steps = np.unique(part["step"].to_numpy())
    seeds = np.unique(part["seed"].to_numpy())
    at = np.searchsorted(seeds, part["seed"].to_numpy()), np.searchsorted(steps, part["step"].to_numpy())

    def table(name: str) -> np.ndarray:
        values = np.full((len(seeds), len(steps)), np.nan)
        if name in part.columns:
            values[at] = part[name].cast(float).fill_null(np.nan).to_numpy()
        return np.where(np.isfinite(values), values, np.nan)

    valid = np.all(np.isfinite(table("return_mean")), axis=-1)
    return Series(steps.astype(np.float64), table(column), seeds, valid)


def band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds (n, m) and its pointwise bootstrap band, three arrays (m,); NaN where a seed is missing."""
    index = draw_resamples(np.random.default_rng(0), [len(values)], _REPLICATES)[:, 0]
    counts = np.stack([np.sum(index == s, axis=-1) for s in range(len(values))], axis=-1)
    low, high = np.percentile(counts @ values / len(values), [2.5, 97.5], axis=0)
    return np.mean(values, axis=0), low, high


def line_of(method: str, series: Series, *, banded: bool = True) -> Line | None:
    """The mean of a series with its band and every seed beside it; None if there is nothing to show."""
    values = series.counted
    if not np.any(np.isfinite(series.values)):
        return None
    low = high = None
    if banded and len(values) > 1:
        mean, low, high = band(values)
    else:
        mean = nan_mean(values, axis=0)
    own = {int(s): v for s, v in zip(series.seeds, series.values, strict=True) if np.any(np.isfinite(v))}
    return thinned(Line(method, series.steps, mean, low, high, own))


def thinned(line: Line, points: int = POINTS) -> Line:
    """Every k-th point of a line that has more than ``points``, and always the last."""
    every = max(1, -(-len(line.x) // points))
    if every == 1:
        return line
    keep = np.unique(np.append(np.arange(0, len(line.x), every), len(line.x) - 1))
    cut = lambda values: None if values is None else values[keep]  # noqa: E731
    seeds = {seed: values[keep] for seed, values in line.seeds.items()}
    return Line(line.name, line.x[keep], cut(line.y), cut(line.low), cut(line.high), seeds)
