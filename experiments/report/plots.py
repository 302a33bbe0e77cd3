"""Content and style of a figure, used by the still pictures and the page's live charts."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.measure.study import STEADY, RecordedStudy

# After Okabe and Ito: a contrast of 3:1 with white, distinguishable with deuteranopia. Baselines are black.
PALETTE = "#0072B2 #D55E00 #009E73 #CC79A7 #A29636 #1E90FF #8C6D1F #4020D0 #B03060 #5B7F3A".split()
#: The hues in lighter shades for a dark page.
PALETTE_DARK = "#4DA6E0 #FF8B3D #3CCBA0 #E7A5C8 #F5BE48 #9AD4F7 #C9A95A #8470FF #E2789F #9DC277".split()
BASELINE = "#222222"
REFERENCE_INK = "#666666"  # of the optimum and the drift
#: Lengths of strokes and gaps in line widths; the first is solid. They distinguish methods in greyscale.
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (2, 1.5), (7, 2, 1.5, 2), (4, 1.5, 1.5, 1.5, 1.5, 1.5))
MANY = 10  # number of methods from which a report folds rows and emphasises few lines


class Look(NamedTuple):
    """Style of one line."""

    ink: int  # index into `PALETTE`; -1 is `BASELINE`, -2 `REFERENCE_INK`
    dash: int = 0  # index into `DASHES`
    width: float = 1.6  # points
    strong: bool = True  # whether it is emphasised and has a band among `MANY` lines
    shared: str = ""  # a method's name without its carrier, for legends of several carriers

    @property
    def colour(self) -> str:
        """``#rrggbb`` on white."""
        return {-1: BASELINE, -2: REFERENCE_INK}.get(self.ink) or PALETTE[self.ink]


def looks(carriers: Mapping[str, str], strong: Collection[str] = ()) -> dict[str, Look]:
    """Style per method, by its label after the carrier, so that AES has one style on SAC and on PPO.

    Of `MANY` methods and more only baselines and those in ``strong`` are emphasised.

    Args:
      carriers: method -> label of its carrier.
    """
    kinds = {method: method.removeprefix(carrier) for method, carrier in carriers.items()}
    inks, strokes, few = len(PALETTE), len(DASHES) - 1, len(kinds) < MANY
    # After each round of colours the strokes advance by one, so that the first forty styles differ.
    chosen = {"": Look(-1)}
    for i, kind in enumerate(dict.fromkeys(filter(None, kinds.values()))):
        chosen[kind] = Look(i % inks, 1 + (i + i // inks) % strokes)
    styles = {}
    for method, kind in kinds.items():
        emphasised = few or method in strong or not kind
        styles[method] = chosen[kind]._replace(strong=emphasised, shared=kind.lstrip("+") or "baseline")
    return styles


class Axis(NamedTuple):
    """Horizontal axis of environment steps, shared by all panels of a plot."""

    low: float
    high: float
    marks: np.ndarray  # (K,) steps of the changes
    jumps: bool  # whether the drift jumps at the changes
    label: str = "environment steps"


def time_axis(study: RecordedStudy, task: str, pattern: str) -> Axis:
    """Time axis of a training with the changes of a pattern in all seeds."""
    runs = [key for key in study.runs if (key.task, key.pattern) == (task, pattern) and pattern != STEADY]
    marks = np.unique([step for key in runs for step in study.changes(key)])
    return Axis(0.0, study.horizons[task], marks, study.patterns[pattern].jumps)


class Row(NamedTuple):
    """Panels that share a vertical axis."""

    label: str
    height: float = 1.7  # inches
    log: bool = False
    stepped: bool = False  # values hold until the next point, as a drift that jumps


class Line(NamedTuple):
    """One line of a panel."""

    name: str  # key of the plot's `looks`
    x: np.ndarray  # (m,), increasing
    y: np.ndarray | None  # (m,) mean over seeds; None: only single seeds are shown
    low: np.ndarray | None = None  # (m,) of its band
    high: np.ndarray | None = None
    seeds: Mapping[int, np.ndarray] = {}  # (m,) each; NaN where a seed has no value
    regained: tuple[int, ...] = ()  # indices into ``x`` where the level before a change is regained


class Panel(NamedTuple):
    """One pair of axes."""

    row: int
    column: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Plot:
    """One figure: a grid of panels with its text."""

    kind: str  # "curves" or "signals"
    task: str
    pattern: str
    title: str
    caption: str  # caption
    alt: str  # alternative text, with numbers
    axis: Axis
    rows: tuple[Row, ...]
    columns: tuple[str, ...]  # titles
    panels: tuple[Panel, ...]
    looks: Mapping[str, Look]
    warnings: tuple[str, ...] = ()  # missing runs

    @property
    def name(self) -> str:
        """File name without suffix."""
        return file_stem(self.kind, self.task, self.pattern)


def file_stem(*parts: str) -> str:
    """File name without suffix from arbitrary names."""
    return re.sub(r"[^A-Za-z0-9_.+=-]", "_", "_".join(part for part in parts if part))
