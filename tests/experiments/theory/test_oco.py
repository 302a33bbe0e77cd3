"""The studies of the theory: their parts, their findings, their files, their refusals."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import polars as pl
import polars.selectors as cs
import pytest

from experiments.theory import games, oco, oco_grid, oco_methods
from experiments.theory.__main__ import main
from experiments.theory.findings import TheoryStudy, claim, log_log_slope, open_folder, paired, slopes

ROOT = Path(__file__).resolve().parents[3]
SEEDS = 3


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return TheoryStudy(tmp_path_factory.mktemp("theory"), seeds=SEEDS, quick=True)


def test_a_sharded_sweep_equals_one_game_at_a_time(study):
    ((group, _),) = oco_grid.switching_groups(study, 4, 40, [3])
    tunings = [oco_methods.tuning(game, 3) for game in group]
    scales = np.array([0.5, 2.0])
    build = oco_methods.METHODS["aes_m"].build
    together, weights = oco_methods.outcomes(build, oco_methods.stack(group), oco_methods.stack(tunings), scales)
    assert together.shape == weights.shape == (SEEDS, 2)  # three games on two devices: one is padding
    for i, (game, t) in enumerate(zip(group, tunings, strict=True)):
        for j, scale in enumerate(scales):
            played = oco.play(build(scale, t, 40), game)
            np.testing.assert_allclose(together[i, j], played.regret.sum(), rtol=1e-9)
            np.testing.assert_allclose(weights[i, j], played.weight.mean(), rtol=1e-9)


def test_without_drift_the_paper_schedule_and_the_oracle_sit_at_the_smallest_weight():
    game = games.switching(np.random.default_rng(0), 4, 40, 0)
    t = oco_methods.tuning(game, 0)
    for name in ("aes", "oracle", "envelope"):
        weight = oco.play(oco_methods.METHODS[name].build(1.0, t, 40), game).weight
        np.testing.assert_allclose(weight, oco_methods.WEIGHTS[0], rtol=1e-6)


def test_slopes_and_claims():
    x = [1.0, 10.0, 100.0]
    y = np.power.outer(x, [0.5, 0.7])
    np.testing.assert_allclose(slopes(x, y), [0.5, 0.7])
    assert log_log_slope(x, y).value == pytest.approx(0.6)
    assert paired(np.array([1.0, 2.0, 3.0]), np.zeros(3)).value == 2.0
    assert [claim("", "", holds, "").outcome for holds in (True, False, None)] == ["confirmed", "refuted", "undecided"]


@pytest.mark.parametrize("name", ["oco", "detection"])
def test_a_study_leaves_its_findings_and_numbers(name, tmp_path, capsys):
    streams = pl.read_parquet(ROOT / "benchmarks" / "recorded_proxies.parquet")
    streams.with_columns(cs.matches("/").list.head(5000)).write_parquet(tmp_path / "streams.parquet")
    options = TheoryStudy(tmp_path / "out", name, (tmp_path / "streams.parquet",), seeds=2, quick=True)
    try:
        with jax.enable_x64(name == "oco"):
            assert main(options) == 0
    finally:
        jax.config.update("jax_enable_x64", False)  # of this process, which the study set
    stored, record = (
        json.loads((folder / f"theory_{name}.json").read_text()) for folder in (ROOT / "benchmarks", options.out)
    )
    names = [finding["name"] for finding in record["findings"]]
    assert names == sorted(set(names))
    assert set(names) <= {finding["name"] for finding in stored["findings"]}
    assert {finding["outcome"] for finding in record["findings"]} <= {"confirmed", "refuted", "undecided"}
    assert record["data"]
    text = (options.out / f"theory_{name}.md").read_text()
    assert all(f"| {name} |" in text for name in names)
    capsys.readouterr()
    assert main(options) == 2
    assert capsys.readouterr().err.startswith("aesjax: --out")


def test_the_command_refuses_a_folder_that_is_not_empty(tmp_path):
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "experiments.theory", "oco", "--out", str(tmp_path), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith("aesjax: --out")


@pytest.mark.parametrize("record", sorted((ROOT / "benchmarks").glob("theory_*.json")), ids=lambda p: p.stem)
def test_every_committed_record_is_complete_and_of_twenty_seeds(record):
    data = json.loads(record.read_text())
    assert (data["seeds"], data["quick"]) == (20, False)
    assert all(finding["measured"] for finding in data["findings"])


def test_one_seed_has_no_interval(tmp_path):
    with pytest.raises(ValueError, match="--seeds must be at least 2"):
        open_folder(TheoryStudy(tmp_path / "new", seeds=1))
    assert not (tmp_path / "new").exists()
