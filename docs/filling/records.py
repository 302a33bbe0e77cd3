"""The stored records, each read once."""

import json
import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from experiments.measure.study import STEADY
from experiments.paper import evidence, helps, record, tables, times

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = ROOT / "experiments" / "results"
PATTERNS = (STEADY, *evidence.PATTERNS)


@cache
def recorded(name: str) -> record.Record:
    """The record in a folder of the results."""
    return record.read(RESULTS / name)


@cache
def runs_of(source: str, task: str) -> pl.DataFrame:
    """The runs of some studies of a record on one task."""
    name, _, studies = source.partition("/")
    name_is = pl.col("study")
    own = [name_is.str.contains(f"^{of.replace('*', '.*')}$") for of in studies.split(",")]
    return recorded(name).runs.filter(pl.any_horizontal(own), task=task)


@cache
def every_run() -> record.Gathered:
    """The runs of all records."""
    return record.gather([RESULTS / "grid", RESULTS / "earlier"])


@cache
def audited() -> dict:
    """The stored audit."""
    return json.loads((RESULTS / "audit.json").read_text())


@cache
def measured(name: str) -> dict:
    """A stored record of `aesjax bench`."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text())


def time_ratio(case: Mapping[str, Any], method: str, other: str) -> dict[str, float]:
    """The time of a method over that of another in a case of `aesjax bench`; empty if one is missing."""
    rates = case["rounds"]
    if not {method, other} <= rates[0].keys():
        return {}
    ratios = [rate[other] / rate[method] for rate in rates]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}


def stored() -> record.Record:
    """The record of the grid."""
    return recorded("grid")


@cache
def grid(metric: str = "mean_return") -> list[tables.Setting]:
    """The settings of the grid, with contrasts of a metric."""
    return list(tables.settings(stored().runs, metric))


@cache
def compared() -> list[helps.Comparison]:
    """Part H: rivals of AES, by task."""
    return helps.comparisons(stored())


@cache
def rates() -> list[times.Rate]:
    """Training times of both records."""
    return times.rates({**recorded("earlier").studies, **stored().studies})
