"""One call that measures an accelerator: updates, schedules, order statistics, MJX, training, memory, compile times.

python experiments/bench/accelerator.py --out FILE.json [--minutes 9.5] [--size tiny]

The record is written after every group of measurements, and the call ends when its time is up, whatever it is doing:
`left_out` names what it did not get to. What matters most comes first. A group is traced one program after another,
compiled side by side on all cores, and then measured alone. With JAX_COMPILATION_CACHE_DIR set, a second call begins
with what the first one compiled. `benchmarks/roofline.json` holds what to expect.
"""

import argparse
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import jax

from envs.physics.host import usable_cores
from experiments.bench.accelerated import (
    Case,
    Prepared,
    order_case,
    peaks,
    physics_case,
    schedules_case,
    table_case,
    training_case,
)
from experiments.bench.physics import named
from experiments.bench.timing import check_record
from experiments.study import store

_TOY = {"task": "toy", "preset": "paper"}
_CALM = {"task": "toy", "preset": "quick"}
_Study = dict[str, Any]


class Plan(NamedTuple):
    """What to measure; of every list the first entries first."""

    carriers: Sequence[str]
    study: _Study  # of the updates
    runs: Sequence[int]
    schedules: Sequence[str]  # of SAC, in turns
    schedule_runs: int
    order: Sequence[tuple[int, int]]  # runs, residuals
    tasks: Sequence[str]  # on MJX
    copies: Sequence[int]
    steps: int  # of the physics, in a call
    training: Sequence[tuple[_Study, str, int]]  # on MJX: study, carrier, runs
    table: _Study
    megabytes: int  # of a copy
    width: int  # of a product


def _on_mjx(task: str, preset: str) -> _Study:
    return {"task": task, "preset": preset, "options": {"engine": "mjx"}}


SIZES = {
    "full": Plan(
        carriers=("sac", "ppo", "sql", "meow"),
        study=_TOY,
        runs=(100, 400, 1, 25, 200, 50, 5),
        schedules=("fixed", "aes", "aes_r", "auto"),
        schedule_runs=100,
        order=((25, 256), (100, 256), (400, 256), (100, 1024), (100, 4096)),
        tasks=named("all"),
        copies=(4096, 16384, 1024, 8192, 2048),
        steps=50,
        training=(
            (_on_mjx("isaac_ant", "paper"), "ppo", 1),
            (_on_mjx("hopper", "quick"), "sac", 100),
            (_on_mjx("isaac_ant", "paper"), "sac", 1),
            (_on_mjx("hopper", "quick"), "ppo", 100),
        ),
        table=_TOY | {"patterns": "all", "seeds": "1:5"},
        megabytes=4096,
        width=8192,
    ),
    "tiny": Plan(
        carriers=("sac",),
        study=_CALM,
        runs=(2,),
        schedules=("aes",),
        schedule_runs=2,  # the same program again, for which a cache of compilations has to compile once
        order=((2, 64),),
        tasks=("isaac_ingenuity",),
        copies=(4,),
        steps=2,
        training=(),
        table=_CALM | {"patterns": "steady", "seeds": "1"},
        megabytes=1,
        width=64,
    ),
}


def cases_of(plan: Plan) -> list[list[Case]]:
    """The measurements in groups; a group takes one layer of every kind."""
    first = [
        peaks(plan.megabytes, plan.width),
        *(order_case(rows, size) for rows, size in plan.order),
        schedules_case(plan.study, plan.schedules, plan.schedule_runs, 3),
    ]
    updates = [[training_case("updates", plan.study, each, runs) for each in plan.carriers] for runs in plan.runs]
    physics = [[physics_case(task, copies, plan.steps) for task in plan.tasks] for copies in plan.copies]
    training = [[training_case("training", *each)] for each in plan.training]
    table = [[table_case(carrier, plan.table) for carrier in plan.carriers]]
    groups = [first]
    for learned, trained, stepped, tabled in zip_longest(updates, training, physics, table, fillvalue=[]):
        groups += [group for group in ([*learned, *trained, *tabled], stepped) if group]
    return groups


