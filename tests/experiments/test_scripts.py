"""Every script under `experiments/` is run as a person runs it, as far as a complete and checked configuration."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from experiments.study import train

SCRIPTS = Path(__file__).resolve().parents[2] / "experiments"
#: Those that are shortcuts for `aesjax run`, with the studies they must leave behind: folder below --out, and what
#: its configuration says.
SHORTCUTS = {
    "toy_sac": {".": {"carriers": ["sac"], "schedules": ["baseline", "aes", "aes_r"], "preset": "quick"}},
    "toy_table": {".": {"carriers": ["sac", "ppo", "sql", "meow"], "preset": "paper"}},
    "ablation": {".": {"carriers": ["sac", "ppo", "sql", "meow"], "evaluations": 100}},
    "sensitivity": {
        name: {"carriers": ["sac", "ppo", "sql", "meow"], "seeds": [1, 2, 3, 4, 5]} for name in ("q", "beta", "clip")
    },
    "mujoco_family": {
        name: {"task": name, "carriers": ["sac"]} for name in ("hopper", "halfcheetah", "walker2d", "ant", "humanoid")
    },
}
#: Those with tests of their own that run them to their end.
WHOLE = {
    "theory_oco",
    "theory_softmdp",
    "theory_calibration",
    "theory_detection",
    "theory_checks",
    "responses_table",
    "responses_figure",
    "single_file_sac",
    "torch_ppo",
}


def test_no_script_is_left_out():
    there = {path.stem for path in SCRIPTS.glob("*.py")} - {"__init__"}
    assert there - WHOLE == set(SHORTCUTS)


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_script_configures_the_study_that_it_names(name, tmp_path, monkeypatch, capsys):
    """All but the training itself: arguments are parsed, checked and written down before it."""
    trained = []

    def stop_here(claim, **options):
        trained.append(claim.directory)
        return train.Outcome(claim.directory, [], 0)

    monkeypatch.setattr(train, "train", stop_here)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--out", str(tmp_path / "out"), "--no-report"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().err
    # A family's report needs what training leaves; everything before it must have worked.
    assert (ended.value.code, said) == (0, "") or (name == "mujoco_family" and "manifest.json" in said)
    assert trained == [tmp_path / "out" / place for place in SHORTCUTS[name]]
    for place, expected in SHORTCUTS[name].items():
        config = json.loads((tmp_path / "out" / place / "config.json").read_text())
        assert expected.items() <= config.items()


def test_the_ablation_compares_the_rows_of_the_papers_table(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "train", lambda claim, **options: train.Outcome(claim.directory, [], 0))
    monkeypatch.setattr(sys, "argv", ["ablation.py", "--out", str(tmp_path / "out"), "--no-report"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPTS / "ablation.py"), run_name="__main__")
    schedules = json.loads((tmp_path / "out" / "config.json").read_text())["schedules"]
    assert schedules[:2] == ["baseline", "fixed"]
    assert sum("coupling=1" in entry for entry in schedules) == 5


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_script_refuses_a_wrong_name_in_one_sentence(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--out", str(tmp_path / "out"), "--carriers", "sak"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    assert ended.value.code == 2
    assert "did you mean 'sac'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
