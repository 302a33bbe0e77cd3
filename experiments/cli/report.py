"""`aesjax report`"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing


@dataclass
class Report:
    """Write DIR/report from the results in DIR, or one report of several studies (tasks of a family) together."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished studies."""
    out: Path | None = None
    """With several folders: where the report goes; must be new or empty."""
    tensorboard: Path | None = None
    """Also write every logged number of every run as TensorBoard events into this folder, new or empty."""


def execute(options: Report) -> int:
    """Merge if several folders are given, and write the report."""
    from experiments.report import write_report
    from experiments.report.live import write_tensorboard
    from experiments.report.merge import merge_studies
    from experiments.study import store
    from experiments.study.store import open_results

    with refusing():
        folders, out = options.directories, options.out
        if not folders:
            raise ValueError("report needs the folder of a finished study")
        if (len(folders) > 1) != (out is not None):
            raise ValueError("--out and several folders belong together: they are merged into it")
        folder = folders[0] if out is None else merge_studies(folders, out)
        if options.tensorboard is not None:
            count = write_tensorboard(open_results(folder).rows(store.CURVES), options.tensorboard)
            print(f"tensorboard: {count} runs in {options.tensorboard}")
        print(f"report: {write_report(folder)}")
    return DONE
