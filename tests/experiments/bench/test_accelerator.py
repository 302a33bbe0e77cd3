"""The call that measures an accelerator: it ends in time, with what it has, and works where there is none."""

import json
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from experiments.bench import accelerator
from experiments.bench.accelerated import Case, Prepared
from experiments.bench.accelerator import SIZES, Recorder, cases_of, measure_all

ROOT = Path(__file__).resolve().parents[3]


def a_case(name, measure):
    program = jax.jit(lambda x: x + 1.0).lower(jnp.zeros(()))
    return Case("test", {"name": name}, lambda: Prepared({"program": program}, measure))


def recorded(tmp_path, groups, deadline):
    recorder = Recorder(tmp_path / "record.json", {"command": "test"}, groups)
    recorder.write(measure_all(groups, recorder, deadline))
    return json.loads((tmp_path / "record.json").read_text())


def test_a_measurement_that_fails_is_recorded_and_the_rest_goes_on(tmp_path):
    def fails(compiled):
        raise MemoryError("no room\nfor this")

    good = a_case("good", lambda compiled: {"value": float(compiled["program"](jnp.zeros(())))})
    record = recorded(tmp_path, [[a_case("bad", fails), good]], time.monotonic() + 60)
    assert record["ended"] == "complete"
    assert record["left_out"] == []
    bad, good = record["results"]
    assert bad == {"section": "test", "case": {"name": "bad"}, "error": "MemoryError: no room"}
    assert good["value"] == 1.0
    assert good["compile_s"]["program"] > 0


def test_what_there_was_no_time_for_is_named(tmp_path):
    late = [[a_case("first", lambda compiled: {})], [a_case("second", lambda compiled: {})]]
    record = recorded(tmp_path, late, time.monotonic() - 1)
    assert record["ended"] == "out of time"
    assert record["results"] == []
    assert [case["name"] for case in record["left_out"]] == ["first", "second"]


def test_a_call_that_hangs_ends_with_what_it_has(tmp_path):
    code = f"""
import threading, time
from pathlib import Path
from tests.experiments.bench.test_accelerator import a_case
from experiments.bench.accelerator import Recorder, _give_up, measure_all

def hangs(compiled):
    threading.Timer(0.2, _give_up, (recorder,)).start()
    time.sleep(600)

groups = [[a_case("done", lambda compiled: {{"value": 1}})], [a_case("hangs", hangs)]]
recorder = Recorder(Path({str(tmp_path / "record.json")!r}), {{}}, groups)
measure_all(groups, recorder, time.monotonic() + 600)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["ended"] == "out of time"
    assert [result["case"]["name"] for result in record["results"]] == ["done"]
    assert [case["name"] for case in record["left_out"]] == ["hangs"]


def test_the_full_plan_has_every_carrier_task_and_number_of_copies_and_what_matters_first():
    groups = cases_of(SIZES["full"])
    cases = [case for group in groups for case in group]
    updates = {(case.what["carrier"], case.what["runs"]) for case in cases if case.section == "updates"}
    assert updates == {(c, r) for c in ("sac", "ppo", "sql", "meow") for r in (1, 5, 25, 50, 100, 200, 400)}
    physics = {(case.what["task"], case.what["copies"]) for case in cases if case.section == "physics"}
    assert len({task for task, _ in physics}) == 11
    assert {copies for _, copies in physics} == {1024, 2048, 4096, 8192, 16384}
    assert {case.what["carrier"] for case in cases if case.section == "training"} == {"sac", "ppo"}
    assert {case.section for case in groups[0]} == {"peaks", "order", "schedules"}
    assert {case.section for group in groups[1:3] for case in group} == {"updates", "training", "toy_table", "physics"}


@pytest.mark.slow
def test_the_tiny_form_measures_everything_on_a_cpu(tmp_path, monkeypatch, capsys):
    out = tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", ["accelerator.py", "--out", str(out), "--size", "tiny", "--minutes", "30"])
    accelerator.main()
    record = json.loads(out.read_text())
    assert record["ended"] == "complete"
    assert not [result for result in record["results"] if "error" in result]
    by_section = {result["section"]: result for result in record["results"]}
    assert set(by_section) == {"peaks", "order", "schedules", "updates", "toy_table", "physics"}
    assert by_section["updates"]["updates_per_s"] > 0
    assert by_section["updates"]["state_and_data_bytes_per_run"] > 1000
    assert by_section["updates"]["compile_s"]["chunk"] > 0
    assert by_section["physics"]["env_steps_per_s"] > 0
    assert by_section["toy_table"]["without_compilation_s"] > 0
    assert set(by_section["order"]["microseconds"]) >= {"all_pairs", "sort"}
    assert record["environment"]["device"] == "cpu"
    assert "out of time" not in capsys.readouterr().out
