"""`aesjax calibrate` on studies whose proxies are known, so that every number follows from the programmed drift."""

import json
import math
import shutil
from functools import partial

import jax
import numpy as np
import polars as pl
import pytest

import envs
from envs import drift
from envs.timeline import Timeline
from experiments.cli import main
from experiments.report import calibration
from experiments.study import store
from experiments.study.store import write_manifest
from tests.experiments.configs import config_of
from tests.refusals import refused

METHOD, PATTERNS, SEEDS = "SAC", ("steady", "mixed", "periodic"), range(1, 11)  # not in the order of the registry
WARMUP = 128  # vector steps


def made_config(**options):
    return config_of(**({"patterns": PATTERNS, "seeds": SEEDS, "steps": 4000} | options))


def true_changes(config):
    """Per pattern and seed (T,): the size of every vector step's change."""
    total, task = config.vector_steps("sac"), config.build_task()

    @jax.jit
    def changes(pattern, seed):
        drawn = drift.draw(task, seed, config.segments)
        at = partial(drift.truth, task.channels, pattern, drawn, timeline=Timeline(total, config.segments))
        return jax.vmap(lambda step: at(step=step).change)(np.arange(total))

    numbers = {pattern: np.int32(envs.pattern_index(pattern)) for pattern in PATTERNS}
    return {(p, s): np.asarray(changes(numbers[p], np.uint32(s)), float) for p in PATTERNS for s in SEEDS}


def factor(pattern, seed):
    """Ratio of a run's drift to its proxy; all ratios differ."""
    return 1.0 + seed + 10.0 * PATTERNS.index(pattern)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study whose proxy is the drift of the step divided by the run's factor."""
    folder, config, rows, runs = tmp_path_factory.mktemp("made"), made_config(), [], []
    changes = true_changes(config)
    for pattern in PATTERNS:
        for seed in SEEDS:
            proxy = changes[pattern, seed] / factor(pattern, seed)
            proxy[:WARMUP] = np.nan
            label = {"task": "toy", "method": METHOD, "carrier": "sac", "pattern": pattern, "seed": seed}
            rows.append(label | {"td_quantile/update": proxy})
            runs.append({"task": "toy", "method": METHOD, "pattern": pattern, "seed": seed, "status": "finished"})
    assert config.warmup == WARMUP * config.envs_of("sac")
    store.write_json(folder / "config.json", config.to_json())
    store.write_rows(folder / "streams.parquet", pl.DataFrame(rows))
    write_manifest(folder, {"runs": runs})
    return folder


@pytest.fixture
def copied(made, tmp_path):
    """A study that a test may damage."""
    return shutil.copytree(made, tmp_path / "copy")


def calibrated(folder, *words):
    assert main(["calibrate", str(folder), *map(str, words)]) == 0
    return json.loads((folder / "calibration.json").read_text())


def test_the_scale_is_the_order_statistic_of_the_runs_own_factors(copied, capsys):
    found = calibrated(copied)["methods"][METHOD]
    factors = {(p, s): 0.0 if p == "steady" else factor(p, s) for p in PATTERNS for s in SEEDS}
    assert found["rho"] == pytest.approx(sorted(factors.values())[math.ceil(31 * 0.9) - 1], rel=1e-6)
    assert (found["groups"]["all"]["runs"], found["others"]) == (30, 27)
    dominated = 0
    for run, own in factors.items():
        others = sorted(value for (_, seed), value in factors.items() if seed != run[1])
        dominated += own <= others[math.ceil(28 * 0.9) - 1]
    assert found["groups"]["all"]["dominated"] == dominated < 30
    assert found["groups"]["steady"]["dominated"] == 10
    text = capsys.readouterr().out
    assert f"{dominated}/30" in text
    assert (copied / "calibration.md").read_text().strip() in text
    said = f"Conclusion: the bound on drift held for {METHOD} on {dominated} of 30 runs (promised 90 %)."
    assert said in (copied / "calibration.md").read_text()


def test_too_few_runs_give_no_scale_and_say_so(made, tmp_path, capsys):
    out = tmp_path / "new" / "one"
    assert main(["calibrate", str(made), "--delta", "0.01", "--out", str(out)]) == 0
    found = json.loads((out / "calibration.json").read_text())
    own = found["methods"][METHOD]
    assert (found["runs_needed"], own["rho"], own["groups"]["all"]["bounded_runs"]) == (99, None, 0)
    text = capsys.readouterr().out
    assert "cannot be calibrated: it needs 99 runs of other seeds, got 27" in text
    assert "30/30" not in text  # no bound, so none that is kept
    assert "inf" not in (out / "calibration.json").read_text()


def test_a_run_that_diverged_is_left_out_and_mentioned(copied):
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["runs"][4]["status"] = "diverged"
    write_manifest(copied, manifest)
    record = calibration.calibrate(copied, 0.1)
    assert record["methods"][METHOD]["groups"]["all"]["runs"] == 29
    assert record["notes"] == ["1 diverged runs are excluded"]


def test_wrong_requests_are_refused_and_nothing_is_overwritten(copied, capsys):
    assert "--delta must lie in (0, 1); got 1.5" in refused(capsys, "calibrate", copied, "--delta", "1.5")
    assert not (copied / "calibration.json").exists()
    (copied / "calibration.json").write_text("mine")
    assert "calibration.json exists" in refused(capsys, "calibrate", copied)
    assert (copied / "calibration.json").read_text() == "mine"
