"""The questions to somebody with a simulator, asked of a native task whose answers are known."""

import json
import subprocess
import sys

import pytest

from envs.bridge.transport import SCRIPT
from tests.envs.bridge.common import LIMIT, ROOT
from tests.envs.bridge.common import torch as installed

installed()


@pytest.mark.slow
def test_all_seven_are_answered_and_rightly(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    out = tmp_path / "report.json"
    words = ["tests.envs.bridge.common:short_ant", "--num-envs", "4", "--steps", "60", "--out", str(out)]
    command = [sys.executable, str(SCRIPT.with_name("probe.py")), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answers = json.loads(out.read_text())
    assert not [name for name, answer in answers.items() if isinstance(answer, dict) and "error" in answer]
    assert answers["S1_names"] == {"robot": [f"joint_{i}" for i in range(8)], "marker": []}
    assert answers["S2_step"]["action"][0] == -1.0
    assert len(answers["S2_step"]["obs"]) == 60
    ends = 60 // (LIMIT + 1) * 4
    assert answers["S3_endings"]["ends"] == answers["S3_endings"]["phantoms"] == ends
    assert answers["S3_endings"]["ends_in_phantoms"] == 0
    for scale, share in answers["S4_fall"].items():
        assert share == pytest.approx(float(scale), rel=0.01)
    slow, usual, fast = (answers["S5_decay"][scale][-1] for scale in ("1.3", "1.0", "0.7"))
    assert slow < usual < fast
    assert answers["S6_seconds"]["set_damping"] > 0
    assert answers["S7_damping_disturbs_state"] is False
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 1
    assert "exists; choose another file" in again.stderr
