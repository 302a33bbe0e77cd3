"""`aesjax export`: trained agents on their own, to begin other studies with"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from experiments.cli.errors import DONE, refusing


@dataclass
class Export:
    """Write the agents that studies on the pattern steady ended with into a small folder for `--warm-start`."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of finished studies of one task; every carrier is taken from the first that trained it."""
    out: Path
    """Folder for the agents; must be new or empty."""
    seeds: str | None = None
    """Training seeds of the agents wanted, such as 1:5; by default all."""
    moments: bool = False
    """With what Adam remembers, which is twice the parameters; else it begins anew."""


def execute(options: Export) -> int:
    """Write them and say how large they are."""
    from experiments.study.config import parse_seeds
    from experiments.study.export import export

    with refusing():
        seeds = None if options.seeds is None else parse_seeds(options.seeds)
        if not options.folders:
            raise ValueError("give the folder of a finished study")
        size = export(options.folders, options.out, seeds=seeds, moments=options.moments)
    print(f"agents: {options.out} ({size / 1e6:.2f} MB)")
    return DONE
