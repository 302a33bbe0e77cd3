"""`aesjax run --dry-run` beside the real time of three studies: forecast, study, forecast, one after another.

Usage: python -m experiments.bench.dry_run --out benchmarks/dry_run.json
The forecast is the mean of the two, because a shared machine changes while a study runs.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from aesjax.lab import store
from experiments.bench.timing import check_record, write_record
from experiments.study.compiled import SWITCH

STUDIES = {
    "toy SAC": "--schedules baseline,aes --patterns steady,abrupt --seeds 1:2",
    "toy PPO": "--carriers ppo --schedules baseline,aes --patterns all --seeds 1:5 --steps 100000",
    "Hopper PPO": "--task hopper --carriers ppo --schedules aes --patterns abrupt --seeds 1:2 --steps 102400",
}
SAID = re.compile(r"^estimated: (\d+) s", re.MULTILINE)


@dataclass
class Options:
    """Forecasts and real times of the studies of this script."""

    studies: tuple[str, ...] = tuple(STUDIES)
    out: Path | None = None
    """JSON file for the figures; must not exist."""


def aesjax_run(words: str, folder: Path, *more: str) -> str:
    """What `aesjax run` prints, in a process of its own whose compiled programs are kept beside ``folder``.

    Raises:
      CalledProcessError: it failed.
    """
    command = [sys.executable, "-m", "experiments.cli", "run", *shlex.split(words), "--out", str(folder), *more]
    kept = {SWITCH: str(folder.parent / "compiled")}
    return subprocess.run(command, env=os.environ | kept, check=True, capture_output=True, text=True).stdout


def measured(words: str) -> dict[str, Any]:
    """Two forecasts, the seconds of training between them, and their ratio."""
    with tempfile.TemporaryDirectory(prefix="aesjax-dry-run-") as place:
        folder, said = Path(place, "study"), []
        said.append(aesjax_run(words, folder, "--dry-run"))
        aesjax_run(words, folder, "--no-report")
        said.append(aesjax_run(words, Path(place, "other"), "--dry-run"))
        real = store.read_json(folder / store.MANIFEST)["wall_seconds"]
    forecasts = [int(number) for text in said for number in SAID.findall(text)]
    return {
        "options": words,
        "forecasts": forecasts,
        "real": real,
        "forecast_over_real": sum(forecasts) / len(forecasts) / real,
        "said": said[0].splitlines(),
    }


def main() -> None:
    """Measure, print, and write where asked to."""
    options = tyro.cli(Options)
    check_record(options.out)
    found = {}
    for name in options.studies:
        found[name] = measured(STUDIES[name])
        entry = found[name]
        print(f"{name}: {entry['forecasts']} s forecast, {entry['real']:.0f} s, {entry['forecast_over_real']:.2f}")
    write_record(options.out, "python -m experiments.bench.dry_run", {"load": os.getloadavg(), "studies": found})


if __name__ == "__main__":
    main()
