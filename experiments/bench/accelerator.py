"""One call that measures an accelerator: updates of every carrier with many runs, MJX with many copies, one record.

python experiments/bench/accelerator.py --out FILE.json [--minutes 9.5]

What matters most comes first. The record is written after every measurement, and the call ends when its time is up,
whatever it is doing: `left_out` names what it did not get to.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.bench import physics, updates
from experiments.bench.timing import check_record
from experiments.study import store

Case = tuple[str, Callable[[], dict[str, Any]]]  # what it is called, and what measures it
ROUNDS = 3


def full() -> list[Case]:
    """Updates with 100, 25, 400 and 1 runs of every carrier, and between them physics and training of all tasks."""
    cases: list[Case] = []
    for runs, copies in ((100, 4096), (25, 16384), (400, 1024), (1, 8192)):
        for carrier in ("sac", "ppo", "sql", "meow"):
            case = updates.setting(carrier, "small")
            cases.append((f"{carrier}, {runs} runs", partial(updates.measured, case, runs, ROUNDS)))
        for task in physics.named("all"):
            training = copies == 4096 and task in ("hopper", "isaac_ant")
            measure = partial(physics.measured, task, ("mjx",), copies, ROUNDS, training, training)
            cases.append((f"{task}, {copies} copies", measure))
    return cases


def measure(cases: Sequence[Case], out: Path, minutes: float) -> None:
    """Measure one case after another into ``out``; a case that fails (out of memory, say) is recorded with its reason.

    Where the time is up the process ends: a compilation that is under way cannot be interrupted, only left.
    """
    began, left, results = time.monotonic(), [name for name, _ in cases], []
    lock = threading.Lock()  # two threads write

    def write(ended: str) -> None:
        record = {"command": f"python experiments/bench/accelerator.py --minutes {minutes:g}"}
        record |= {"environment": store.environment(), "ended": ended, "seconds": time.monotonic() - began}
        store.write_json(out, record | {"left_out": left, "cases": results})

    def give_up() -> None:
        with lock:
            write("out of time")
        print(f"accelerator: out of time; {out} has what there is", flush=True)
        os._exit(0)

    watchdog = threading.Timer(60.0 * minutes, give_up)
    watchdog.daemon = True
    watchdog.start()
    for name, case in cases:
        try:
            result = case()
        except Exception as error:  # whatever it is: a machine is lent for minutes, and the rest can still be measured
            result = {"error": type(error).__name__ + ": " + (str(error).splitlines() or [""])[0][:200]}
        with lock:
            left.remove(name)
            results.append({"case": name, **result})
            write("under way" if left else "complete")
        print(f"{time.monotonic() - began:5.0f} s  {name}", flush=True)
    watchdog.cancel()


def main() -> None:
    """Measure until done or out of time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file; must not exist")
    parser.add_argument("--minutes", type=float, default=9.5, help="after which the call ends")
    given = parser.parse_args()
    check_record(given.out)
    measure(full(), given.out, given.minutes)


if __name__ == "__main__":
    main()
