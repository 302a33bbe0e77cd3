"""The checks on recorded studies: other seeds for tuning, equal steps, many cells, grid edges."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.theory import rechecks
from experiments.theory.oco_grid import equal_steps, grid_findings, hindsight
from experiments.theory.oco_methods import METHODS, SCALES

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def records():
    return [json.loads((ROOT / "benchmarks" / f"theory_{name}.json").read_text()) for name in ("oco", "softmdp")]


def test_a_left_out_seed_has_no_say_in_its_own_scale():
    regret = np.array([[[0.0, 5.0], [3.0, 2.0], [3.0, 2.0], [3.0, 2.0]]])  # the first seed alone makes scale 0 best
    np.testing.assert_array_equal(hindsight(regret), [[0.0, 3.0, 3.0, 3.0]])
    np.testing.assert_array_equal(rechecks.leave_one_out(regret), [[5.0, 3.0, 3.0, 3.0]])
    np.testing.assert_array_equal(rechecks.split_half(regret), [[5.0, 3.0, 2.0, 3.0]])


def test_cells_that_are_clear_alone_need_not_be_clear_together():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(19, 20))
    noise -= noise.mean(1, keepdims=True)
    cells = {f"nothing {i}": x for i, x in enumerate(noise)}
    edge = noise[0] / noise[0].std(ddof=1)
    cells |= {"weak": edge - 2.3 / np.sqrt(20), "strong": edge - 20.0 / np.sqrt(20)}
    found = rechecks.verdicts({"claim": cells})["claim"]
    assert found == rechecks.Verdict(21, 2, 0, 1, 0, ("weak",))


def test_the_checks_stand_beside_the_records_that_they_were_made_of(records):
    oco, softmdp = (record["data"] for record in records)
    assert rechecks.tables(oco, softmdp) == (ROOT / "benchmarks" / "theory_checks.md").read_text()


def test_the_recorded_findings_follow_from_the_recorded_numbers(records):
    grid = records[0]["data"]["grid"]
    kept = {f["name"]: f for f in records[0]["findings"]}
    for finding in grid_findings(grid["switches"], {n: np.asarray(r) for n, r in grid["regret"].items()}):
        assert finding._asdict() == kept[finding.name]


def test_what_the_documentation_says_of_equal_steps_tuning_and_many_cells(records):
    oco, softmdp = (record["data"] for record in records)
    regret = {n: np.asarray(r) for n, r in oco["grid"]["regret"].items()}
    equal = equal_steps(oco["grid"]["switches"], regret, "theory")
    np.testing.assert_allclose(
        [equal["aes_prior", s].value for s in (1, 4, 16, 64)], [3.4, 20.8, 58.9, 109.5], atol=0.05
    )
    worse = [x.low > 0 for (_, s), x in equal.items() if s]
    assert (sum(worse), len(worse)) == (27, 28)
    assert equal["aes_r", 64].high < 0  # the one exception
    wins, moved = rechecks.tuning_checks(oco["grid"])
    assert all(len(set(row.values())) == 1 for row in wins.values())
    assert rechecks.turned(oco["grid"]) == (0, 124)  # no cell turns on the seeds used for tuning
    assert max(moved.values()) < 0.035
    found = rechecks.verdicts(rechecks.contrasts(oco, softmdp))
    gone = [cell for claim in ("5.3-4, -5", "5.3-6") for cell in found[claim].lost]
    assert {c for c in gone if "observed" in c and "aes_r" in c} == {"abrupt, aes_r observed", "mixed, aes_r observed"}
    assert any("Ader, high end" in edge for edge in rechecks.edges(oco, softmdp))
    assert set(METHODS) == set(regret)
    assert len(SCALES) == len(oco["grid"]["scales"])


def test_the_script_says_what_is_wrong_with_its_records(tmp_path):
    command = [
        sys.executable,
        "experiments/theory_checks.py",
        "--out",
        str(tmp_path / "new"),
        "--records",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith(f"aesjax: --records {tmp_path}")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()
