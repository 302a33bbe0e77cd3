"""`aesjax seal`"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing
from experiments.cli.interrupts import current


@dataclass
class Seal:
    """Seal the results in DIR as they are, after they were changed on purpose; the manifest remembers it."""

    directory: tyro.conf.Positional[Path]
    """Folder of a finished study."""


def execute(options: Seal) -> int:
    """Seal, and print what differs from the seal before."""
    from experiments.study.ownership import Owner
    from experiments.study.results import reseal

    directory = options.directory
    current().begin()
    with refusing():
        if not directory.is_dir():
            raise ValueError(f"{directory} is not a folder")
        with Owner(directory):
            changed = reseal(directory)
    print(f"changed since the last seal: {', '.join(changed)}" if changed else "nothing has changed")
    return DONE
