"""On how many runs a number rests: broken Steady runs, runs that miss evaluations, tests that cannot differ."""

import numpy as np
import polars as pl
import pytest

from experiments.measure import summarise
from experiments.measure.bounds import possible
from experiments.measure.study import load_study
from tests.experiments.measure.synthetic import STEPS, config, make_curves, manifest
from tests.experiments.measure.test_summary import one

FEW = 200
SOME = ("SAC", "SAC+AES")


def run_of(method, pattern, seed):
    return (pl.col("method") == method) & (pl.col("pattern") == pattern) & (pl.col("seed") == seed)


def summary(curves, **changes):
    return summarise(curves, config(**changes), manifest(curves), replicates=FEW)


def test_a_diverged_steady_seed_is_told_where_it_changes_a_normaliser_and_a_loss():
    curves = make_curves(SOME, ("steady", "abrupt"), range(1, 6), every=1_000)
    broken = run_of("SAC", "steady", 2)
    bad = curves.with_columns(return_mean=pl.when(broken).then(float("nan")).otherwise("return_mean"))
    frame = summary(bad)
    assert "normaliser=4/5" in one(frame, "nauc_task_safe")["flag"].split(";")
    assert one(frame, "nauc_task_safe")["n_valid"] == 5
    assert one(frame, "nauc_task_safe")["value"] != one(summary(curves), "nauc_task_safe")["value"]
    loss = one(frame, "loss_rate", method="SAC", level="run", task="toy", seed=2)
    assert (loss["reason"], np.isnan(loss["value"])) == ("steady_run_diverged", True)
    row = one(frame, "recovery_vs_steady", method="SAC")
    assert (row["n_valid"], row["n_total"], row["reason"]) == (4, 5, "steady_run_diverged")
    assert one(frame, "drop_task", method="SAC")["flag"] == "steady=4/5"
    assert one(frame, "drop_task", method="SAC")["n_valid"] == 5  # its drifting runs are all there
    assert "steady" not in one(frame, "drop_task")["flag"]


def test_a_run_without_every_second_evaluation_is_not_valid():
    curves = make_curves(SOME, ("steady", "abrupt"), range(1, 4), every=1_000)
    gappy = curves.filter(~(run_of("SAC+AES", "abrupt", 2) & (pl.col("step") % 2_000 != 0)))
    frame = summary(gappy)
    row = one(frame, "mean_return")
    assert (row["n_valid"], row["n_total"], row["reason"]) == (2, 3, "off_grid")
    runs = frame.filter(level="run", method="SAC+AES", pattern="abrupt", seed=2)
    assert runs["value"].is_nan().all()


def test_the_grid_is_the_configurations_else_the_one_of_most_runs():
    curves = make_curves(SOME, ("abrupt",), range(1, 3), every=1_000)
    thinned = curves.filter((pl.col("step") % 2_000 == 0) | run_of("SAC", "abrupt", 1))
    by_count = load_study(thinned, config(), {})
    assert [key.seed for key, run in by_count.runs.items() if run.problem == "off_grid"] == [1]
    loaded = load_study(thinned, config(evaluations=100), {})
    assert sum(run.problem == "off_grid" for run in loaded.runs.values()) == 3
    assert len(loaded.grids["toy"]) == 101
    elsewhere = load_study(thinned, config(evaluations=7), {})  # no run has those
    assert len(elsewhere.grids["toy"]) == 51


def test_intervals_are_cut_at_the_bounds_of_a_metric():
    curves = make_curves(SOME, ("steady", "abrupt"), range(1, 6), every=1_000)
    # Seed 1 regains its level at once after every change, the others never.
    jump = (pl.col("pattern") == "abrupt") & (pl.col("step") >= STEPS // 5)
    fixed = pl.when(jump & (pl.col("seed") == 1)).then(60.0).when(jump).then(44.0 - 8.0 * (5 * pl.col("step") // STEPS))
    frame = summary(curves.with_columns(return_mean=fixed.otherwise("return_mean")))
    assert one(frame, "recovered_fraction")["low"] == 0.0
    assert one(frame, "recovery_robust")["high"] == 0.8  # the stretched interval would end beyond


def test_bounds_of_metrics_by_name():
    bounds = {
        "iqm:recovery_robust": (0.0, 0.8),
        "paired_iqm:recovery": (-0.8, 0.8),
        "robust_recovered@3": (0.0, 1.0),
        "poi:recovery": (0.0, 1.0),
        "deficit_area": (0.0, np.inf),
        "paired:deficit_area": (-np.inf, np.inf),
    }
    for name, wanted in bounds.items():
        assert possible(name, 5) == pytest.approx(wanted), name
