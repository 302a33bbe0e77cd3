"""The forest plot: every paired difference with its interval and every pair of runs as a point."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.measure.comparisons import LOWER_IS_BETTER, NOT_SIGNIFICANT
from experiments.report.cells import Lookup, number
from experiments.report.draw import Picture, canvas_to_files
from experiments.report.looks import BASELINE, looks
from experiments.report.verdicts import METRIC_NAMES, SIGNS, Compared, compared

if TYPE_CHECKING:
    import polars as pl


class Point(NamedTuple):
    """The difference of one pair of runs."""

    label: str  # "seed 3", or "hopper, seed 3" where there are several tasks
    value: float


class Comparison(NamedTuple):
    """A method against its opponent under one pattern."""

    pattern: str
    value: float  # mean difference
    low: float | None  # of its 95 % interval
    high: float | None
    pairs: int
    runs: int  # of the method, paired or not
    p: float  # after Holm; NaN if there is none
    outcome: str  # one of `OUTCOMES`
    points: tuple[Point, ...]
    opponent: str = ""  # by name, where the row's is only a kind

    @property
    def significant(self) -> bool:
        """Whether the method is better or worse."""
        return self.outcome != NOT_SIGNIFICANT

    @property
    def words(self) -> str:
        """The comparison in one sentence."""
        low, high = number(self.low, 3), number(self.high, 3)
        p = "not tested" if math.isnan(self.p) else "p < 0.001" if self.p < 0.001 else f"p = {number(self.p, 3)}"
        interval = "" if self.low is None else f", 95 % interval {low} to {high}"
        count = f"{self.pairs} of {self.runs} runs paired" if self.pairs < self.runs else f"{self.pairs} pairs"
        where = f"{self.pattern}, against {self.opponent}" if self.opponent else self.pattern
        return f"{where}: {self.outcome}, {number(self.value, 3)}{interval}; {p} after Holm; {count}"


class Row(NamedTuple):
    """A method with its comparisons, one per pattern of the forest, None where there is none."""

    method: str
    against: str
    scope: str  # empty, or the family's name in a study of several
    comparisons: tuple[Comparison | None, ...]


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
    def comparisons(self) -> list[Comparison]:
        """Those of all rows."""
        return [c for row in self.rows for c in row.comparisons if c is not None]

    def printed(self, c: Comparison) -> str:
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
        return (1 - 2 * self.lower_is_better) * float(np.mean([c.value for c in row.comparisons if c is not None]))

    @property
    def ordered(self) -> "Forest":
        """The rows with most significant comparisons first, then by gain."""
        clear = {row: sum(c.significant for c in row.comparisons if c is not None) for row in self.rows}
        return replace(self, rows=tuple(sorted(self.rows, key=lambda row: (-clear[row], -self.gain(row)))))

    @property
    def conclusion(self) -> str:
        """The outcome of all comparisons in a sentence."""
        clear = sum(c.significant for c in self.comparisons)
        text = f"{clear} of {len(self.comparisons)} comparisons with {self.opponent} in {self.metric} are "
        text += f"significant ({self.tally}); "
        best = max(self.rows, key=self.gain)
        own = [c.significant for c in best.comparisons if c is not None]
        if self.gain(best) > 0:
            return f"{text}best on average is {best.method}, significant under {sum(own)} of {len(own)} patterns."
        return f"{text}no method is above {self.opponent} on average."

    @property
    def tally(self) -> str:
        """How many comparisons came out which way."""
        outcomes = [c.outcome for c in self.comparisons]
        return ", ".join(f"{outcomes.count(o)} {o}" for o in SIGNS if o in outcomes)

    @property
    def alt(self) -> str:
        """All comparisons in words."""
        found = [
            f"{row.scope + ', ' if row.scope else ''}{row.method} against {row.against}, {c.words}"
            for row in self.rows
            for c in row.comparisons
            if c is not None
        ]
        return f"Paired differences in {self.metric}. " + ". ".join(found) + "."


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
                shown = [
                    c and _comparison(look, values, family, method, p, metric, kind, c)
                    for p, c in zip(look.patterns, found, strict=True)
                ]
                rows.append(Row(method, against, family if len(look.tasks) > 1 else "", tuple(shown)))
    if not rows:
        return None
    kept = [i for i in range(len(look.patterns)) if any(row.comparisons[i] for row in rows)]
    rows = [row._replace(comparisons=tuple(row.comparisons[i] for i in kept)) for row in rows]
    scale = _scale([c for row in rows for c in row.comparisons if c is not None])
    patterns = tuple(look.patterns[i] for i in kept)
    return Forest(METRIC_NAMES.get(metric, metric), metric in LOWER_IS_BETTER, patterns, tuple(rows), *scale, kind)


def _comparison(
    look: Lookup, values: dict, family: str, method: str, pattern: str, metric: str, kind: str, found: Compared
) -> Comparison:
    tasks = look.tasks[family]
    own = {task: compared(look, (family, task), method, pattern, metric, kind) for task in tasks}
    points = []
    for (f, task, m, p, seed), value in values.items():
        if (f, m, p) == (family, method, pattern) and (c := own.get(task)) is not None:
            theirs = values.get((family, task, c.opponent, pattern, seed))
            if theirs is not None:
                points.append(Point(f"{task}, seed {seed}" if len(tasks) > 1 else f"seed {seed}", value - theirs))
    row, single = found.row, found.row["n_valid"] < 2  # one pair has no interval
    return Comparison(
        pattern,
        row["value"],
        None if single else row["low"],
        None if single else row["high"],
        row["n_valid"],
        row["n_total"],
        found.p,
        found.outcome,
        tuple(points),
        found.opponent if kind else "",
    )


def _scale(comparisons: list[Comparison]) -> tuple[float, float, tuple[float, ...]]:
    """Ends and ticks that show every mean and every point, and of intervals what does not squeeze those."""
    from matplotlib.ticker import MaxNLocator

    points = [v for c in comparisons for v in (c.value, *(p.value for p in c.points))] + [0.0]
    edges = [e for c in comparisons for e in (c.low, c.high) if e is not None and math.isfinite(e)]
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
            if (c := row.comparisons[column]) is not None:
                _draw_comparison(axis, c, place, look[row.method].colour)
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


def _draw_comparison(axis, c: Comparison, place: int, colour: str) -> None:
    if c.low is not None and c.high is not None:
        axis.plot([c.low, c.high], [place, place], color=colour, lw=2.0, solid_capstyle="butt")
    offsets = np.linspace(-0.16, 0.16, len(c.points)) if len(c.points) > 1 else np.zeros(len(c.points))
    axis.plot([p.value for p in c.points], place + offsets, "o", ms=3.2, mfc="none", mec=colour, mew=0.8, alpha=0.8)
    edge, face = (BASELINE, colour) if c.significant else (colour, "#ffffff")
    axis.plot([c.value], [place], "D", ms=5.5, mec=edge, mfc=face)