class Recorder:
    """The record, on disk whenever it changes; two threads may write."""

    def __init__(self, out: Path, record: dict[str, Any], groups: Sequence[Sequence[Case]]) -> None:
        self.out, self.record = out, record
        self.missing = [case for group in groups for case in group]
        self.lock, self.began = threading.Lock(), time.monotonic()
        record["results"] = []

    def write(self, ended: str) -> None:
        """All there is, and how it ended."""
        with self.lock:
            left = [{"section": case.section, **case.what} for case in self.missing]
            passed = {"ended": ended, "seconds": time.monotonic() - self.began, "left_out": left}
            store.write_json(self.out, self.record | passed)

    def add(self, case: Case, result: dict[str, Any]) -> None:
        """One measurement, or what went wrong with it."""
        with self.lock:
            self.missing.remove(case)
            self.record["results"].append({"section": case.section, "case": case.what, **result})
        print(f"{time.monotonic() - self.began:5.0f} s  {case.section} {case.what}: {result}", flush=True)


def measure_all(groups: Sequence[Sequence[Case]], recorder: Recorder, deadline: float) -> str:
    """Group after group until ``deadline`` (of `time.monotonic`); says how it ended.

    A measurement that fails (out of memory, say) is recorded with its reason, and the rest goes on.
    """
    for group in groups:
        prepared: list[tuple[Case, Prepared]] = []
        for case in group:
            if time.monotonic() > deadline:
                return "out of time"
            found = _attempt(case, recorder, case.prepare)
            if found is not None:
                prepared.append((case, found))
        with ThreadPoolExecutor(usable_cores()) as pool:
            waiting = [(case, each, pool.submit(_compiled, each.programs)) for case, each in prepared]
            ready = [(case, each, _attempt(case, recorder, future.result)) for case, each, future in waiting]
        for case, each, compiled in ready:
            if time.monotonic() > deadline:
                return "out of time"
            if compiled is None:
                continue
            programs, seconds = compiled
            result = _attempt(case, recorder, each.measure, programs)
            if result is not None:
                recorder.add(case, {"compile_s": seconds, **result})
        recorder.write("under way")
    return "complete"


def _compiled(programs: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """And how long each took, beside the others of its group."""
    compiled, seconds = {}, {}
    for name, lowered in programs.items():
        began = time.monotonic()
        compiled[name] = lowered.compile()
        seconds[name] = time.monotonic() - began
    return compiled, seconds


def _attempt(case: Case, recorder: Recorder, function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:  # whatever it is: a machine is lent for minutes, and the rest can still be measured
        recorder.add(case, {"error": type(error).__name__ + ": " + (str(error).splitlines() or [""])[0][:200]})
        return None


def _give_up(recorder: Recorder) -> None:
    """The last resort: a compilation that does not end cannot be interrupted, only left."""
    recorder.write("out of time")
    print(f"accelerator: out of time; {recorder.out} has what there is", flush=True)
    os._exit(0)


def main() -> None:
    """Measure until done or out of time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file; must not exist")
    parser.add_argument("--minutes", type=float, default=9.5, help="after which the call ends")
    parser.add_argument("--size", choices=tuple(SIZES), default="full", help="tiny: to see that it works, anywhere")
    given = parser.parse_args()
    check_record(given.out)
    command = f"python experiments/bench/accelerator.py --minutes {given.minutes:g} --size {given.size}"
    memory = jax.local_devices()[0].memory_stats() or {}
    record = {"command": command, "environment": store.environment(), "memory": memory.get("bytes_limit")}
    groups = cases_of(SIZES[given.size])
    recorder = Recorder(given.out, record, groups)
    recorder.write("under way")
    watchdog = threading.Timer(60.0 * given.minutes, _give_up, (recorder,))
    watchdog.daemon = True
    watchdog.start()
    ended = measure_all(groups, recorder, time.monotonic() + 60.0 * given.minutes - 5.0)
    watchdog.cancel()
    recorder.write(ended)
    print(f"accelerator: {ended}; {given.out}", flush=True)


if __name__ == "__main__":
    main()
