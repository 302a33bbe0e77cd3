"""`aesjax join`: the parts of a study as one"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing


@dataclass
class Join:
    """Make one study of the parts that `aesjax submit` had trained; also done at the end of the last part."""

    directory: tyro.conf.Positional[Path]
    """Folder of the study."""
    report: bool = True
    """Write the report, too, if the study was submitted with one."""


def execute(options: Join) -> int:
    """Join, and write the report."""
    with refusing():
        join_and_report(options.directory, report=options.report)
    return DONE


def join_and_report(directory: Path, *, report: bool = True) -> None:
    """Join what is not joined yet, write the report if it was requested, and say so."""
    from experiments.study.join import join

    plan, new = join(directory)
    print(f"study: {directory} ({plan.parts} parts{'' if new else ', joined before'})", flush=True)
    if new and report and plan.report:
        from experiments.report import write_report

        print(f"report: {write_report(directory)}")
