"""Content of a figure, from which both the static pictures and the page's live charts are drawn."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from experiments.measure.curves import change_steps
from experiments.measure.study import STEADY, PatternFacts
from experiments.report.looks import Look


class Axis(NamedTuple):
    """The horizontal axis that all panels of a plot share."""

    label: str
    low: float
    high: float
    form: str  # "steps": thousands or millions; "percent": the values are shares
    marks: np.ndarray = np.zeros(0)  # (K,) where changes are
    jumps: bool = False  # whether the drift jumps there
    segments: bool = False  # whether the marks divide the axis into parts worth a closer look


class Row(NamedTuple):
    """Panels that share a vertical axis."""

    label: str
    height: float = 1.7  # inches
    log: bool = False


class Line(NamedTuple):
    """One line of a panel."""

    name: str  # in the plot's looks
    x: np.ndarray  # (m,), increasing
    y: np.ndarray | None  # (m,) mean over seeds; None: there is none, the seeds are shown
    low: np.ndarray | None = None  # (m,) of its band
    high: np.ndarray | None = None
    seeds: Mapping[int, np.ndarray] = {}  # (m,) each; NaN where a seed has nothing


class Panel(NamedTuple):
    """One pair of axes."""

    row: int
    column: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Plot:
    """One figure: a grid of panels with its words."""

    name: str  # of its files, without suffix
    kind: str  # "curves", "signals", "events", ...
    task: str
    pattern: str
    title: str
    caption: str  # how to read it
    alt: str  # what it shows, with numbers, for who cannot see it
    axis: Axis
    rows: tuple[Row, ...]
    columns: tuple[str, ...]  # titles
    panels: tuple[Panel, ...]
    looks: Mapping[str, Look]
    warnings: tuple[str, ...] = field(default=())  # what is missing in it, in words that stand beside it


def time_axis(horizon: float, segments: int, pattern: str, facts: PatternFacts) -> Axis:
    """Environment steps of training with the changes of a pattern."""
    changes = change_steps(horizon, segments)
    marks = changes[:0] if pattern == STEADY else changes
    return Axis("environment steps", 0.0, horizon, "steps", marks, facts.jumps, segments=True)


def file_stem(*parts: str) -> str:
    """A file name without suffix from names that may hold anything."""
    return re.sub(r"[^A-Za-z0-9_.+=-]", "_", "_".join(part for part in parts if part))


def spans_decades(values: np.ndarray, factor: float = 20.0) -> bool:
    """Whether positive values cover more than ``factor``, so that a log axis shows more."""
    values = values[np.isfinite(values) & (values > 0)]
    if values.size < 2:
        return False
    low, high = np.percentile(values, [1, 99])
    return bool(high > factor * low)
