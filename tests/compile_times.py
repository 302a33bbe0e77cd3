"""`pytest --compile-times`: what each test file costs, and how much of it is XLA compiling."""

import os
from collections import defaultdict

import jax
import pytest

COLUMNS = ("wall", "cpu", "compile", "programs", "cached")
COMPILE = "/jax/core/compile/backend_compile_duration"
CACHED = "/jax/compilation_cache/cache_hits"


class CompileTimes:
    """Adds up, over the phases of all tests, what passed in the process that ran them.

    A fixture of a session or a module is charged to the first test that uses it. ``cpu`` counts all threads and
    the subprocesses that have ended; ``compile`` is wall time inside XLA, ``programs`` the executables it handed out,
    ``cached`` those of them that it read back instead of compiling.
    """

    def __init__(self):
        self.now = dict.fromkeys(COLUMNS, 0.0)
        self.total = defaultdict(lambda: dict.fromkeys(COLUMNS, 0.0))
        self.last = None
        jax.monitoring.register_event_duration_secs_listener(self.on_duration)
        jax.monitoring.register_event_listener(self.on_event)

    def on_duration(self, event, duration, **_):
        if event == COMPILE:
            self.now["compile"] += duration
            self.now["programs"] += 1

    def on_event(self, event, **_):
        self.now["cached"] += event == CACHED

    def read(self):
        times = os.times()
        return self.now | {"wall": times.elapsed, "cpu": sum(times[:4])}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        self.last = self.read()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        now = self.read()
        report.user_properties.append(("compile_times", {name: now[name] - self.last[name] for name in COLUMNS}))
        self.last = now
        return report

    def pytest_runtest_logreport(self, report):  # in the process that prints, also under xdist
        for name, cost in report.user_properties:
            if name == "compile_times":
                for column in COLUMNS:
                    self.total[report.location[0]][column] += cost[column]

    def pytest_terminal_summary(self, terminalreporter):
        rows = sorted(self.total.items(), key=lambda row: -row[1]["cpu"])
        everything = {column: sum(cost[column] for _, cost in rows) for column in COLUMNS}
        terminalreporter.section("seconds by file (wall, cpu, compiling; programs, of them cached)")
        for file, cost in [*rows, ("all", everything)]:
            wall, cpu, compiling, programs, cached = (cost[column] for column in COLUMNS)
            terminalreporter.line(f"{wall:8.1f} {cpu:8.1f} {compiling:8.1f} {programs:7.0f} {cached:7.0f}  {file}")
