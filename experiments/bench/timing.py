"""Shared parts of benchmarks: interleaved contestants, programs placed as in a study, and the record."""

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aesjax.types import Program
from experiments.study import store
from experiments.study.sweep import (
    Executables,
    cache_group,
    compile_program,
    memory_budget,
    plan_waves,
    stack,
    state_bytes,
)

TARGET_SECONDS = 1.0
Timer = Callable[[], float]  # does a fixed amount of work, returns its rate


def until(work: Callable[[], int]) -> Timer:
    """Repeats ``work``, which returns how many steps it made, for the target time."""

    def timer() -> float:
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < TARGET_SECONDS:
            steps += work()
        return steps / (time.perf_counter() - began)

    return timer


def build_executables(program: Program, items: list[Any], devices: list[Any]) -> tuple[Executables, Any]:
    """The program and its runs as a study would place them, padded to whole groups with the first run."""
    devices = devices[: len(items)]
    group = cache_group(devices, state_bytes(program, items[0]))
    waves = plan_waves(program, items[0], len(items), len(devices), memory_budget(devices), group)
    executables = compile_program(program, devices, waves.group)
    return executables, executables.place(stack(items + [items[0]] * (waves.width - len(items))))


def take_turns(contestants: dict[str, Timer], rounds: int) -> list[dict[str, float]]:
    """The rate of every contestant in every round."""
    measured: list[dict[str, float]] = []
    for index in range(rounds):
        names = list(contestants)
        turn = names[index % len(names) :] + names[: index % len(names)]  # nobody is always first
        measured.append({who: contestants[who]() for who in turn})
    return measured


def ratio(rounds: list[dict[str, float]], above: str, below: str) -> dict[str, float]:
    """Of two contestants, within rounds."""
    values = [entry[above] / entry[below] for entry in rounds]
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def check_record(out: Path | None) -> None:
    """Refuse to write over a record, or where none can be written, before anything is measured.

    Raises:
      ValueError: ``out`` exists.
      Unwritable: it cannot be written.
    """
    if out is None:
        return
    if out.exists() or out.is_symlink():
        raise ValueError(f"--out {out} exists; choose another file")
    with store.replacing(out) as partial:
        partial.touch()
    out.unlink()


def write_record(out: Path | None, command: str, figures: Mapping[str, Any]) -> None:
    """The command, what the figures depend on, and the figures; nothing where no file was asked for."""
    if out is None:
        return
    store.write_json(out, {"command": command, "environment": store.environment(), **figures})
    print(f"bench: written to {out}")
