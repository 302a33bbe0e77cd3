"""Shared parts of benchmarks: interleaved contestants, programs placed as in a study, and the record."""

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from aesjax.types import Program
from experiments.study import store
from experiments.study.sweep import cache_group, compile_program, memory_budget, plan_waves, stack, state_bytes

TARGET_SECONDS = 1.0
Timer = Callable[[], float]  # does a fixed amount of work, returns its rate


def until(work: Callable[[], float]) -> Timer:
    """Repeats ``work``, which returns how many steps it made, for the target time."""

    def timer() -> float:
        began, steps = time.perf_counter(), 0.0
        while time.perf_counter() - began < TARGET_SECONDS:
            steps += work()
        return steps / (time.perf_counter() - began)

    return timer


def training(program: Program, items: list[Any], chunk: int, evaluations: int, work: float) -> Timer:
    """Stacked runs that learn, placed as in a study, at the rate of ``work`` per call of the program.

    Args:
      items: the runs; a group that they do not fill is padded with the first.
      chunk: vector steps of a call.
      evaluations: calls in a horizon; the first, in which a run warms up, is not timed.
    """
    devices = list(jax.local_devices())[: len(items)]
    group = cache_group(devices, state_bytes(program, items[0]))
    waves = plan_waves(program, items[0], len(items), len(devices), memory_budget(devices), group)
    executables = compile_program(program, devices, waves.group)
    data = executables.place(stack(items + [items[0]] * (waves.width - len(items))))
    state, done = executables.init(data), 0

    def advance() -> float:
        nonlocal state, done
        state, _ = executables.chunk(state, data, jnp.int32(done * chunk))
        jax.block_until_ready(state)
        done = done % (evaluations - 1) + 1
        return work

    advance()
    advance()
    return until(advance)


def in_turns(contestants: Mapping[str, Timer], rounds: int, ratios: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Medians of the contestants, ratios of pairs of them within rounds, and the rates of every round.

    Args:
      ratios: name -> two contestants; a pair that does not take part is left out.
    """
    measured: list[dict[str, float]] = []
    for index in range(rounds):
        names = list(contestants)
        turn = names[index % len(names) :] + names[: index % len(names)]  # nobody is always first
        measured.append({who: contestants[who]() for who in turn})
    found = {}
    for name, (above, below) in ratios.items():
        if above in contestants and below in contestants:
            values = [entry[above] / entry[below] for entry in measured]
            found[name] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    medians = {who: statistics.median(entry[who] for entry in measured) for who in contestants}
    return {"medians": medians, "ratios": found, "rounds": measured}


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
