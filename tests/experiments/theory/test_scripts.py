"""The theory scripts run as the README shows them, small; the online-learning study has a file of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "findings", "figures"), [("theory_softmdp", 18, 6), ("theory_calibration", 19, 4)])
def test_a_script_leaves_its_findings_numbers_and_figures(script, findings, figures, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, f"experiments/{script}.py", "--out", str(out), "--quick", "--seeds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    record = json.loads((out / f"{script}.json").read_text())
    assert (record["quick"], record["seeds"]) == (True, 2)
    names = [finding["name"] for finding in record["findings"]]
    assert len(set(names)) == len(names) == findings
    assert all(name in done.stdout for name in names)
    text = (out / f"{script}.md").read_text()
    assert all(f"| {name} |" in text for name in names)
    drawn = list(out.glob("*.png"))
    assert len(drawn) == figures
    assert all(figure.stat().st_size > 10_000 for figure in drawn)


@pytest.mark.parametrize(
    "script", ["theory_oco", "theory_softmdp", "theory_calibration", "theory_detection", "theory_checks"]
)
def test_a_script_refuses_a_full_folder_in_one_sentence(script, tmp_path):
    (tmp_path / "old").write_text("results")
    command = [sys.executable, f"experiments/{script}.py", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("aesjax: --out")
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old"]


@pytest.mark.parametrize("record", sorted((ROOT / "benchmarks").glob("theory_*.json")), ids=lambda p: p.stem)
def test_every_committed_record_is_whole_and_of_twenty_seeds(record):
    kept = json.loads(record.read_text())
    assert (kept["quick"], kept["seeds"]) == (False, 20)
    assert len(kept["findings"]) >= {"theory_detection": 7}.get(record.stem, 16)
    assert all(finding["outcome"] in ("confirmed", "refuted", "undecided") for finding in kept["findings"])
