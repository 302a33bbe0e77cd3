"""`aesjax audit`"""

import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing


@dataclass
class Audit:
    """Judge every quantitative claim of the AES paper by finished studies: reproduced, not reproduced, or not testable
    with what there is, and why."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished studies, or folders that hold such folders."""
    json: Path | None = None
    """Also write everything as JSON into this file; - is standard output."""
    out: Path | None = None
    """Also write a page: self-contained HTML, or Markdown where the name ends in .md; - is standard output."""


def execute(options: Audit) -> int:
    """Judge, print the table, and write what was asked for."""
    from rich.console import Console
    from rich.markdown import Markdown

    from experiments.paper import audit
    from experiments.report.page import render_html, render_markdown, render_table
    from experiments.study import store

    with refusing():
        if not options.directories:
            raise ValueError("audit needs the folder of a finished study, or one that holds some")
        found = audit.audit(options.directories)
        console = Console(stderr=not {str(options.json), str(options.out)}.isdisjoint(store.STDOUT))
        for table in audit.tables(found):
            console.print(Markdown(render_table(table)))
        data = audit.record(found)
        console.print(data["sentence"], soft_wrap=True, highlight=False)
        if options.json is not None:
            store.write_output(options.json, json.dumps(data, indent=1) + "\n")
        if options.out is not None:
            page = audit.page(found)
            markdown = options.out.suffix == ".md"
            store.write_output(options.out, render_markdown(page) if markdown else render_html(page))
            console.print(f"page: {options.out}", soft_wrap=True, highlight=False)
    return DONE
