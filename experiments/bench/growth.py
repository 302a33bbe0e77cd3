"""How cost grows: with the number of runs (seeds), and with the copies of an environment; a record and its picture.

Usage: python -m experiments.bench.growth --out benchmarks/growth.json --picture docs/growth.png
       python -m experiments.bench.growth --from benchmarks/growth.json --picture docs/growth.png
Runs are those of the toy task's preset `quick` under AES and one drift pattern, one per seed: their rate, the time of
the whole study, its memory. Copies are stepped under random actions without learning.
"""

import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import tyro

from experiments.bench.timing import check_record, write_record
from experiments.study import store
from experiments.study.devices import start_jax

RUNS = (1, 50, 400)
COPIES = (1, 64, 4096)
ENGINES = {"toy": None, "hopper": "mujoco"}


@dataclass
class Options:
    """Rates and memory against the number of runs and of copies."""

    carriers: tuple[str, ...] = ("ppo",)
    runs: tuple[int, ...] = RUNS
    copies: tuple[int, ...] = COPIES
    tasks: tuple[str, ...] = ("toy",)
    """Whose copies are stepped: toy, or hopper on the C engine."""
    rounds: int = 2
    seconds: float = 1.0
    """Of every number of runs, besides compiling."""
    out: Path | None = None
    """JSON file for the figures; must not exist."""
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """A record to draw instead of measuring."""
    picture: Path | None = None
    """PNG file for the figures."""


def growth_in_runs(carrier: str, count: int, seconds: float) -> dict[str, Any]:
    """Rates, seconds and memory of a study of ``count`` seeds."""
    from experiments.study.config import make_config
    from experiments.study.forecast import forecast
    from experiments.study.prepare import prepare

    config = make_config(
        task="toy", carriers=carrier, schedules="aes", patterns="abrupt", seeds=f"1:{count}", preset="quick"
    )
    [share] = forecast(config, prepare(config), seconds)
    assert share.seconds is not None
    chunks = share.chunks * share.waves
    return {
        "carrier": carrier,
        "runs": count,
        "updates_per_second": count * share.updates / (chunks * share.seconds.chunk),
        "study_seconds": share.total,
        "seconds": share.seconds._asdict(),
        "state_bytes_of_a_run": share.state,
        "replay_bytes_of_a_run": share.replay,
        "peak_bytes_of_the_process": _peak_bytes(),
    }


def growth_in_runs_alone(carrier: str, count: int, seconds: float) -> dict[str, Any]:
    """`growth_in_runs` in a process of its own, whose memory no other measurement has used."""
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, processes, start_jax, (None, False)) as one:
        return one.submit(growth_in_runs, carrier, count, seconds).result()


def _peak_bytes() -> int:
    """The most memory that this process has had."""
    with suppress(OSError):  # what `getrusage` tells on Linux includes that of the process that started this one
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def growth_in_copies(task: str, count: int, rounds: int) -> dict[str, Any]:
    """Environment steps per second of ``count`` copies with auto-reset."""
    from experiments.bench.physics import jitted

    timer = jitted(task, ENGINES[task], count)
    rates = [timer() for _ in range(rounds)]
    return {"task": task, "engine": ENGINES[task], "copies": count, "steps_per_second": median(rates), "rounds": rates}


def draw(record: dict[str, Any], path: Path) -> None:
    """Four panels: rate and time against runs, memory against runs, rate against copies."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6.5), layout="constrained")
    runs = {
        name: [e for e in record["runs"] if e["carrier"] == name] for name in {e["carrier"] for e in record["runs"]}
    }
    for name, entries in sorted(runs.items()):
        x = [entry["runs"] for entry in entries]
        axes[0, 0].plot(x, [entry["updates_per_second"] for entry in entries], "o-", label=name)
        axes[0, 1].plot(x, [entry["study_seconds"] for entry in entries], "o-", label=name)
        axes[1, 0].plot(x, [entry["state_bytes_of_a_run"] / 2**10 for entry in entries], "o-", label=f"{name}: state")
        peak = [entry["peak_bytes_of_the_process"] / entry["runs"] / 2**10 for entry in entries]
        axes[1, 0].plot(x, peak, ":", color=axes[1, 0].lines[-1].get_color(), label=f"{name}: process / runs")
        compiled = [entry["seconds"]["lowering"] + entry["seconds"]["compiling"] for entry in entries]
        axes[0, 1].plot(x, compiled, ":", color=axes[0, 1].lines[-1].get_color(), label=f"{name}: compiling")
    for task in dict.fromkeys(entry["task"] for entry in record["copies"]):
        entries = [entry for entry in record["copies"] if entry["task"] == task]
        x = [entry["copies"] for entry in entries]
        axes[1, 1].plot(x, [entry["steps_per_second"] for entry in entries], "o-", label=task)
    labels = (
        ("runs", "updates per second, all runs"),
        ("seeds", "seconds of a study"),
        ("runs", "KiB of a run"),
        ("copies", "environment steps per second"),
    )
    for panel, (x, y) in zip(axes.flat, labels, strict=True):
        panel.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    with store.replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=90)
    pyplot.close(figure)


def main() -> None:
    """Measure or read, write and draw where asked to."""
    options = tyro.cli(Options)
    if options.source is not None:
        record = store.read_json(options.source)
    else:
        check_record(options.out)
        start_jax(None, compiled=False)
        record = {"runs": [], "copies": []}
        for task in options.tasks:
            for count in options.copies:
                record["copies"].append(growth_in_copies(task, count, options.rounds))
                print(f"{task}: {count} copies, {record['copies'][-1]['steps_per_second']:,.0f} steps/s", flush=True)
        for carrier in options.carriers:
            for count in options.runs:
                record["runs"].append(growth_in_runs_alone(carrier, count, options.seconds))
                entry = record["runs"][-1]
                rate, study = entry["updates_per_second"], entry["study_seconds"]
                print(f"{carrier}: {count} runs, {rate:,.0f} updates/s, study {study:.0f} s", flush=True)
        asked = f"--carriers {' '.join(options.carriers)} --tasks {' '.join(options.tasks)}"
        write_record(options.out, f"python -m experiments.bench.growth {asked}", record)
    if options.picture is not None:
        draw(record, options.picture)


if __name__ == "__main__":
    main()
