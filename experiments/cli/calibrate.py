"""`aesjax calibrate`"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing
from experiments.study.process import start_jax


@dataclass
class Calibrate:
    """Compare the proxies recorded in DIR with the true drift: the bound that they give on it, how often it holds."""

    directory: tyro.conf.Positional[Path]
    """Folder of a finished study."""
    out: Path | None = None
    """Folder for calibration.json and calibration.md, which must not be there yet; by default DIR."""
    delta: float = 0.1
    """Share of fresh runs that may break the bound; needs at least 1/delta - 1 runs of every method."""


def execute(options: Calibrate) -> int:
    """Calibrate and print the tables."""
    from experiments.report import calibration

    out = options.out or options.directory
    with refusing():
        start_jax(None)
        text = calibration.run(options.directory, options.delta, out)
    print(f"{text}\n\ncalibration: {out / calibration.TEXT}")
    return DONE
