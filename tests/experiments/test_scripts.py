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
}
#: Those of the paper's tables: what they train at the preset `paper`, with the options that make one study of it.
TABLES: dict[str, tuple[tuple[str, ...], dict[str, dict]]] = {
    "toy_table": (
        (),
        {
            "main/toy": {"carriers": ["sac", "sql", "meow"], "preset": "paper", "steps": 100_000},
            "main/toy-ppo": {"carriers": ["ppo"], "schedules": ["baseline", "aes", "aes_r"]},
        },
    ),
    "mujoco_table": (
        ("--carriers", "ppo"),  # without a replay, for which not every machine has the memory
        {f"main/{name}-ppo": {"task": name} for name in ("hopper", "halfcheetah", "walker2d", "ant", "humanoid")},
    ),
    "isaac_table": (("--carriers", "ppo", "--tasks", "isaac_ant"), {"main/isaac_ant-ppo": {"preset": "paper"}}),
    "recovery_table": (
        ("--carriers", "ppo", "--tasks", "toy,hopper"),
        {f"main/{name}-ppo": {"patterns": ["steady", "abrupt"]} for name in ("toy", "hopper")},
    ),
    "ablation_table": (("--tasks", "toy"), {"ablation/toy": {"carriers": ["sac", "ppo", "sql", "meow"]}}),
    "quantile_table": (("--tasks", "toy"), {"sensitivity_q/toy": {"seeds": list(range(1, 11))}}),
    "ema_table": (("--tasks", "toy", "--seeds", "1:2"), {"sensitivity_beta/toy": {"seeds": [1, 2]}}),
    "clip_table": (("--tasks", "toy"), {"sensitivity_clip/toy": {"evaluations": 100}}),
    "fixed_grid": ((), {"fixed_grid/toy": {"patterns": ["steady", "abrupt", "linear", "periodic", "mixed"]}}),
    "proxy_study": (
        (),
        {"proxies/toy": {"patterns": ["steady", "abrupt"]}, "proxies_ppo/toy": {"carriers": ["ppo"]}},
    ),
}
#: Those with tests of their own that run them to their end.
WHOLE = {
    "responses_table",
    "responses_figure",
    "controls",
    "keep_result",
    "single_file_sac",
    "torch_ppo",
}


def test_no_script_is_left_out():
    there = {path.stem for path in SCRIPTS.glob("*.py")} - {"__init__"}
    assert there - WHOLE == {*SHORTCUTS, *TABLES}


def trained_by(name, words, monkeypatch):
    """The folders that a script would train, and its exit code, without the training."""
    trained = []

    def stop_here(claim, **options):
        trained.append(claim.directory)
        return train.Outcome(claim.directory, [], 0)

    monkeypatch.setattr(train, "train", stop_here)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    return trained, ended.value.code


def configured(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_script_configures_the_study_that_it_names(name, tmp_path, monkeypatch, capsys):
    """All but the training itself: arguments are parsed, checked and written down before it."""
    out = tmp_path / "out"
    trained, code = trained_by(name, ["--out", str(out), "--no-report"], monkeypatch)
    assert (code, capsys.readouterr().err) == (0, "")
    assert trained == [out / place for place in SHORTCUTS[name]]
    for place, expected in SHORTCUTS[name].items():
        assert expected.items() <= configured(out / place).items()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_trains_the_studies_that_it_needs(name, tmp_path, monkeypatch, capsys):
    """And says in a sentence that their results are not there, where nothing was trained."""
    out, (words, studies) = tmp_path / "out", TABLES[name]
    words = ["--out", str(out), "--preset", "paper", "--no-report", *words]
    trained, code = trained_by(name, words, monkeypatch)
    assert code == 2
    assert "manifest.json" in capsys.readouterr().err
    assert trained == [out / place for place in studies]
    for place, expected in studies.items():
        assert expected.items() <= configured(out / place).items()


def test_on_two_cores_mujoco_begins_with_trained_agents(tmp_path, monkeypatch):
    out = tmp_path / "out"
    words = ["--out", str(out), "--preset", "cpu", "--tasks", "hopper", "--carriers", "sac", "--no-report"]
    trained, _ = trained_by("mujoco_table", words, monkeypatch)
    assert trained == [out / "warm" / "hopper-sac"]  # whose agents the next study would refuse, as there are none
    config = configured(trained[0])
    assert (config["patterns"], config["schedules"], config["steps"]) == (["steady"], ["baseline"], 512_000)


def test_the_ablation_compares_the_rows_of_the_papers_table(tmp_path, monkeypatch):
    out = tmp_path / "out"
    trained_by("ablation_table", ["--out", str(out), "--no-report"], monkeypatch)
    schedules = configured(out / "ablation" / "toy")["schedules"]
    assert schedules[:2] == ["baseline", "fixed"]
    assert sum("coupling=1" in entry for entry in schedules) == 5


@pytest.mark.parametrize("name", [*SHORTCUTS, *TABLES, "controls"])
def test_a_script_refuses_a_wrong_name_in_one_sentence(name, tmp_path, monkeypatch, capsys):
    _, code = trained_by(name, ["--out", str(tmp_path / "out"), "--carriers", "sak"], monkeypatch)
    assert code == 2
    assert "did you mean 'sac'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
