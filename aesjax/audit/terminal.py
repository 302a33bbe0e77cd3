"""A table of the report on a terminal."""

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table as Printed

from aesjax.report.cells import Table

__all__ = ["printed"]

STYLES = {"better": "green", "worse": "red", "muted": "dim", "paper": "cyan"}


def printed(tables: Sequence[Table]) -> Iterator[Printed]:
    """The same rows, their groups as headings; long cells wrap."""
    for table in tables:
        shown = Printed(title=table.title, title_justify="left", show_lines=False, pad_edge=False)
        for at, text in enumerate(table.header):
            shown.add_column(text, overflow="fold", ratio=2 if at < table.labels else 1)
        for group, rows in table.groups:
            shown.add_row(f"[bold]{escape(group)}[/bold]")
            for row in rows:
                cells = [(escape(str(cell)), STYLES.get(cell.kind, "")) for cell in row]
                shown.add_row(*(f"[{style}]{text}[/{style}]" if style and text else text for text, style in cells))
            shown.add_section()
        yield shown
