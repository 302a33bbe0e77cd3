"""The forest plot: every paired difference with its interval and every pair of runs as a point."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.measure.comparisons import LOWER_IS_BETTER, NOT_SIGNIFICANT, OUTCOMES
from experiments.report.cells import Lookup, number
from experiments.report.draw import Picture, canvas_to_files
from experiments.report.looks import BASELINE, looks
from experiments.report.verdicts import METRIC_NAMES, Compared, compared

if TYPE_CHECKING:
    import polars as pl


class Point(NamedTuple):
    """The difference of one pair of runs."""

    label: str  # "seed 3", or "hopper, seed 3" where there are several tasks
    value: float


class Mark(NamedTuple):
    """A comparison with its pairs of runs."""

    compared: Compared
    points: tuple[Point, ...]


class Row(NamedTuple):
    """A method with its marks, one per pattern of the forest, None where nothing was compared."""

    method: str
    against: str
    scope: str  # empty, or the family's name in a study of several
    marks: tuple[Mark | None, ...]

    @property
    def comparisons(self) -> list[Compared]:
        """Those that there are."""
        return [mark.compared for mark in self.marks if mark is not None]


@dataclass(frozen=True)
class Forest:
    """All comparisons in one metric on one horizontal scale."""

    metric: str  # as printed
    lower_is_better: bool
    patterns: tuple[str, ...]
    rows: tuple[Row, ...]
    low: float  # ends of the scale
    high: float
    ticks: tuple[float, ...]
    kind: str = ""  # of the opponent, as in the tidy frame; empty for the carriers' baselines

    def share(self, value: float) -> float:
        """Where a value lies on the scale, 0 to 1; what lies outside is put on its end."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    @property
    def comparisons(self) -> list[Compared]:
        """Those of all rows."""
        return [c for row in self.rows for c in row.comparisons]

    def printed(self, c: Compared) -> str:
        """A mean difference with its sign, to the digits that the differences of this forest need."""
        largest = max(abs(x.value) for x in self.comparisons)
        text = number(c.value, 3 if largest < 0.1 else 2 if largest < 10 else 1)
        return f"+{text}" if c.value > 0 and text.strip("0.") else text.replace("-", "−")

    @property
    def name(self) -> str:
        """Of its files."""
        return f"forest_{self.kind}" if self.kind else "forest"

    @property
    def opponent(self) -> str:
        """Label of the opponents: the name of a single one, else their common part."""
        names = {row.against for row in self.rows}
        return names.pop() if len(names) == 1 else "baseline"

    def gain(self, row: Row) -> float:
        """The mean difference of a row over its patterns; positive is better."""
        return (1 - 2 * self.lower_is_better) * float(np.mean([c.value for c in row.comparisons]))

    @property
    def ordered(self) -> "Forest":
        """The rows with most significant comparisons first, then by gain."""
        return replace(self, rows=tuple(sorted(self.rows, key=lambda row: (-_clear(row.comparisons), -self.gain(row)))))

    @property
    def conclusion(self) -> str:
        """The outcome of all comparisons in a sentence."""
        text = (
            f"{_clear(self.comparisons)} of {len(self.comparisons)} comparisons with {self.opponent} in {self.metric} "
        )
        text += f"are significant ({self.tally}); "
        best = max(self.rows, key=self.gain)
        if self.gain(best) <= 0:
            return f"{text}no method is above {self.opponent} on average."
        share = f"{_clear(best.comparisons)} of {len(best.comparisons)} patterns"
        return f"{text}best on average is {best.method}, significant under {share}."

    @property
    def tally(self) -> str:
        """How many comparisons came out which way."""
        outcomes = [c.outcome for c in self.comparisons]
        return ", ".join(f"{outcomes.count(o)} {o}" for o in OUTCOMES if o in outcomes)


def _clear(comparisons: Sequence[Compared]) -> int:
    """How many are significant."""
    return sum(c.outcome != NOT_SIGNIFICANT for c in comparisons)


def forest_of(look: Lookup, frame: "pl.DataFrame", metric: str, kind: str = "") -> Forest | None:
    """The forest of one metric against one kind of opponent; None if nothing was compared.

    Args:
      frame: of which ``look`` has the aggregates; its rows of single runs give the points.
      kind: of the opponent, such as ``best_constant``; the carriers' baselines if empty.
    """
    single = frame.filter(level="run", metric=metric)
    values = {
        (r["family"], r["task"], r["method"], r["pattern"], r["seed"]): r["value"]
        for r in single.to_dicts()
        if math.isfinite(r["value"])
    }
    rows = []
    for family in look.tasks:
        for method in look.methods:
            found = [compared(look, (family, None), method, p, metric, kind) for p in look.patterns]
            if any(found):
                against = kind.replace("_", " ") or next(c.opponent for c in found if c)
                marks = tuple(c and Mark(c, _points(look, values, family, method, metric, kind, c)) for c in found)
                rows.append(Row(method, against, family if len(look.tasks) > 1 else "", marks))
    if not rows:
        return None
    kept = [i for i in range(len(look.patterns)) if any(row.marks[i] for row in rows)]
    rows = [row._replace(marks=tuple(row.marks[i] for i in kept)) for row in rows]
    scale = _scale([mark for row in rows for mark in row.marks if mark is not None])
    patterns = tuple(look.patterns[i] for i in kept)
    return Forest(METRIC_NAMES.get(metric, metric), metric in LOWER_IS_BETTER, patterns, tuple(rows), *scale, kind)


