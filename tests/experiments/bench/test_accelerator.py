"""The call that measures an accelerator ends in time with what it has, and a case that fails does not end it."""

import json
import subprocess
import sys

from experiments.bench import accelerator
from tests.pages import ROOT


def test_a_case_that_fails_is_recorded_and_one_that_hangs_is_left_out(tmp_path):
    out = tmp_path / "record.json"
    code = f"""
import time
from pathlib import Path
from experiments.bench.accelerator import measure

def fails():
    raise MemoryError("no room\\nfor this")

cases = [("bad", fails), ("good", lambda: {{"value": 1}}), ("hangs", lambda: time.sleep(600)), ("never", dict)]
measure(cases, Path({str(out)!r}), 0.05)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    assert record["ended"] == "out of time"
    assert record["cases"] == [{"case": "bad", "error": "MemoryError: no room"}, {"case": "good", "value": 1}]
    assert record["left_out"] == ["hangs", "never"]


def test_the_full_call_has_every_carrier_and_every_physics_task():
    names = {name.partition(",")[0] for name, _ in accelerator.full()}
    assert {"sac", "ppo", "sql", "meow", "hopper", "humanoid", "isaac_ant", "isaac_franka_cabinet"} <= names
    assert len(names) == 15
