"""Cells and tables of a report, and the look-up of aggregates in the tidy frame."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from experiments.measure.study import STEADY
from experiments.measure.tables import round_half_up

if TYPE_CHECKING:
    import polars as pl


NONE = "–"
DAGGER = "†"
_INERT = "‡"  # marks a scope with channels that drift in vain
#: Defects of a Steady run, in words.
_BROKEN = {
    "diverged": "diverged",
    "incomplete": "is incomplete",
    "missing": "is missing",
    "off_grid": "lacks evaluations",
}


@dataclass(frozen=True)
class Cell:
    """One printed number: the value, its interval in brackets, a class for the page."""

    text: str
    interval: str = ""  # and behind it the n of a number that rests on fewer runs than there are
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
        """All rows, without their groups."""
        return [row for _, rows in self.groups for row in rows]


class Lookup:
    """Aggregates of the tidy frame by (family, task or None, method, pattern, metric).

    Args:
      frame: as `experiments.measure.summarise` returns it.
      patterns: in the order in which tables show them; those of the frame that it lacks follow.
      inert: task -> drift channels that change nothing in it.
      asides: methods that are there to be compared with, such as constants and controls.
    """

    def __init__(
        self,
        frame: "pl.DataFrame",
        patterns: Iterable[str],
        inert: Mapping[str, Sequence[str]] | None = None,
        asides: Collection[str] = (),
    ):
        rows = frame.filter(level="method").to_dicts()
        self.cells = {(r["family"], r["task"], r["method"], r["pattern"], r["metric"]): r for r in rows}
        self.inert = {task: list(channels) for task, channels in (inert or {}).items() if channels}
        self.methods = list(dict.fromkeys(r["method"] for r in rows))
        self.asides = [m for m in self.methods if m in asides]
        kinds = dict.fromkeys(r["metric"].partition(":vs=")[2] for r in rows)
        self.opponents = [kind for kind in kinds if kind]  # beside the baseline
        seen = dict.fromkeys(r["pattern"] for r in rows)
        self.patterns = list({p: None for p in patterns if p in seen} | seen)
        families = dict.fromkeys(r["family"] for r in rows)
        self.tasks = {f: sorted({r["task"] for r in rows if r["family"] == f and r["task"]}) for f in families}

    def scopes(self) -> Iterator[tuple[str, str | None, str]]:
        """(family, task or None, title): every family, then its tasks if there are several."""
        for family, tasks in self.tasks.items():
            yield family, None, tasks[0] if len(tasks) == 1 else f"{family}, all {len(tasks)} tasks"
            if len(tasks) > 1:
                yield from ((family, task, task) for task in tasks)

    def still(self, scope: tuple) -> list[str]:
        """Drifting parameters without effect in tasks of this scope, one phrase per task."""
        family, task = scope[:2]
        tasks = self.tasks[family] if task is None else [task]
        return [f"{', '.join(self.inert[name])} in {name}" for name in tasks if name in self.inert]

    def get(self, scope: tuple, method: str, pattern: str, metric: str) -> dict[str, Any] | None:
        """The row, or None if the study has no such run."""
        return self.cells.get((*scope[:2], method, pattern, metric))


def number(value: float | None, places: int = 2) -> str:
    """A number as printed: rounded once, half-up; a dash if there is none."""
    if value is None or not math.isfinite(value):
        return NONE
    text = str(round_half_up(value, places))
    return text[1:] if re.fullmatch(r"-0\.?0*", text) else text


def spaced(value: int) -> str:
    """A whole number as printed: groups of three digits apart."""
    return f"{value:,}".replace(",", " ")


def cell(row: dict[str, Any] | None, places: int = 2, scale: float = 1.0, *, interval: bool = True) -> Cell:
    """An aggregate as printed, times ``scale``, with its interval; a dash where there is no value.

    Where it rests on fewer runs than there are, ``n=`` says on how many; without an interval it is muted.
    """
    if row is None or not math.isfinite(row["value"]):
        return Cell(NONE, kind="muted")
    dagger = DAGGER if "literal_unsafe" in row["flag"] else ""
    value = number(row["value"] * scale, places) + dagger
    few = f"n={row['n_valid']}" if row["n_valid"] < row["n_total"] else ""
    if not interval:
        return Cell(value, few, "muted")
    # One run has no interval, whatever the formula returns, and SAC on Steady is 1 by definition.
    if row["low"] is None or row["n_valid"] < 2 or row["high"] - row["low"] < 1e-12:
        return Cell(value, few)
    ends = f"[{number(row['low'] * scale, places)}, {number(row['high'] * scale, places)}]"
    return Cell(value, f"{ends} {few}".rstrip())


def counted(row: dict[str, Any] | None) -> Cell:
    """How many runs are valid out of how many, marked if some are not."""
    if row is None:
        return Cell(NONE, kind="muted")
    return Cell(f"{row['n_valid']}/{row['n_total']}", kind="worse" if row["n_valid"] < row["n_total"] else "muted")


def by_pattern(
    look: Lookup, table: Table, row: Callable, patterns: list[str] | None = None, tasks: bool = True
) -> Table:
    """Fill a table with one group per scope and pattern and one row per method.

    Args:
      row: the cells after the method's name, from a function that gives an aggregate of the method by its name, the
        scope, the method and the pattern.
    """
    for scope in look.scopes():
        if scope[1] is not None and not tasks:
            continue
        for pattern in look.patterns if patterns is None else patterns:
            found = [m for m in look.methods if look.get(scope, m, pattern, "mean_return") is not None]
            rows = [[Cell(m), *row(partial(look.get, scope, m, pattern), scope, m, pattern)] for m in found]
            if rows:
                marked = pattern != STEADY and bool(look.still(scope))
                table.groups.append((f"{scope[2]} · {pattern}" + (f" {_INERT}" if marked else ""), rows))
    still = dict.fromkeys(phrase for scope in look.scopes() for phrase in look.still(scope))
    if still and any(title.endswith(_INERT) for title, _ in table.groups):
        table.notes.append(f"{_INERT} Drifts without changing anything: {'; '.join(still)}.")
    return table


def reasons(look: Lookup, metrics: tuple[str, ...]) -> list[str]:
    """One note per reason for which a printed metric has no value."""
    texts = {
        "no_steady_sac_runs": "nAUC needs SAC on Steady, which this study does not contain.",
        "no_steady_run": "DropRatio and its companions need the method's own Steady runs, which are missing.",
        **{
            f"steady_run_{problem}": f"A run whose own Steady run {what} has no DropRatio and none of its companions."
            for problem, what in _BROKEN.items()
        },
        "no_floor": "Floor-corrected and robust values need the random policy's return, which the manifest lacks.",
        "normaliser_not_above_floor": "A dash where SAC on Steady (or the method's own Steady run) is not above "
        "the random policy: such a ratio has no meaning.",
        "level_not_above_floor": "A dash where nothing had been learned before a change.",
        "not_logged": "A dash where the weight was not logged.",
        "too_few_evaluations_after_a_change": "Fewer than two evaluations fall within 2 % of the horizon after a "
        "change, so responsiveness cannot be measured.",
    }
    found = {
        reason
        for (*_, metric), r in look.cells.items()
        if metric in metrics and r["n_valid"] < r["n_total"]
        for reason in r["reason"].split(", ")
    }
    return [text for reason, text in texts.items() if reason in found]


def shortened(look: Lookup) -> list[str]:
    """One note per scope and method whose Steady runs, by which ratios divide, are not all valid."""
    asked = [("normaliser=", look.methods[:1], "nauc_task_safe", "nAUC divides by SAC on Steady")]
    asked += [("steady=", [m], "drop_task_safe", f"DropRatio of {m} divides by its Steady runs") for m in look.methods]
    notes = []
    for scope in look.scopes():
        for name, methods, metric, whose in asked:
            rows = [look.get(scope, m, p, metric) for m in methods for p in look.patterns]
            flags = {flag for row in rows if row for flag in row["flag"].split(";") if flag.startswith(name)}
            notes += [f"{scope[2]}: {whose}, of which {flag.removeprefix(name)} are valid." for flag in sorted(flags)]
    return notes
