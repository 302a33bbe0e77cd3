"""The tidy frame of a study: what is in it, what is missing and why."""

import numpy as np
import polars as pl
import pytest

from experiments.measure import summarise
from tests.experiments.measure.synthetic import config, make_curves, manifest

METHODS = ("SAC", "SAC+AES", "SAC+AES-R")
FEW = 400


@pytest.fixture(scope="module")
def curves():
    return make_curves(METHODS)


@pytest.fixture(scope="module")
def frame(curves):
    return summarise(curves, config(), manifest(curves), replicates=FEW)


@pytest.fixture(scope="module")
def two(curves):
    """The patterns that the tests of faults need."""
    return curves.filter(pl.col("pattern").is_in(["steady", "abrupt"]))


def one(frame, metric, method="SAC+AES", pattern="abrupt", level="method", **where):
    where = {"task": None, "seed": None} | where
    rows = frame.filter(metric=metric, method=method, pattern=pattern, level=level)
    for column, value in where.items():
        rows = rows.filter(pl.col(column).is_null() if value is None else pl.col(column) == value)
    assert len(rows) == 1, (metric, method, pattern, rows)
    return rows.row(0, named=True)


def test_intervals_bracket_the_value_repeat_and_do_not_depend_on_other_patterns(two, frame):
    again = summarise(two, config(), manifest(two), replicates=FEW)
    kept = frame.filter(pl.col("pattern").is_in(["steady", "abrupt"]))
    apart = ~pl.col("metric").str.starts_with("p_holm")
    order = ["level", "task", "method", "pattern", "seed", "metric"]
    assert again.filter(apart).sort(order).equals(kept.filter(apart).sort(order))
    rows = frame.filter(pl.col("low").is_not_null())
    assert len(rows) > 100
    assert (rows["low"] <= rows["value"] + 1e-9).all()
    assert (rows["value"] <= rows["high"] + 1e-9).all()


def test_a_diverged_run_is_counted_and_never_averaged(two):
    bad = ("SAC+AES", "abrupt", 3)
    mine = (pl.col("method") == bad[0]) & (pl.col("pattern") == bad[1]) & (pl.col("seed") == bad[2])
    cut = two.filter(~(mine & (pl.col("step") > 42_000)))
    frame = summarise(cut, config(), manifest(two, diverged=[bad]), replicates=FEW)
    row = one(frame, "nauc_task_safe")
    assert (row["n_valid"], row["n_total"], row["reason"]) == (4, 5, "diverged")
    assert np.isfinite(row["value"])
    run = frame.filter(level="run", method=bad[0], pattern=bad[1], seed=bad[2])
    assert run["value"].is_nan().all()
    assert set(run["reason"]) == {"diverged"}
    assert one(frame, "paired:nauc_task_safe")["n_valid"] == 4
    kept = frame.filter(level="run", method=bad[0], pattern=bad[1], metric="nauc_task_safe")["value"]
    assert row["value"] == pytest.approx(np.nanmean(kept.to_numpy()))


def test_a_study_without_sac_or_steady_or_floor_says_so(two):
    no_sac = two.filter(pl.col("method") != "SAC")
    frame = summarise(no_sac, config(), manifest(no_sac), replicates=FEW)
    assert one(frame, "nauc_task")["reason"] == "no_steady_sac_runs"
    assert np.isnan(one(frame, "nauc_family")["value"])
    assert np.isfinite(one(frame, "drop_family_safe")["value"])
    assert frame.filter(pl.col("metric").str.starts_with("paired:")).is_empty()
    drifting = two.filter(pl.col("pattern") == "abrupt")
    frame = summarise(drifting, config(), {}, replicates=FEW)
    assert one(frame, "drop_run")["reason"] == "no_steady_run"
    assert one(frame, "nauc_task_safe")["reason"] == "no_steady_sac_runs"
    assert one(frame, "recovery_robust")["reason"] == "no_floor"
    assert np.isfinite(one(frame, "recovery")["value"])
    assert np.isfinite(one(frame, "paired:recovery")["value"])
    assert one(frame, "paired:nauc_task_safe")["reason"] == "no_steady_sac_runs"


def test_negative_returns_are_flagged_in_literal_rows_only(two, frame):
    low = two.with_columns(pl.col("return_mean") - 100)
    negative = summarise(low, config(), manifest(low, floor=-97.0), replicates=FEW)
    assert one(negative, "nauc_family")["flag"] == "literal_unsafe"
    assert one(negative, "nauc_family_safe")["flag"] == ""
    assert one(negative, "nauc_family_safe")["value"] == pytest.approx(one(frame, "nauc_family_safe")["value"])


def test_a_missing_run_has_no_mean_of_what_only_some_studies_log():
    curves = make_curves(METHODS[:2], ("steady",), [1, 2], every=5_000).with_columns(window_share=pl.lit(0.5))
    cut = curves.filter(~((pl.col("method") == "SAC+AES") & (pl.col("seed") == 2)))
    row = one(summarise(cut, config(), manifest(curves), replicates=50), "mean_window_share", pattern="steady")
    assert (row["value"], row["n_valid"], row["n_total"], row["reason"]) == (0.5, 1, 2, "missing")


def test_one_seed_has_values_but_no_claims():
    curves = make_curves(METHODS[:2], ("steady", "abrupt"), [1])
    frame = summarise(curves, config(), manifest(curves), replicates=FEW)
    row = one(frame, "nauc_task")
    assert row["low"] == pytest.approx(row["value"])
    assert row["high"] == pytest.approx(row["value"])
    assert one(frame, "paired:nauc_task")["low"] is None
    assert np.isnan(one(frame, "p:nauc_task")["value"])


def test_broken_input_is_refused_with_a_sentence(curves):
    with pytest.raises(ValueError, match="lack the columns return_mean"):
        summarise(curves.drop("return_mean"), config(), {})
    with pytest.raises(ValueError, match="config lacks 'steps'"):
        summarise(curves, {}, {})
    with pytest.raises(ValueError, match=r"SAC on toy, pattern steady, seed 1: .*stored twice"):
        summarise(pl.concat([curves, curves]), config(), {})
