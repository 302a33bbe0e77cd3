"""The call that measures an accelerator ends in time with what it has, and a case that fails does not end it."""

import json
import subprocess
import sys

import pytest

from agents import CARRIERS
from envs import isaac, mujoco
from experiments.bench import accelerator, timing, updates
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
    results = [{name: case.get(name) for name in ("case", "error", "value")} for case in record["cases"]]
    bad = {"case": "bad", "error": "MemoryError: no room", "value": None}
    assert results == [bad, {"case": "good", "error": None, "value": 1}]
    assert record["left_out"] == ["hangs", "never"]


def test_the_full_call_has_every_carrier_every_task_and_both_engines():
    names = [name for name, _ in accelerator.full()]
    assert {name.partition(",")[0] for name in names} == {*CARRIERS, *mujoco.TASKS, *isaac.TASKS}
    assert "humanoid, warp, 16384 environments" in names
    assert "isaac_ant, mjx, 1024 environments" in names


@pytest.mark.slow
def test_its_cases_run(tmp_path, monkeypatch):
    """One schedule with all adaptations, and no time to repeat."""
    pytest.importorskip("warp", reason="an extra, which `make test-all` installs")
    monkeypatch.setattr(timing, "TARGET_SECONDS", 0.01)
    monkeypatch.setattr(updates, "SCHEDULES", ())
    monkeypatch.setattr(updates, "LEVERS", ("aes_r:dynamics+recent",))
    out = tmp_path / "record.json"
    cases = accelerator.full(runs=(2,), copies=(2,), tasks="hopper")
    accelerator.measure([case for case in cases if case[0].startswith(("sac", "hopper, warp"))], out, 60.0)
    record = json.loads(out.read_text())
    assert record["ended"] == "complete"
    assert [case["case"] for case in record["cases"]] == ["sac, 2 runs", "hopper, warp, 2 environments"]
    assert not [case["error"] for case in record["cases"] if "error" in case]
    for case in record["cases"]:
        assert all(rate > 0 for rate in case["medians"].values())
