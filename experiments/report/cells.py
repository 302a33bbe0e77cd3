"""Cells and tables of a report, and look-up of aggregates in the tidy frame."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.measure.catalog import Metric, catalogue, ordered, row_of
from experiments.measure.comparisons import asides_of, constants_of, without_verdict
from experiments.measure.study import RecordedStudy
from experiments.measure.tables import round_half_up

if TYPE_CHECKING:
    import polars as pl


NONE = "–"
DAGGER = "†"


@dataclass(frozen=True)
class Cell:
    """One printed number: the value, its interval in brackets, a class for the page."""

    text: str
    interval: str = ""  # with n of a number with fewer than all runs
    kind: str = ""  # "better", "worse", "paper" or "muted"

    def __str__(self) -> str:
        return f"{self.text} {self.interval}".rstrip()


@dataclass
class Table:
    """A titled table; rows are grouped, and a group's title is shown above its rows."""

    key: str
    title: str
    reading: str
    header: list[str]
    groups: list[tuple[str, list[list[Cell]]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    labels: int = 1  # leading columns that hold names, not numbers

    @property
    def rows(self) -> list[list[Cell]]:
        return [row for _, rows in self.groups for row in rows]


class Lookup:
    """Aggregates of the tidy frame of a study by (family, task or None, method, pattern, metric).

    Args:
      frame: as `experiments.measure.summarise` returns it.
      custom: metrics of ``frame`` besides the built-in and installed ones.
    """

    def __init__(self, frame: "pl.DataFrame", study: RecordedStudy, custom: Iterable[Metric] = ()):
        self.study, self.catalog = study, catalogue(custom)
        rows = frame.filter(level="method").to_dicts()
        self.cells = {(r["family"], r["task"], r["method"], r["pattern"], r["metric"]): r for r in rows}
        self.methods, self.patterns = study.methods(), list(study.patterns)
        self.carriers = study.carriers()
        self.constants, self.asides = constants_of(study), asides_of(study)
        kinds = dict.fromkeys(r["metric"].partition(":vs=")[2] for r in rows)
        self.opponents = [kind for kind in kinds if kind]  # besides the baseline
        self.tasks = {family: study.tasks(family) for family in dict.fromkeys(key.family for key in study.runs)}

    def scopes(self) -> Iterator[tuple[str, str | None, str]]:
        """(family, task or None, title): every family, followed by its tasks if it has several."""
        for family, tasks in self.tasks.items():
            yield family, None, tasks[0] if len(tasks) == 1 else f"{family}, all {len(tasks)} tasks"
            if len(tasks) > 1:
                yield from ((family, task, task) for task in tasks)

    def metric(self, name: str) -> Metric:
        """Catalogue's row of a metric or of an aggregate."""
        return row_of(self.catalog, name)

    def verdict(self, *places: str) -> list[str]:
        """Names of the metrics with these places in verdicts, in the order of the places."""
        rows = ordered(self.catalog)
        return [row.name for place in places for row in rows if row.verdict == place]

    def get(self, scope: tuple, method: str, pattern: str, metric: str) -> dict[str, Any] | None:
        """Row of an aggregate, or None if the study has no such run."""
        return self.cells.get((*scope[:2], method, pattern, metric))

    def is_marked(self, metric: str) -> bool:
        """Whether any value of a metric, or difference in it, is a ratio without a verdict."""
        return any(marked(row) for (*_, name), row in self.cells.items() if name.rpartition(":")[2] == metric)


def number(value: float | None, places: int = 2) -> str:
    """A number as printed: rounded once, half-up; a dash for a missing number."""
    if value is None or not math.isfinite(value):
        return NONE
    text = str(round_half_up(value, places))
    return text[1:] if re.fullmatch(r"-0\.?0*", text) else text


def spaced(value: int) -> str:
    """A whole number as printed: groups of three digits apart."""
    return f"{value:,}".replace(",", " ")


def cell(row: dict[str, Any] | None, places: int = 2, scale: float = 1.0, *, interval: bool = True) -> Cell:
    """An aggregate as printed, times ``scale``, with its interval; a dash for a missing value.

    ``n=`` is the number of its runs, if not all are valid.
    """
    if row is None or not math.isfinite(row["value"]):
        return Cell(NONE, kind="muted")
    value = number(row["value"] * scale, places) + (DAGGER if marked(row) else "")
    few = f"n={row['n_valid']}" if row["n_valid"] < row["n_total"] else ""
    # One run has no interval, and SAC on Steady is 1 by definition.
    if not interval or row["low"] is None or row["n_valid"] < 2 or row["high"] - row["low"] < 1e-12:
        return Cell(value, few)
    ends = f"[{number(row['low'] * scale, places)}, {number(row['high'] * scale, places)}]"
    return Cell(value, f"{ends} {few}".rstrip())


def marked(row: dict[str, Any]) -> bool:
    """Whether an aggregate is a ratio without a verdict."""
    return without_verdict(row["flag"])


def counted(row: dict[str, Any] | None) -> Cell:
    """Number of valid runs and of all runs, marked if they differ."""
    if row is None:
        return Cell(NONE, kind="muted")
    return Cell(f"{row['n_valid']}/{row['n_total']}", kind="worse" if row["n_valid"] < row["n_total"] else "muted")
