"""Columns of a study's curves as arrays over seeds, with the runs left out that no mean of the report counts."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.measure.curves import nan_mean
from experiments.measure.stats import draw_resamples
from experiments.report.plots import Line

if TYPE_CHECKING:
    import polars as pl


_REPLICATES = 500
POINTS = 240  # of a line at most; a panel is some 400 pixels wide


class Series(NamedTuple):
    """One column of the runs of one task, pattern and method.

    Seeds that diverged or stopped early have no part in means, as everywhere in the report, unless there are no others.
    """

    steps: np.ndarray  # (m,) environment steps of all evaluations
    values: np.ndarray  # (n, m), NaN where a seed has no finite value
    seeds: np.ndarray  # (n,) numbers
    valid: np.ndarray  # (n,) bool, the seeds that evaluated to the end

    @property
    def by_seed(self) -> dict[int, np.ndarray]:
        """(m,) each, of the seeds that have a value."""
        return {int(s): v for s, v in zip(self.seeds, self.values, strict=True) if np.any(np.isfinite(v))}

    @property
    def counted(self) -> "Series":
        """The seeds that means are over."""
        kept = self.valid if np.any(self.valid) else np.ones_like(self.valid)
        return self._replace(values=self.values[kept], seeds=self.seeds[kept], valid=self.valid[kept])


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
    values = series.counted.values
    if not np.any(np.isfinite(series.values)):
        return None
    mean, low, high = band(values) if banded and len(values) > 1 else (nan_mean(values, axis=0), None, None)
    return thinned(Line(method, series.steps, mean, low, high, series.by_seed))


def thinned(line: Line, points: int = POINTS) -> Line:
    """Every k-th point of a line that has more than ``points``, and always the last."""
    every = max(1, -(-len(line.x) // points))
    if every == 1:
        return line
    keep = np.unique(np.append(np.arange(0, len(line.x), every), len(line.x) - 1))
    cut = {part: values[keep] for part in ("x", "y", "low", "high") if (values := getattr(line, part)) is not None}
    return line._replace(**cut, seeds={seed: values[keep] for seed, values in line.seeds.items()})
