"""`aesjax report`"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing
from experiments.cli.interrupts import current

__all__ = ["Report", "execute"]


@dataclass
class Report:
    """Write DIR/report from the results in DIR, or one report of several studies (tasks of a family) together."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished studies."""
    out: Path | None = None
    """With several folders: where their results and report go together; must be new or empty."""


def execute(options: Report) -> int:
    """Merge if several folders are given, then write the report."""
    from aesjax.lab.merge import merge_studies
    from aesjax.report import write_report

    current().begin()
    with refusing():
        folders, out = options.directories, options.out
        if not folders:
            raise ValueError("report needs the folder of a finished study")
        if (len(folders) > 1) != (out is not None):
            raise ValueError("--out and several folders belong together: they are merged into it")
        folder = folders[0] if out is None else merge_studies(folders, out)
        print(f"report: {write_report(folder)}")
    return DONE
