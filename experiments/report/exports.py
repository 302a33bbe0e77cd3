"""The tables of a report as files: Markdown to read, CSV and Parquet to compute with."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.report.cells import Cell, Table

if TYPE_CHECKING:
    import polars as pl


_NUMBER = re.compile(r"[▲▼○\s]*(-?\d+(?:\.\d+)?)\s*%?[†‡]*")
_INTERVAL = re.compile(r"\[(-?\d+(?:\.\d+)?), (-?\d+(?:\.\d+)?)\]")
_COUNT = re.compile(r"n=(\d+)")


def frame_of(table: Table) -> "pl.DataFrame":
    """A table as columns: its group, its names, and each column of numbers as printed, with ``low`` and ``high`` where
    it has intervals. A column with anything but numbers and dashes stays text.

    Numbers are rounded as they are printed; ``metrics.parquet`` has all their digits.
    """
    import polars as pl

    groups = [title for title, rows in table.groups for _ in rows]
    columns: dict[str, pl.Series] = {"group": pl.Series(groups, dtype=pl.String)}
    for place, head in enumerate(table.header):
        cells = [row[place] for row in table.rows]
        name = _free(head, columns)
        if place < table.labels or not all(_is_number(cell) for cell in cells):
            columns[name] = pl.Series([str(cell) for cell in cells], dtype=pl.String)
            continue
        columns[name] = pl.Series([_value(cell) for cell in cells], dtype=pl.Float64)
        if any(_INTERVAL.search(cell.interval) for cell in cells):
            for i, end in enumerate(("low", "high"), 1):
                columns[f"{name} {end}"] = pl.Series([_found(_INTERVAL, cell, i) for cell in cells], dtype=pl.Float64)
        if any(_COUNT.search(cell.interval) for cell in cells):  # of the numbers that rest on fewer runs than there are
            columns[f"{name} n"] = pl.Series([_found(_COUNT, cell, 1) for cell in cells], dtype=pl.Float64)
    return pl.DataFrame(columns)


def write_tables(tables: Iterable[Table], folder: Path, markdown: dict[str, str]) -> None:
    """Write every table with rows into ``folder`` as ``KEY.md``, ``KEY.csv`` and ``KEY.parquet``.

    Args:
      tables: of the report.
      folder: exists.
      markdown: key of a table -> its text.
    """
    for table in tables:
        if table.rows:
            frame = frame_of(table)
            (folder / f"{table.key}.md").write_text(markdown[table.key], encoding="utf-8")
            frame.write_csv(folder / f"{table.key}.csv")
            frame.write_parquet(folder / f"{table.key}.parquet")


def _free(head: str, taken: Iterable[str]) -> str:
    """The head, numbered if an earlier column has it."""
    known = set(taken)
    return next(name for i in range(1, 100) if (name := head if i == 1 else f"{head} ({i})") not in known)


def _is_number(cell: Cell) -> bool:
    return cell.text.strip() in ("", "–") or _NUMBER.fullmatch(cell.text.strip()) is not None


def _value(cell: Cell) -> float | None:
    found = _NUMBER.fullmatch(cell.text.strip())
    return float(found[1]) if found else None


def _found(pattern: re.Pattern[str], cell: Cell, group: int) -> float | None:
    found = pattern.search(cell.interval)
    return float(found[group]) if found else None
