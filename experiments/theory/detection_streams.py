"""Streams for the study of detection: synthetic ones, and proxies recorded in training, with and without jumps."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import polars as pl


_Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
APART = (500, 1000, 2000)  # updates between jumps; a run has five segments, hence four jumps
_QUIET = 5000  # observations of a synthetic stream without a jump
_RISE = np.log(3.0)  # the toy task: 1.2 to 1.9 times in the update batch, 2.7 to 8 on the newest transitions


class Streams(NamedTuple):
    """Logarithms of proxies, (N, T); jumps also have their times."""

    tuning: list[np.ndarray]  # quiet; thresholds are chosen on them
    quiet: list[np.ndarray]
    jumps: dict[int, tuple[np.ndarray, list[int]]]  # by updates between jumps


def _autoregressive(correlation: float, freedom: float = np.inf) -> _Draw:
    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        noise = rng.standard_normal(shape)
        if freedom < np.inf:  # Student, of variance 1
            noise *= np.sqrt((freedom - 2) / rng.chisquare(freedom, shape))
        x = noise.copy()
        for t in range(1, shape[1]):
            x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * noise[:, t]
        return 0.25 * x

    return draw


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return 0.25 * rng.standard_normal(shape)


#: Logarithms of quiet proxies, (N, T).
FAMILIES: dict[str, _Draw] = {
    "log-normal": _normal,
    "Pareto 1.2": lambda rng, shape: rng.standard_exponential(shape) / 1.2,
    "AR(.9)": _autoregressive(0.9),
    "AR(.9), t(3)": _autoregressive(0.9, 3.0),
    "AR(.97), t(3)": _autoregressive(0.97, 3.0),
    "slow trend": lambda rng, shape: _normal(rng, shape) + 0.25 * np.arange(shape[1]) / _QUIET,
    "learning transient": lambda rng, shape: _normal(rng, shape) - 0.5 * np.log1p(np.arange(shape[1]) / 100),
}


def synthetic(family: str, count: int) -> Streams:
    """Streams of one family; every jump triples the proxy for 100 updates, then learning undoes it.

    Args:
      count: N, of each kind. Only "log-normal" has all three distances between jumps.
    """
    draw, rng = FAMILIES[family], np.random.default_rng([list(FAMILIES).index(family), 1])
    tuning, quiet = draw(rng, (count, _QUIET)), draw(rng, (count, _QUIET))
    jumps = {}
    for apart in APART if family == "log-normal" else APART[1:2]:
        age = np.arange(5 * apart) % apart
        level = _RISE * np.exp(-np.maximum(age - 100, 0) / 80) * (np.arange(5 * apart) >= apart)
        jumps[apart] = draw(rng, (count, 5 * apart)) + level, [k * apart for k in range(1, 5)]
    return Streams([tuning], [quiet], jumps)


def read(paths: Sequence[Path]) -> "pl.DataFrame":
    """Read recorded proxies, a row for every run: stored ones, or those of finished studies with SAC.

    The lower half of the seeds of a study only gives quiet streams, for the choice of thresholds.

    Raises:
      ValueError: one cannot be read, or lacks runs of one of the two patterns; one sentence.
    """
    import polars as pl

    found = []
    for path in paths:
        try:
            rows = _of_study(path) if path.is_dir() else pl.read_parquet(path)
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise ValueError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
        if missing := {"carrier", "pattern", "seed", "apart"} - set(rows.columns):
            raise ValueError(f"{path}: lacks the column '{min(missing)}'; a finished study's folder is wanted")
        check_patterns(path, rows["pattern"])
        found.append(rows)
    return pl.concat(found)


def check_patterns(path: Path, patterns: Iterable[str]) -> None:
    """Refuse a study or record without runs of the two patterns that a comparison needs (ValueError)."""
    if missing := {"steady", "abrupt"} - set(patterns):
        raise ValueError(f"{path}: holds no run of the pattern '{min(missing)}'")


def _of_study(folder: Path) -> "pl.DataFrame":
    import polars as pl

    from experiments.study import store
    from experiments.study.config import config_from_json
    from experiments.study.results import open_results

    results = open_results(folder)
    config = config_from_json(results.config)
    rows = results.rows(store.STREAMS).filter(pl.col("carrier") == "sac")
    proxies = [name for name in rows.columns if "/" in name]
    middle = rows["seed"].median()
    rows = rows.filter((pl.col("pattern") == "steady") | (pl.col("seed") > middle))
    rounded = [pl.Series(name, [_rounded(x) for x in rows[name]]) for name in proxies]
    apart = pl.lit(config.vector_steps("sac") // config.segments, pl.Int64)
    return rows.with_columns(*rounded, apart=apart).select("carrier", "pattern", "seed", "apart", *proxies)


def _rounded(values: "pl.Series") -> "pl.Series":
    """Round to 12 binary digits, which pack to half of the bytes."""
    bits = values.to_numpy().astype(np.float32).view(np.uint32)
    return type(values)(((bits + 0x800) & 0xFFFFF000).view(np.float32))


def recorded(rows: "pl.DataFrame") -> dict[str, Streams]:
    """``{"td_quantile/fresh": ..., "td_quantile/update": ...}`` from the rows of `read`."""
    import polars as pl

    out: dict[str, Streams] = {}
    for apart in rows["apart"].unique().sort():
        of = rows.filter(pl.col("apart") == apart)
        for name, streams in sorted_streams(of).items():
            there = out.setdefault(name.partition(" ")[2], Streams([], [], {}))
            half = len(streams["steady"]) // 2
            there.tuning.append(streams["steady"][:half])
            there.quiet.append(streams["steady"][half:])
            begun = 5 * apart - streams["abrupt"].shape[1]  # updates of the warm-up, in which nothing learns
            there.jumps[apart] = streams["abrupt"], [k * apart - begun for k in range(1, 5)]
    return out


def sorted_streams(rows: "pl.DataFrame") -> dict[str, dict[str, np.ndarray]]:
    """``{"sac td_quantile/fresh": {"steady": (N, T), "abrupt": (N, T)}, ...}``: logarithms, from the first update on.

    A proxy that is shown to many updates unchanged (on-policy carriers) is one observation here.

    Args:
      rows: of a study's streams, with runs of both patterns.
    """
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