def _points(
    look: Lookup, values: dict, family: str, method: str, metric: str, kind: str, found: Compared
) -> tuple[Point, ...]:
    """The differences of the pairs of runs behind a comparison."""
    tasks, points = look.tasks[family], []
    for task in tasks:
        own = compared(look, (family, task), method, found.pattern, metric, kind)
        for (f, t, m, p, seed), value in values.items():
            if own is not None and (f, t, m, p) == (family, task, method, found.pattern):
                theirs = values.get((family, task, own.opponent, found.pattern, seed))
                if theirs is not None:
                    points.append(Point(f"{task}, seed {seed}" if len(tasks) > 1 else f"seed {seed}", value - theirs))
    return tuple(points)


def _scale(marks: list[Mark]) -> tuple[float, float, tuple[float, ...]]:
    """Ends and ticks that show every mean and every point, and of intervals what does not squeeze those."""
    from matplotlib.ticker import MaxNLocator

    points = [v for mark in marks for v in (mark.compared.value, *(p.value for p in mark.points))] + [0.0]
    edges = [e for mark in marks for e in mark.compared.ends or () if e is not None and math.isfinite(e)]
    span = (max(points) - min(points)) or 1.0
    low = max(min(points + edges), min(points) - 0.6 * span)
    high = min(max(points + edges), max(points) + 0.6 * span)
    margin = 0.04 * (high - low) or 1.0  # two versions may agree to the last bit
    low, high = low - margin, high + margin
    ticks = MaxNLocator(nbins=3, steps=[1, 2, 5, 10]).tick_values(low, high)
    return low, high, tuple(float(t) for t in ticks if low <= t <= high)


def draw_forest(forest: Forest, dpi: int = 140) -> Picture:
    """The forest as files: a column per pattern, a row per method."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure as Canvas

    look = looks(list(dict.fromkeys([row.against for row in forest.rows] + [row.method for row in forest.rows])))
    names = [f"{row.scope} · {row.method}" if row.scope else row.method for row in forest.rows]
    left = 0.3 + 0.085 * max(map(len, names))
    width = left + 0.15 + max(1.7, 8.0 / len(forest.patterns)) * len(forest.patterns)
    height = 0.34 * len(forest.rows) + 0.95
    canvas = Canvas(figsize=(width, height))
    axes = canvas.subplots(1, len(forest.patterns), sharex=True, sharey=True, squeeze=False)[0]
    canvas.subplots_adjust(
        left=left / width, right=1 - 0.15 / width, bottom=0.6 / height, top=1 - 0.32 / height, wspace=0.08
    )
    for column, (axis, pattern) in enumerate(zip(axes, forest.patterns, strict=True)):
        axis.axvline(0.0, color="#444444", lw=1.0)
        for place, row in enumerate(forest.rows):
            if (mark := row.marks[column]) is not None:
                _draw_mark(axis, mark, place, look[row.method].colour)
        axis.set_title(pattern, fontsize=9, fontweight="bold", loc="left")
        axis.grid(True, axis="x", color="#e6e6e6", lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(labelsize=8, left=False)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    axes[0].set_xlim(forest.low, forest.high)
    axes[0].set_xticks(forest.ticks, [f"{tick:g}" for tick in forest.ticks])
    side = "left" if forest.lower_is_better else "right"
    canvas.text(
        (left + width) / 2 / width, 0.1 / height, f"{forest.metric}, method − {forest.opponent} (better to the {side})",
        ha="center", fontsize=8,
    )  # fmt: skip
    return canvas_to_files(canvas, dpi)


def _draw_mark(axis, mark: Mark, place: int, colour: str) -> None:
    found, points = mark
    if found.ends is not None:
        axis.plot(found.ends, [place, place], color=colour, lw=2.0, solid_capstyle="butt")
    offsets = np.linspace(-0.16, 0.16, len(points)) if len(points) > 1 else np.zeros(len(points))
    axis.plot([p.value for p in points], place + offsets, "o", ms=3.2, mfc="none", mec=colour, mew=0.8, alpha=0.8)
    edge, face = (colour, "#ffffff") if found.outcome == NOT_SIGNIFICANT else (BASELINE, colour)
    axis.plot([found.value], [place], "D", ms=5.5, mec=edge, mfc=face)
