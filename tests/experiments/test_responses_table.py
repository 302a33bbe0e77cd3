"""What a drift signal should turn, from training to the answers, at a size that says nothing."""

import json

import numpy as np
import pytest

from experiments import responses_table
from experiments.report.questions import QUESTIONS
from tests.imports import ROOT

RESULTS = ROOT / "experiments" / "results"
SMALL = ["--steps", "2000", "--seeds", "1:2", "--patterns", "steady,abrupt", "--preset", "quick", "--no-report"]
METHODS = "baseline,fixed,aes_r,fixed+window,aes_r+window,fixed:base=0.2"
EXPECTED = {"itself", "entropy", "level", "timing", "data", "hindsight"}


@pytest.mark.slow
def test_both_studies_run_and_every_question_is_answered(tmp_path, capsys):
    asked = ["--out", str(tmp_path / "out"), *SMALL, "--schedules", METHODS, "--played", "aes_r+window"]
    assert responses_table.run_all(asked) == 0
    found = json.loads((tmp_path / "out" / "answers.json").read_text())
    assert set(found["contrasts"]) == EXPECTED
    assert found["constants"] == ["SAC+fixed", "SAC+fixed[base=0.2]"]
    for contrast in (c for group in found["contrasts"].values() for c in group):
        mine, theirs = (found["scores"][contrast[who]][contrast["pattern"]] for who in ("first", "second"))
        assert contrast["seeds"] == 2
        apart = np.mean([mine[seed] - theirs[seed] for seed in mine])
        assert contrast["difference"][0] == pytest.approx(apart, abs=1e-9)
    text = (tmp_path / "out" / "answers.md").read_text()
    assert all(QUESTIONS[key].text in text for key in EXPECTED)
    capsys.readouterr()
    assert responses_table.run_all(asked) == 0  # trained once
    assert "compiling" not in capsys.readouterr().err


def test_finished_studies_answer_without_training(tmp_path, capsys):
    kept = [RESULTS / f"responses-toy-sql{part}" for part in ("", "-controls", "-more", "-refresh", "-threshold")]
    asked = ["--out", str(tmp_path / "out"), "--carrier", "sql", "--studies", *map(str, kept)]
    assert responses_table.run_all(asked) == 0
    found = json.loads((tmp_path / "out" / "answers.json").read_text())
    recorded = json.loads((ROOT / "benchmarks" / "responses_toy_sql.json").read_text())
    assert found["scores"] == recorded["scores"]
    assert found["contrasts"] == recorded["contrasts"]
    assert found["command"][1].startswith("aesjax run --out DIR --study responses --carriers sql")
    assert "--controls-from " in found["command"][1]
    capsys.readouterr()
    assert responses_table.run_all(["--out", str(tmp_path / "none"), "--studies", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"aesjax: {tmp_path} holds no study: there is no config.json\n"
    assert not (tmp_path / "none").exists()
    with pytest.raises(SystemExit):
        responses_table.run_all([*asked, "--seeds", "1"])
