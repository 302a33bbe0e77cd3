"""`aesjax run --dry-run` beside what three studies really take, in seconds of processor time.

Usage: python -m experiments.bench.dry_run --out benchmarks/dry_run.json
Processor time of all threads, because other work on a shared machine comes and goes while a study runs, and takes its
share of the clock on the wall, not of this. Both are recorded for the study itself.
"""

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from experiments.bench.timing import check_record, write_record
from experiments.study.compiled import keep_in
from experiments.study.devices import start_jax

STUDIES: dict[str, dict[str, Any]] = {
    "toy SAC": {"schedules": "baseline,aes", "patterns": "steady,abrupt", "seeds": "1:2"},
    "toy PPO": {"carriers": "ppo", "schedules": "baseline,aes", "patterns": "steady,abrupt", "seeds": "1:5"},
    "Hopper PPO": {"task": "hopper", "carriers": "ppo", "schedules": "aes", "patterns": "abrupt", "seeds": "1:2"},
}


@dataclass
class Options:
    """Forecasts and real times of the studies of this script, preset `quick`."""

    studies: tuple[str, ...] = tuple(STUDIES)
    out: Path | None = None
    """JSON file for the figures; must not exist."""


def measured(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The forecast of a study, what training it in ``folder`` takes, and their ratio."""
    from experiments.study.config import make_config
    from experiments.study.folder import claim
    from experiments.study.forecast import forecast, world_seconds
    from experiments.study.prepare import prepare
    from experiments.study.train import train

    given: dict[str, Any] = {"task": "toy", "carriers": "sac", **options}
    config = make_config(**given)
    prepared = prepare(config)
    shares = forecast(config, prepared, clock=time.process_time)
    said = world_seconds(config, time.process_time) + sum(share.total for share in shares)
    wall, processor = time.perf_counter(), time.process_time()
    train(claim(config, folder, resume=False), prepared=prepared, quiet=True)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return {
        "options": options,
        "forecast": said,
        "real": processor,
        "real_wall": wall,
        "forecast_over_real": said / processor,
        "shares": [share._asdict() | {"seconds": share.seconds and share.seconds._asdict()} for share in shares],
    }


def main() -> None:
    """Measure, print, and write where asked to."""
    options = tyro.cli(Options)
    check_record(options.out)
    start_jax(None, compiled=False)
    found = {}
    with tempfile.TemporaryDirectory(prefix="aesjax-dry-run-") as place:
        keep_in(Path(place, "compiled"))
        for name in options.studies:
            found[name] = measured(STUDIES[name], Path(place, name.replace(" ", "-")))
            said, real, ratio = (found[name][key] for key in ("forecast", "real", "forecast_over_real"))
            print(f"{name}: {said:.1f} s of processor time forecast, {real:.1f} s taken, ratio {ratio:.2f}", flush=True)
    write_record(options.out, "python -m experiments.bench.dry_run", {"load": os.getloadavg(), "studies": found})


if __name__ == "__main__":
    main()
