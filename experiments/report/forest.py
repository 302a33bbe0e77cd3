"""Forest plot: paired differences with intervals, and the difference of each pair of runs."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.measure.comparisons import DECIDED, OUTCOMES
from experiments.report.cells import Lookup, number
from experiments.report.verdicts import Compared, compared

if TYPE_CHECKING:
    import polars as pl


class Point(NamedTuple):
    """The difference of one pair of runs."""

    label: str  # "seed 3", or "hopper, seed 3" with several tasks
    value: float


class Mark(NamedTuple):
    """A comparison with its pairs of runs."""

    compared: Compared
    points: tuple[Point, ...]


class Row(NamedTuple):
    """A method with one mark per pattern, None without a comparison."""

    method: str
    against: str
    scope: str  # empty, or the family's name in a study of several
    marks: tuple[Mark | None, ...]

    @property
    def comparisons(self) -> list[Compared]:
        return [mark.compared for mark in self.marks if mark is not None]

    @property
    def significant(self) -> int:
        return sum(c.outcome in DECIDED for c in self.comparisons)


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

    def share(self, value: float) -> float:
        """Position of a value on the scale, clipped to 0 to 1."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    @property
    def comparisons(self) -> list[Compared]:
        return [c for row in self.rows for c in row.comparisons]

    def printed(self, c: Compared) -> str:
        """A mean difference with its sign, with digits for the largest difference."""
        largest = max(abs(x.value) for x in self.comparisons)
        text = number(c.value, 3 if largest < 0.1 else 2 if largest < 10 else 1)
        return f"+{text}" if c.value > 0 and text.strip("0.") else text.replace("-", "−")

    @property
    def opponent(self) -> str:
        """Label of the opponents: their common name, else "baseline"."""
        names = {row.against for row in self.rows}
        return names.pop() if len(names) == 1 else "baseline"

    def gain(self, row: Row) -> float:
        """Mean difference of a row over its patterns; positive is better."""
        return (1 - 2 * self.lower_is_better) * float(np.mean([c.value for c in row.comparisons]))

    @property
    def ordered(self) -> "Forest":
        """The forest with rows sorted by number of significant comparisons, then by gain."""
        return replace(self, rows=tuple(sorted(self.rows, key=lambda row: (-row.significant, -self.gain(row)))))

    @property
    def conclusion(self) -> str:
        """Outcomes of all comparisons in one sentence."""
        clear, total = sum(row.significant for row in self.rows), len(self.comparisons)
        opponent = "the baseline" if self.opponent == "baseline" else self.opponent
        text = f"{clear} of {total} comparisons with {opponent} in {self.metric} are significant ({self.tally}); "
        best = max(self.rows, key=self.gain)
        if self.gain(best) <= 0:
            return f"{text}no method has a higher mean than {opponent}."
        share = f"{best.significant} of {len(best.comparisons)} patterns"
        return f"{text}{best.method} has the highest mean, significant under {share}."

    @property
    def tally(self) -> str:
        """Number of comparisons per outcome."""
        outcomes = [c.outcome for c in self.comparisons]
        return ", ".join(f"{outcomes.count(o)} {o}" for o in OUTCOMES if o in outcomes)


def forest_of(look: Lookup, frame: "pl.DataFrame", metric: str, kind: str = "") -> Forest | None:
    """Forest of one metric against one kind of opponent; None without comparisons.

    Args:
      frame: tidy frame of ``look``, whose rows of single runs give the points.
      kind: of the opponent, such as ``best_constant``; the carriers' baselines if empty.
    """
    single = frame.filter(level="run", metric=metric).to_dicts()
    runs = {tuple(r[k] for k in ("family", "task", "method", "pattern", "seed")): r["value"] for r in single}
    values = {key: value for key, value in runs.items() if math.isfinite(value)}
    rows = []
    for family in look.tasks:
        for method in look.methods:
            marks: list[Mark | None] = []
            for pattern in look.patterns:
                found = compared(look, (family, None), method, pattern, metric, kind)
                points = _points(look, values, family, method, metric, kind, pattern)
                marks.append(None if found is None else Mark(found, points))
            if any(marks):
                against = kind.replace("_", " ") or next(mark.compared.opponent for mark in marks if mark)
                rows.append(Row(method, against, family if len(look.tasks) > 1 else "", tuple(marks)))
    if not rows:
        return None
    kept = [i for i in range(len(look.patterns)) if any(row.marks[i] for row in rows)]
    rows = tuple(row._replace(marks=tuple(row.marks[i] for i in kept)) for row in rows)
    patterns, scale = tuple(look.patterns[i] for i in kept), _scale([m for row in rows for m in row.marks if m])
    row = look.metric(metric)
    return Forest(row.title, row.lower_is_better, patterns, rows, *scale)


def _points(look: Lookup, values: dict, family: str, method: str, metric: str, kind: str, pattern: str) -> tuple:
    """Differences of the pairs of runs of a comparison."""
    tasks, points = look.tasks[family], []
    for task in tasks:
        own = compared(look, (family, task), method, pattern, metric, kind)
        for (*run, seed), value in values.items():
            if own is not None and run == [family, task, method, pattern]:
                theirs = values.get((family, task, own.opponent, pattern, seed))
                if theirs is not None:
                    points.append(Point(f"{task}, seed {seed}" if len(tasks) > 1 else f"seed {seed}", value - theirs))
    return tuple(points)


def _scale(marks: list[Mark]) -> tuple[float, float, tuple[float, ...]]:
    """Ends and ticks of a scale with all means and points; long intervals are cut."""
    from matplotlib.ticker import MaxNLocator

    points = [v for mark in marks for v in (mark.compared.value, *(p.value for p in mark.points))] + [0.0]
    edges = [e for mark in marks for e in mark.compared.ends or () if e is not None and math.isfinite(e)]
    span = (max(points) - min(points)) or 1.0
    low = max(min(points + edges), min(points) - 0.6 * span)
    high = min(max(points + edges), max(points) + 0.6 * span)
    margin = 0.04 * (high - low) or 1.0  # two methods may be equal
    low, high = low - margin, high + margin
    ticks = MaxNLocator(nbins=3, steps=[1, 2, 5, 10]).tick_values(low, high)
    return low, high, tuple(float(t) for t in ticks if low <= t <= high)
