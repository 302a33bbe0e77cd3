"""The tidy frame of a study: its numbers, what is missing and why, and who is compared with whom."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from experiments.measure import comparisons, stats, summarise
from experiments.measure.comparisons import asides_of, best_of, constants_of, opponents_of
from experiments.measure.profiles import profiles
from experiments.measure.study import STEADY, PatternFacts, describe, load_study
from experiments.report.plots import time_axis
from experiments.report.write import limits_of
from tests.experiments.configs import config_of
from tests.experiments.measure.synthetic import (
    BUILT_IN,
    MADE_UP,
    STEPS,
    config,
    controlled,
    make_curves,
    manifest,
    uneven,
    with_controls,
)

METHODS = ("SAC", "SAC+AES", "SAC+AES-R")
SOME = METHODS[:2]
FEW = 400
RECORDED = json.loads((Path(__file__).parent / "data" / "uneven.json").read_text())


def run_of(method, pattern, seed):
    return (pl.col("method") == method) & (pl.col("pattern") == pattern) & (pl.col("seed") == seed)


def summary(curves, **changes):
    return summarise(curves, config(**changes), manifest(curves), replicates=200)


@pytest.fixture(scope="module")
def three():
    return make_curves(METHODS)


@pytest.fixture(scope="module")
def frame(three):
    return summarise(three, config(), manifest(three), replicates=FEW)


@pytest.fixture(scope="module")
def two(three):
    """The patterns that the tests of faults need."""
    return three.filter(pl.col("pattern").is_in(["steady", "abrupt"]))


def one(frame, metric, method="SAC+AES", pattern="abrupt", level="method", **where):
    where = {"task": None, "seed": None} | where
    rows = frame.filter(metric=metric, method=method, pattern=pattern, level=level)
    for column, value in where.items():
        rows = rows.filter(pl.col(column).is_null() if value is None else pl.col(column) == value)
    assert len(rows) == 1, (metric, method, pattern, rows)
    return rows.row(0, named=True)


def test_recorded_values_and_intervals_of_every_metric(monkeypatch):
    """Computed by two implementations of docs/metrics.md and docs/statistics.md, of which one is left."""
    monkeypatch.setattr(comparisons, "ENOUGH", 2)  # its p-values after Holm are of fewer than five seeds
    frame = summarise(*uneven(), replicates=200)
    frame = frame.filter(~pl.col("metric").str.contains("^(detectable|gain):"))
    for label, level, task, method, pattern, seed in RECORDED["rows"]:
        rows = frame.filter(level=level, method=method, pattern=pattern)
        for column, value in (("task", task), ("seed", seed)):
            rows = rows.filter(pl.col(column).is_null() if value is None else pl.col(column) == value)
        for row in rows.iter_rows(named=True):
            numbers = [math.nan if row[name] is None else row[name] for name in ("value", "low", "high")]
            wanted = [math.nan if number is None else number for number in RECORDED[label][row["metric"]]]
            assert numbers == pytest.approx(wanted, rel=1e-12, abs=1e-12, nan_ok=True), (label, row["metric"])
        assert set(rows["metric"]) == set(RECORDED[label])


@pytest.mark.parametrize(("onset", "level"), [(0.0, 6.05), (0.2, 6.5625), (0.25, 485 / 75)])
def test_metrics_of_the_drift_begin_at_its_onset_and_read_the_changes_of_each_run(onset, level):
    """One run of three unequal segments, by hand."""
    labels = {"family": "toy", "task": "toy", "method": "SAC", "carrier": "sac", "seed": 1}
    returns = {"steady": 11 * [10.0], "abrupt": [0.0, 4, 8, 8, 2, 8, 9, 3, 5, 9, 9]}
    logs = {"step": np.arange(0, STEPS + 1, 10_000), "online_return": [np.nan, *range(1, 11)]}
    curves = pl.concat([pl.DataFrame(labels | {"pattern": p, "return_mean": r} | logs) for p, r in returns.items()])
    about = manifest(curves, floor=1.0) | {"changes": {"toy": {"abrupt": {"1": [40_000, 70_000]}}}}
    frame = summarise(curves, config(onset=onset), about, replicates=10)
    drifting = 1.0 - onset
    expected = {
        "mean_return": level,
        "online_return": np.mean(np.arange(1, 11)[int(10 * onset) :]),  # an interval with the onset in it counts
        "nauc_task": level / 10,
        "nauc_task_safe": (level - 1) / 9,
        "drop_run": 1 - level / 10,
        "loss_rate": 10 - level,
        "recovery": (0.1 + 0.2) / drifting,  # 8 again at 50,000, 9 again at 90,000
        "recovered_fraction": 1.0,
        "recovery_vs_steady": (0.3 + 0.3) / drifting,  # censored at the next change and at the end
    }
    for metric, value in expected.items():
        assert one(frame, metric, "SAC", level="run", task="toy", seed=1)["value"] == pytest.approx(value), metric
    for metric, value in {"nauc_family": level / 10, "drop_family": 1 - level / 10}.items():
        assert one(frame, metric, "SAC")["value"] == pytest.approx(value), metric


def test_intervals_bracket_the_value_repeat_and_do_not_depend_on_other_patterns(two, frame):
    again = summarise(two, config(), manifest(two), replicates=FEW)
    kept = frame.filter(pl.col("pattern").is_in(["steady", "abrupt"]))
    apart = ~pl.col("metric").str.contains("^(p_holm|detectable):")
    order = ["level", "task", "method", "pattern", "seed", "metric"]
    assert again.filter(apart).sort(order).equals(kept.filter(apart).sort(order))
    rows = frame.filter(pl.col("low").is_not_null())
    assert len(rows) > 100
    assert (rows["low"] <= rows["value"] + 1e-9).all()
    assert (rows["value"] <= rows["high"] + 1e-9).all()


@pytest.mark.parametrize("metric", ["mean_return", "nauc_task_safe"])
def test_a_detectable_difference_is_that_of_holms_first_step_and_a_gain_needs_an_agent_that_learned(metric, two):
    frame = summary(two)
    ours, theirs = (
        frame.filter(level="run", metric=metric, pattern="abrupt", method=name).sort("seed")["value"].to_numpy()
        for name in ("SAC+AES", "SAC")
    )
    tests = int(frame.filter(pl.col("task").is_null(), metric=f"p:{metric}")["value"].is_finite().sum())
    wanted = np.std(ours - theirs, ddof=1) * stats.detectable(5, tests)
    assert (tests, one(frame, f"detectable:{metric}")["value"]) == (4, pytest.approx(wanted))
    steady = frame.filter(level="run", metric=metric, pattern="steady", method="SAC")["value"].mean()
    floor = manifest(two)["floors"]["toy"] if metric == "mean_return" else 0.0
    assert one(frame, f"gain:{metric}")["value"] == pytest.approx(steady - floor)
    idle = summarise(two, config(), manifest(two, floor=steady + floor + 100.0), replicates=FEW)  # no agent learned
    assert idle.filter(metric=f"gain:{metric}").is_empty()
    assert frame.filter(metric="gain:drop_run_safe").is_empty()  # a share


def test_a_comparison_of_few_seeds_has_no_data_and_is_no_test_of_its_family(two):
    """Two runs of one method diverged, so three pairs are left; the others are corrected as if it were not there."""
    bad = [("SAC+AES-R", "abrupt", seed) for seed in (1, 2)]
    few = summarise(two, config(), manifest(two, diverged=bad), replicates=FEW)
    lost = pl.col("method").eq("SAC+AES-R") & pl.col("pattern").eq("abrupt")
    absent = summarise(two.filter(~lost), config(), manifest(two.filter(~lost)), replicates=FEW)
    for kind in ("p_holm", "detectable"):
        for name in ("SAC+AES", "SAC+AES-R"):
            row = one(few, f"{kind}:mean_return", method=name, pattern="steady")
            assert row["value"] == one(absent, f"{kind}:mean_return", method=name, pattern="steady")["value"]
    assert np.isnan(one(few, "p_holm:mean_return", method="SAC+AES-R")["value"])
    assert np.isfinite(one(few, "p:mean_return", method="SAC+AES-R")["value"])
    cells = {"few": np.array([1.0, 2.0, 3.0, np.nan, np.nan]), "all": np.array([1.0, 2.0, 1.0, 2.0, 3.0])}
    found = comparisons.contrasts(cells)
    assert (found["all"], found["few"].outcome) == (comparisons.contrasts({"all": cells["all"]})["all"], "no data")


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
    frame = summarise(drifting, config(), {"patterns": BUILT_IN}, replicates=FEW)
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


def test_no_drop_ratio_above_the_floor_has_a_value_for_an_agent_below_it_without_drift(two):
    below = pl.when(method="SAC+AES").then(pl.col("return_mean") - 100).otherwise("return_mean")
    frame = summary(two.with_columns(return_mean=below))
    for ratio in ("drop_run", "drop_task", "drop_family", "drop_nauc_task"):
        safe = one(frame, f"{ratio}_safe")
        assert (math.isnan(safe["value"]), safe["reason"]) == (True, "normaliser_not_above_floor"), ratio
        assert np.isfinite(one(frame, ratio)["value"])
        assert np.isfinite(one(frame, f"{ratio}_safe", "SAC")["value"])


def test_one_seed_has_values_but_no_claims():
    curves = make_curves(METHODS[:2], ("steady", "abrupt"), [1])
    frame = summarise(curves, config(), manifest(curves), replicates=FEW)
    row = one(frame, "nauc_task")
    assert row["low"] == pytest.approx(row["value"])
    assert row["high"] == pytest.approx(row["value"])
    assert one(frame, "paired:nauc_task")["low"] is None
    assert np.isnan(one(frame, "p:nauc_task")["value"])


def test_broken_input_is_refused_with_a_sentence(three):
    with pytest.raises(ValueError, match="lack the columns return_mean"):
        summarise(three.drop("return_mean"), config(), {})
    with pytest.raises(ValueError, match="config lacks 'steps'"):
        summarise(three, {}, {})
    with pytest.raises(ValueError, match=r"SAC on toy, pattern steady, seed 1: .*stored twice"):
        summarise(pl.concat([three, three]), config(), {})


def test_a_diverged_steady_seed_leaves_the_normaliser_and_the_losses_of_its_seed():
    curves = make_curves(SOME, ("steady", "abrupt"), range(1, 6), every=1_000)
    broken = run_of("SAC", "steady", 2)
    bad = curves.with_columns(return_mean=pl.when(broken).then(float("nan")).otherwise("return_mean"))
    frame = summary(bad)
    assert one(frame, "nauc_task_safe")["n_valid"] == 5
    assert one(frame, "nauc_task_safe")["value"] != one(summary(curves), "nauc_task_safe")["value"]
    loss = one(frame, "loss_rate", method="SAC", level="run", task="toy", seed=2)
    assert (loss["reason"], np.isnan(loss["value"])) == ("steady_run_diverged", True)
    row = one(frame, "recovery_vs_steady", method="SAC")
    assert (row["n_valid"], row["n_total"], row["reason"]) == (4, 5, "steady_run_diverged")
    assert one(frame, "drop_task", method="SAC")["n_valid"] == 5  # its drifting runs are all there


def test_a_run_without_every_second_evaluation_is_not_valid():
    curves = make_curves(SOME, ("steady", "abrupt"), range(1, 4), every=1_000)
    gappy = curves.filter(~(run_of("SAC+AES", "abrupt", 2) & (pl.col("step") % 2_000 != 0)))
    frame = summary(gappy)
    row = one(frame, "mean_return")
    assert (row["n_valid"], row["n_total"], row["reason"]) == (2, 3, "off_grid")
    runs = frame.filter(level="run", method="SAC+AES", pattern="abrupt", seed=2)
    assert runs["value"].is_nan().all()


def test_the_grid_is_that_of_most_runs():
    curves = make_curves(SOME, ("abrupt",), range(1, 3), every=1_000)
    thinned = curves.filter((pl.col("step") % 2_000 == 0) | run_of("SAC", "abrupt", 1))
    loaded = load_study(thinned, config(), {})
    assert [key.seed for key, run in loaded.runs.items() if run.problem == "off_grid"] == [1]


def test_intervals_are_cut_at_the_bounds_of_a_metric():
    curves = make_curves(SOME, ("steady", "abrupt"), range(1, 6), every=1_000)
    # Seed 1 regains its level at once after every change, the others never.
    jump = (pl.col("pattern") == "abrupt") & (pl.col("step") >= STEPS // 5)
    fixed = pl.when(jump & (pl.col("seed") == 1)).then(60.0).when(jump).then(44.0 - 8.0 * (5 * pl.col("step") // STEPS))
    frame = summary(curves.with_columns(return_mean=fixed.otherwise("return_mean")))
    assert one(frame, "recovered_fraction")["low"] == 0.0
    assert one(frame, "recovery_robust")["high"] == 0.8  # the stretched interval would end beyond


@pytest.mark.parametrize("stated", [{"1": [20, 70]}, {}])
def test_recovery_needs_stated_changes_and_uses_them(stated):
    """Three segments of 20, 50 and 30 steps: regained after 20 steps, and not in the last 30."""
    returns = [0, 10, 4, 8, 10, 10, 10, 2, 3, 4, 5]
    labels = {"family": "f", "task": "t", "method": "SAC", "pattern": "own", "seed": 1}
    curves = pl.DataFrame(labels | {"step": range(0, 101, 10), "return_mean": map(float, returns)} | {
        "entropy_weight": [1.0] * 11
    })  # fmt: skip
    facts = {"patterns": {"own": MADE_UP["square"]}, "changes": {"t": {"own": stated}}, "floors": {"t": 0.0}}
    settings = config(steps={"t": 100}, merged=[config()])
    frame = summarise(curves, settings, facts, replicates=FEW).filter(level="run")
    metrics = {row["metric"]: row for row in frame.to_dicts()}
    expected = {"recovery": 0.5, "recovered_fraction": 0.5, "recovery_null_formula": None, "later_return": 6.5}
    expected |= {"immediate_drop": (1 / 5 + 6.4 / 8.4) / 2, "responsiveness": None}
    for name, value in expected.items():
        if not stated:
            assert (math.isnan(metrics[name]["value"]), metrics[name]["reason"]) == (True, "no_change_points"), name
        elif value is not None:
            assert metrics[name]["value"] == pytest.approx(value), name
    assert ("level@2" in metrics) == bool(stated)
    study = load_study(curves, settings, facts)
    np.testing.assert_array_equal(time_axis(study, "t", "own").marks, stated.get("1", []))
    assert any("own states no change points" in line for line in limits_of(study, facts)) != bool(stated)


def test_steady_comes_first_then_the_manifests_order_then_what_it_does_not_describe():
    entries = {"mixed": MADE_UP["square"]} | MADE_UP | {STEADY: MADE_UP["ramp"]}
    known = describe({"patterns": entries})
    assert list(known) == ["steady", "mixed", "square", "ramp"]
    assert known["mixed"] == PatternFacts(True, True, "up and down between two values")
    run = describe({"patterns": entries}, ["other", "ramp", "mixed", "steady"])
    assert list(run) == ["steady", "mixed", "ramp", "other"]
    assert run["other"] == PatternFacts(jumps=False, recovery=False)


@pytest.fixture
def curves():
    return with_controls()[0]


def test_constants_and_controls_are_known_by_their_definition(curves):
    study = load_study(curves, controlled(), manifest(curves))
    assert constants_of(study) == ["SAC+fixed", "SAC+fixed[base=0.4]"]
    controls = {"SAC+constant_at_mean(aes_r)", "SAC+permuted(aes_r+window:power=1)"}
    assert asides_of(study) == {*constants_of(study), *controls}
    with pytest.raises(ValueError, match="does not define the method"):
        load_study(curves, config(), {})


def test_a_method_meets_the_best_constant_of_its_carrier_and_its_own_controls(curves):
    study = load_study(curves, controlled(), manifest(curves))
    opponents = opponents_of(study, "SAC+AES-R")
    assert set(opponents) == {"best_constant", "constant_at_mean"}
    assert opponents["constant_at_mean"]["toy", "abrupt"] == "SAC+constant_at_mean(aes_r)"
    assert opponents["best_constant"]["toy", "abrupt"] == "SAC+fixed[base=0.4]"  # suffers less than the other
    other = opponents_of(study, "SAC+AES-R+window[window.power=1]")
    assert other["permuted"]["toy", "steady"] == "SAC+permuted(aes_r+window:power=1)"
    assert opponents_of(study, "PPO+AES-R") == {}  # of another carrier
    assert opponents_of(study, "SAC+fixed") == {}


def test_one_constant_is_no_choice_but_an_opponent(curves):
    study = load_study(curves.filter(pl.col("method") != "SAC+fixed"), controlled(), {})
    opponents = opponents_of(study, "SAC+AES-R")
    assert set(opponents) == {"constant", "constant_at_mean"}
    assert set(opponents["constant"].values()) == {"SAC+fixed[base=0.4]"}
    assert opponents_of(study, "SAC") == {}  # the same pair stands as the constant against its baseline


def test_the_frame_compares_with_them_and_corrects_each_kind_by_itself(curves):
    _, frame = with_controls()
    row = one(frame, "paired:nauc_task_safe:vs=best_constant", method="SAC+AES-R")
    assert "baseline=SAC+fixed[base=0.4]" in row["flag"]
    best = one(frame, "nauc_task_safe", method="SAC+fixed[base=0.4]")["value"]
    assert row["value"] == pytest.approx(one(frame, "nauc_task_safe", method="SAC+AES-R")["value"] - best)
    p = frame.filter(metric="p:nauc_task_safe:vs=best_constant", task="toy")
    holm = frame.filter(metric="p_holm:nauc_task_safe:vs=best_constant", task="toy")
    assert p.height == holm.height == 6  # three methods, two patterns
    assert holm["value"].min() == pytest.approx(6 * p["value"].min())
    assert frame.filter(method="SAC+fixed").filter(pl.col("metric").str.contains(":vs=")).is_empty()


def test_the_best_is_chosen_by_the_seeds_that_all_have():
    scores = {"few": {"abrupt": {1: 4.0, 2: 4.0}}, "more": {"abrupt": {1: 5.0, 2: 5.0, 3: -50.0}}}
    assert best_of(scores, ["few", "more"], "abrupt") == "more"
    apart = {"few": {"abrupt": {1: 4.0}}, "more": {"abrupt": {2: 3.0}}}  # no seed in common: each by its own
    assert best_of(apart, ["few", "more"], "abrupt") == "few"
    assert best_of(scores, ["nobody"], "abrupt") is None


def test_a_method_meets_the_baseline_that_has_its_numbers():
    sweep = {"kappa": (0.1, 1.0), "gamma": (0.9, 0.97), "base": (0.01, 0.2)}
    data = config_of("sac,ppo", "baseline,aes", steps=STEPS, sweep=sweep).to_json()
    names = ["PPO", "PPO[base=0.2]", "PPO[gamma=0.9]", "PPO[gamma=0.9,base=0.2]", "SAC", "SAC[gamma=0.9]"]
    baselines = {
        "PPO+AES": "PPO",
        "PPO+AES[kappa=0.1]": "PPO",
        "PPO+AES[kappa=0.1,base=0.2]": "PPO[base=0.2]",
        "PPO+AES[kappa=0.1,gamma=0.9,base=0.2]": "PPO[gamma=0.9,base=0.2]",
        "SAC+AES[kappa=0.1,gamma=0.9,base=0.2]": "SAC[gamma=0.9]",  # whose tuned weight has no base
        "SAC": None,
    }
    curves = make_curves([*dict.fromkeys([*names, *baselines])], ("abrupt",), [1], every=50_000)
    study = load_study(curves, data, {})
    assert {method: study.baseline(method) for method in baselines} == baselines


def test_profiles_count_runs_above_each_share_of_the_best_mean():
    """Two settings, floor 3: scores are (R - 3) / (best mean - 3), settings weighed equally, the worst run named."""
    curves = make_curves(("SAC", "SAC+AES"), ("steady", "abrupt"), seeds=(1, 2, 3), every=50_000)
    levels = {("SAC", "steady"): (13, 23, 33), ("SAC", "abrupt"): (3, 8, 13)}
    levels |= {("SAC+AES", "steady"): (28, 28, 28), ("SAC+AES", "abrupt"): (5, 5, 5)}
    table = [(m, p, seed, r) for (m, p), of_seeds in levels.items() for seed, r in enumerate(map(float, of_seeds), 1)]
    made = pl.DataFrame(table, ["method", "pattern", "seed", "level"], orient="row")
    keys = ["method", "pattern", "seed"]
    curves = curves.join(made, on=keys).with_columns(return_mean=pl.col("level")).drop("level")
    study = load_study(curves, config(), manifest(curves))
    found = profiles(study, ("SAC", "SAC+AES"))
    at = {round(float(t), 2): i for i, t in enumerate(found["SAC"].thresholds)}
    # Best means: 28 without drift (score of 23 is 0.8), 8 under drift (scores 0, 1, 2).
    assert [found["SAC"].share[at[t]] for t in (0.0, 0.5, 0.9, 1.1)] == pytest.approx([5 / 6, 2 / 3, 1 / 2, 1 / 3])
    assert [found["SAC+AES"].share[at[t]] for t in (0.0, 0.3, 0.5, 1.1)] == pytest.approx([1, 1, 1 / 2, 0])
    assert (found["SAC"].worst, found["SAC+AES"].worst) == pytest.approx((0.0, 0.4))
    assert found["SAC"].mean == pytest.approx(0.9)
    assert (found["SAC"].low <= found["SAC"].share).all()
    assert (found["SAC"].high >= found["SAC"].share).all()
    assert (found["SAC+AES"].high == found["SAC+AES"].low).all()  # equal seeds
