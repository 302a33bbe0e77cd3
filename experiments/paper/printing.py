"""A table of the paper on the terminal, as Markdown and as a page; all three name the missing cells."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from experiments.measure.study import load_study
from experiments.measure.summary import summarise
from experiments.report.cells import Lookup, Table
from experiments.report.merge import join_studies
from experiments.report.page import Page, render_html, render_table
from experiments.study import store

_REPLICATES = 2_000  # of the bootstrap; the reports of the studies have more


def look_of(folders: Sequence[Path]) -> Lookup:
    """All studies together.

    Raises:
      ValueError: they cannot be read, or do not fit together.
    """
    config, manifest, curves = join_studies(folders)
    study = load_study(curves, config, manifest)
    frame = summarise(curves, config, manifest, replicates=_REPLICATES)
    return Lookup(frame, study)


def show(out: Path, name: str, title: str, tables: Sequence[Table], lacking: str, folders: Sequence[Path]) -> None:
    """Print the tables and write ``out/NAME.md`` and ``out/NAME.html``.

    Args:
      lacking: what of the paper's table there are no results for; marks every table.
    """
    for table in tables:
        if lacking:
            table.title += " (INCOMPLETE)"
            table.notes.insert(0, f"Incomplete: nothing or too little of {lacking}.")
    console = Console()
    for table in tables:
        console.print(Markdown(render_table(table)))
    page = Page(
        title=title,
        subtitle=f"{len(folders)} studies: {', '.join(map(str, folders))}",
        status="Incomplete." if lacking else "All cells of the paper's table are there.",
        problems=[f"nothing or too little of {lacking}"] if lacking else [],
        tables=tables,
    )
    store.write_text(out / f"{name}.md", "\n".join([f"# {title}", "", *map(render_table, tables)]))
    store.write_text(out / f"{name}.html", render_html(page))
    console.print(f"table: {out / f'{name}.md'}\npage: {out / f'{name}.html'}", highlight=False, soft_wrap=True)
