"""A table of the report on a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as Printed
from rich.text import Text

from experiments.report.cells import NONE, Cell, Table

_STYLES = {"better": "green", "worse": "red", "muted": "dim", "paper": "cyan"}
_ROOM = 1.4  # width that a table gets at least, in multiples of that at which no word of it is broken


def printed(tables: Sequence[Table], console: Console) -> Iterator[RenderableType]:
    """The same rows, their groups as headings: side by side where the terminal is wide enough, else one below another.

    Long cells wrap.
    """
    for table in tables:
        wide = _wide(table)
        if _ROOM * Measurement.get(console, console.options, wide).minimum <= console.width:
            yield wide
        else:
            yield from _narrow(table)


def _styled(cell: Cell) -> Text:
    return Text(str(cell), _STYLES.get(cell.kind, ""))


def _wide(table: Table) -> Printed:
    shown = Printed(title=table.title, title_justify="left", show_lines=False, pad_edge=False)
    for at, text in enumerate(table.header):
        shown.add_column(text, overflow="fold", ratio=2 if at < table.labels else 1)
    for group, rows in table.groups:
        shown.add_row(Text(group, "bold"))
        for row in rows:
            shown.add_row(*map(_styled, row))
        shown.add_section()
    return shown


def _narrow(table: Table) -> Iterator[RenderableType]:
    """Each row a block of its own: its names, and below them a line for every other column that says something."""
    names = table.header[table.labels :]
    longest = max(map(len, names), default=0)
    yield Text(table.title, "italic")
    for group, rows in table.groups:
        yield Text(f"\n{group}", "bold")
        for row in rows:
            yield Padding(Text(" · ").join(map(_styled, row[: table.labels])), (0, 0, 0, 2))
            block = Printed.grid(padding=(0, 2))
            block.add_column(no_wrap=True, min_width=longest, style="dim")
            block.add_column(overflow="fold")
            for text, cell in zip(names, row[table.labels :], strict=False):
                if str(cell) not in ("", NONE):
                    block.add_row(text, _styled(cell))
            yield Padding(block, (0, 0, 0, 6))
