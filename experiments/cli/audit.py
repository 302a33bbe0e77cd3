"""`aesjax audit`"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing

_MARKS = ("<!-- audit -->", "<!-- /audit -->")  # around the sentence in a text


@dataclass
class Audit:
    """Judge every quantitative claim of the AES paper by finished studies: reproduced, not reproduced, or not testable
    with what there is, and why."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished studies, or folders that hold such folders."""
    json: Path | None = None
    """Also write everything as JSON into this file."""
    out: Path | None = None
    """Also write a page: self-contained HTML, or Markdown where the name ends in .md."""
    into: Path | None = None
    """Also replace what stands between <!-- audit --> and <!-- /audit --> in this text by a summary."""


def execute(options: Audit) -> int:
    """Judge, print the table, and write what was asked for."""
    from rich.console import Console

    from experiments.audit import output
    from experiments.audit.terminal import printed
    from experiments.report.page import render_html, render_markdown
    from experiments.study import store

    with refusing():
        if not options.directories:
            raise ValueError("audit needs the folder of a finished study, or one that holds some")
        text = _marked(options.into) if options.into is not None else None
        found = output.audit(options.directories)
        console = Console()
        for table in printed(output.tables(found), console):
            console.print(table)
        data = output.record(found)
        console.print(data["sentence"], soft_wrap=True, highlight=False)
        if options.json is not None:
            store.write_json(options.json, data)
        if options.out is not None:
            page = output.page(found)
            markdown = options.out.suffix == ".md"
            store.write_text(options.out, render_markdown(page) if markdown else render_html(page))
            console.print(f"page: {options.out}", soft_wrap=True, highlight=False)
        if text is not None and options.into is not None:
            store.write_text(options.into, f"{text[0]}{_MARKS[0]}\n{data['sentence']}\n{_MARKS[1]}{text[1]}")
    return DONE


def _marked(path: Path) -> tuple[str, str]:
    """What stands before and behind the marks of a text.

    Raises:
      ValueError: it has none.
    """
    text = path.read_text(encoding="utf-8")
    before, first, rest = text.partition(_MARKS[0])
    _, second, behind = rest.partition(_MARKS[1])
    if not first or not second:
        raise ValueError(f"{path} lacks the marks {_MARKS[0]} and {_MARKS[1]}, between which the sentence goes")
    return before, behind
