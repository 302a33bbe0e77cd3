"""Streams for the study of detection: synthetic families, what is no change, and proxies recorded in training."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl


_Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def _autoregressive(correlation: float, sigma: float) -> _Draw:
    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        noise = rng.standard_normal(shape)
        x = noise.copy()
        for t in range(1, shape[1]):
            x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * noise[:, t]
        return sigma * x

    return draw


def _decline(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return 0.25 * rng.standard_normal(shape) - 0.5 * np.log1p(np.arange(shape[1]) / 100)


def _pareto(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_exponential(shape) / 1.2


#: Logarithms of quiet proxies, (N, T).
FAMILIES: dict[str, _Draw] = {
    "log-normal .25": lambda rng, shape: 0.25 * rng.standard_normal(shape),
    "log-normal 1": lambda rng, shape: rng.standard_normal(shape),
    "log-normal 2": lambda rng, shape: 2.0 * rng.standard_normal(shape),
    "Pareto 1.2": _pareto,
    "gamma 2": lambda rng, shape: np.log(rng.gamma(2.0, 1.0, shape)),
    "AR(1) .9": _autoregressive(0.9, 0.25),
    "decline": _decline,
}


def recorded(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """``{"sac td_quantile/fresh": {"steady": (N, T), "abrupt": (N, T)}, ...}``: logarithms, from the first update on.

    A proxy that is shown to many updates unchanged (on-policy carriers) is one observation here.

    Raises:
      ValueError: the file cannot be read, or lacks runs of one of the two patterns.
    """
    import polars as pl

    try:
        rows = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"cannot be read: {str(error).splitlines()[0]}") from None
    if missing := {"carrier", "pattern", "seed"} - set(rows.columns):
        raise ValueError(f"lacks the column '{min(missing)}'; a study's streams.parquet is wanted")
    if missing := {"steady", "abrupt"} - set(rows["pattern"]):
        raise ValueError(
            f"holds no run of the pattern '{min(missing)}'; patterns: {', '.join(sorted(set(rows['pattern'])))}"
        )
    return sorted_streams(rows)


def sorted_streams(rows: "pl.DataFrame") -> dict[str, dict[str, np.ndarray]]:
    """The same from the rows of a study's streams, which must have runs of both patterns."""
    import polars as pl

    found: dict[str, dict[str, np.ndarray]] = {}
    for carrier in rows["carrier"].unique(maintain_order=True):
        for proxy in (name for name in rows.columns if "/" in name):
            for pattern in ("steady", "abrupt"):
                of = rows.filter((pl.col("carrier") == carrier) & (pl.col("pattern") == pattern)).sort("seed")
                values = np.array(of[proxy].to_list(), np.float64)
                values = values[:, np.isfinite(values).all(0)]
                changes = np.any(np.diff(values, axis=1) != 0, axis=0)
                if changes.mean() < 0.5:
                    values = values[:, np.r_[True, changes]]
                found.setdefault(f"{carrier} {proxy}", {})[pattern] = np.log(values)
    if "ppo td_quantile/update" in found:  # a rollout is the newest data there is: both sources are the same
        found.pop("ppo td_quantile/fresh")
    return found
