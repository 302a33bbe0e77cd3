"""What a drift signal should turn, from training to the answers, at a size that says nothing."""

import json

import numpy as np
import pytest

from experiments import responses_table
from experiments.analysis.questions import QUESTIONS

SMALL = ["--steps", "2000", "--seeds", "1:2", "--patterns", "steady,abrupt", "--preset", "quick", "--no-report"]
METHODS = "baseline,fixed,aes_r,fixed+window,aes_r+window,fixed:base=0.2"
EXPECTED = {"entropy", "level", "timing", "data", "hindsight"}


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
