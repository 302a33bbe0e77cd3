"""`aesjax bench --gpu`: updates of every carrier with many runs, physics with many environments, in one record.

The most important measurements come first. The record is written after every one of them, and the call ends when its
time is up, whatever it is doing: `left_out` names the rest.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from experiments.bench import physics, updates
from experiments.study import store

Case = tuple[str, Callable[[], dict[str, Any]]]  # what it is called, and what measures it
ROUNDS = 3
_TRAINED = ("hopper", "halfcheetah", "ant", "humanoid", "isaac_ant")


def full(
    runs: Sequence[int] = (100, 25, 400, 1), copies: Sequence[int] = (4096, 16384, 1024, 8192), tasks: str = "all"
) -> list[Case]:
    """Updates of every carrier; control steps of all tasks on Warp and MJX; training of five tasks on Warp.

    Args:
      runs: numbers of vmapped runs, of updates.
      copies: numbers of parallel environments, of physics.
      tasks: as in ``aesjax bench --physics``.
    """
    cases: list[Case] = []
    for number, together in zip(runs, copies, strict=True):
        for carrier in ("sac", "ppo", "sql", "meow"):
            case = updates.setting(carrier, "small")
            cases.append((f"{carrier}, {number} runs", partial(updates.measured, case, number, ROUNDS)))
        names = sorted(physics.named(tasks), key=lambda task: task not in _TRAINED)
        for engine in ("warp", "mjx"):
            for task in names:
                training = engine == "warp" and together == copies[0] and task in _TRAINED
                one = partial(physics.measured, task, (engine,), together, ROUNDS, training, training)
                cases.append((f"{task}, {engine}, {together} environments", one))
    return cases


def measure(cases: Sequence[Case], out: Path, minutes: float) -> None:
    """Measure one case after another into ``out``; a case that fails (out of memory, say) is recorded with its reason.

    Where the time is up the process ends: a compilation that is under way cannot be interrupted, only left.
    """
    began, left, results = time.monotonic(), [name for name, _ in cases], []
    lock = threading.Lock()  # two threads write

    def write(ended: str) -> None:
        record = {"command": f"aesjax bench --gpu --minutes {minutes:g}"}
        record |= {"environment": store.environment(), "ended": ended, "seconds": time.monotonic() - began}
        store.write_json(out, record | {"left_out": left, "cases": results})

    def give_up() -> None:
        with lock:
            write("out of time")
        print(f"out of time; {out} has what there is", flush=True)
        os._exit(0)

    watchdog = threading.Timer(60.0 * minutes, give_up)
    watchdog.daemon = True
    watchdog.start()
    for name, case in cases:
        start = time.monotonic()
        try:
            result = case()
        except Exception as error:  # whatever it is: a machine is lent for minutes, and the rest can still be measured
            result = {"error": type(error).__name__ + ": " + (str(error).splitlines() or [""])[0][:200]}
        with lock:
            left.remove(name)
            peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")  # since the call began
            spent = {"seconds_with_compilation": time.monotonic() - start, "peak_bytes": peak}
            results.append({"case": name, **spent, **result})
            write("under way" if left else "complete")
        print(f"{time.monotonic() - began:5.0f} s  {name}", flush=True)
    watchdog.cancel()
