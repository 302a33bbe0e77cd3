"""`aesjax verify`"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing


@dataclass
class Verify:
    """Check every file of studies against their seals, and every checkpoint against its own."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of studies, finished or interrupted, or of exported agents."""


def execute(options: Verify) -> int:
    """Check the folders in turn and say what is wrong with the first that is not whole."""
    from experiments.study.verify import verify

    with refusing():
        if not options.directories:
            raise ValueError("verify needs the folder of a study")
        for directory in options.directories:
            print(f"{directory}: {verify(directory)}")
    return DONE
