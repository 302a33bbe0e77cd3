"""`aesjax bench` on tiny sizes: rates of every contestant, a record that survives a failed case, and refusals."""

import json

import pytest

from agents import CARRIERS
from envs import isaac, mujoco
from experiments.bench import timing
from experiments.cli import main
from experiments.cli.bench import Bench, _cases
from tests.refusals import refused


@pytest.mark.slow
def test_updates_and_physics_are_printed_and_recorded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(timing, "TARGET_SECONDS", 0.01)
    learning, physics = tmp_path / "learning.json", tmp_path / "physics.json"
    words = ["bench", "--carriers", "ppo", "--methods", "fixed,aes", "--runs", "2", "--rounds", "2"]
    assert main([*words, "--out", str(learning)]) == 0
    assert (
        main(
            [
                "bench",
                "--physics",
                "hopper",
                "--engines",
                "auto",
                "mujoco",
                "--envs",
                "2",
                "--rounds",
                "1",
                "--out",
                str(physics),
            ]
        )
        == 0
    )
    cases = [*json.loads(learning.read_text())["cases"], *json.loads(physics.read_text())["cases"]]
    assert [set(case["medians"]) for case in cases] == [{"fixed", "aes"}, {"mujoco", "gymnasium"}]
    assert [list(case["ratios"]) for case in cases] == [["time_of_aes_over_fixed"], ["mujoco_over_gymnasium"]]
    assert all(rate > 0 for case in cases for rate in case["medians"].values())
    printed = capsys.readouterr().out
    assert "ppo, 2 runs, environment steps/s: fixed " in printed
    assert "hopper, mujoco, 2 environments, steps/s: mujoco " in printed
    assert main(["bench", "--task", "hopper", "--methods", "fixed", "--runs", "2", "--rounds", "1"]) == 0
    assert "sac, hopper, 2 runs, updates/s: fixed " in capsys.readouterr().out
    assert "mujoco_over_gymnasium" in printed


def test_a_case_that_fails_or_is_killed_leaves_a_record(tmp_path):
    out = tmp_path / "record.json"

    def fails():
        raise MemoryError("no room\nfor this")

    def killed():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timing.measure([("bad", fails), ("good", lambda: {"value": 1}), ("killed", killed), ("never", dict)], out, {})
    record = json.loads(out.read_text())
    results = [{name: case.get(name) for name in ("case", "error", "value")} for case in record["cases"]]
    bad = {"case": "bad", "error": "MemoryError: no room", "value": None}
    assert results == [bad, {"case": "good", "error": None, "value": 1}]
    assert record["left_out"] == ["killed", "never"]


def test_the_call_for_an_accelerator_has_every_carrier_task_and_engine(tmp_path):
    names = [name for name, _ in _cases(Bench(gpu=True, out=tmp_path / "a.json"), None)]
    assert {name.partition(",")[0] for name in names} == {*CARRIERS, *mujoco.TASKS, *isaac.TASKS}
    assert "humanoid, warp, 16384 environments" in names
    assert "isaac_ant, mjx, 1024 environments" in names


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--carriers", "sax"], "unknown carrier 'sax'; did you mean 'sac'?"),
        (["--runs", "0"], "--rounds and --runs must be at least 1"),
        (["--gpu"], "name it with --out"),
        (["--rejax", "--task", "hopper"], "leave out --task or --rejax"),
    ],
)
def test_wrong_requests_are_refused(words, text, capsys):
    assert text in refused(capsys, "bench", *words)
