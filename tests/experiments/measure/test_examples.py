"""Worked examples of every metric, to 1e-9."""

import itertools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from experiments.measure import metrics, stats
from experiments.measure.curves import Curve, IncompleteRunError, auc, mean_return
from experiments.measure.recovery import companions, expected_null_wait, recovery, recovery_robust

EXAMPLES = json.loads((Path(__file__).parent / "data" / "metric_examples.json").read_text())
close = pytest.approx


def test_a_area_under_the_curve_covers_exactly_the_horizon():
    ex = EXAMPLES["A_integration"]
    steps, returns = ex["steps"], ex["returns"]
    assert auc(Curve(steps, returns, 40)) == close(ex["auc_T40"], abs=1e-9) == 650
    assert mean_return(Curve(steps, returns, 40)) == close(ex["mean_return_T40"], abs=1e-9)
    assert auc(Curve(steps[1:], returns[1:], 40)) == close(ex["auc_T40_without_initial"], abs=1e-9)
    assert auc(Curve(steps, returns, 45)) == close(ex["auc_T45"], abs=1e-9)
    with pytest.raises(IncompleteRunError, match="more than one interval"):
        Curve(steps, returns, 51)


def test_b_the_two_normalisations_differ():
    runs = EXAMPLES["B_nauc"]["mean_return"]
    sac, drifting = runs["sac_steady"], runs["method_drifting"]
    assert metrics.nauc_family(drifting, sac) == close(EXAMPLES["B_nauc"]["nauc_family"], abs=1e-9)
    assert stats.mean(metrics.nauc_task(drifting, sac)) == close(EXAMPLES["B_nauc"]["nauc_task_mean"], abs=1e-9)
    assert metrics.nauc_family(sac, sac) == stats.mean(metrics.nauc_task(sac, sac)) == 1.0


def test_c_three_drop_ratios_are_three_numbers():
    runs, ex = EXAMPLES["B_nauc"]["mean_return"], EXAMPLES["C_drop"]
    drifting, steady = runs["method_drifting"], runs["method_steady"]
    assert metrics.drop_family(drifting, steady) == close(ex["drop_family"], abs=1e-9)
    assert np.mean(metrics.drop_task(drifting, steady)) == close(ex["drop_task_mean"], abs=1e-9)
    assert np.mean(metrics.drop_run(drifting, steady)) == close(ex["drop_run_mean"], abs=1e-9)


def test_d_negative_returns_mislead_the_literal_metrics_only():
    ex = EXAMPLES["D_negative"]
    sac, steady, drifting, floor = ([[ex[k]]] for k in ("sac_steady", "method_steady", "method_drifting", "floor"))
    assert metrics.nauc_family(steady, sac) == close(ex["nauc_literal"], abs=1e-9)
    assert metrics.drop_family(drifting, steady) == close(ex["drop_literal"], abs=1e-9)
    lifted = ([[x[0][0] + 200]] for x in (drifting, steady))
    assert metrics.drop_family(*lifted) == close(ex["drop_literal_after_adding_200"], abs=1e-9)
    for a, c in ((1, 0), (2, 7)):
        s, m, d = ([[a * x[0][0] + c]] for x in (sac, steady, drifting))
        b = [a * floor[0][0] + c]
        assert metrics.nauc_family(m, s, b) == metrics.nauc_task(m, s, b) == close(ex["nauc_safe"], abs=1e-9)
        assert metrics.drop_family(d, m, b, s) == metrics.drop_task(d, m, b, s) == close(ex["drop_safe"], abs=1e-9)


@pytest.mark.parametrize("normaliser", [-100, -120])
def test_e_a_normaliser_at_or_below_the_floor_gives_no_number(normaliser):
    arguments = [[-40]], [[normaliser]], [-100]
    for ratio in (metrics.nauc_family, metrics.nauc_task, metrics.drop_family, metrics.drop_run):
        value = ratio(*arguments)
        assert np.all(np.isnan(value))
    assert metrics.reason_of(np.nan, *arguments) == "normaliser_not_above_floor"


def test_f_recovery_literal_and_robust():
    ex = EXAMPLES["F_recovery"]
    curve = Curve(ex["steps"], ex["returns"], ex["T"])
    literal, want = recovery(curve, ex["changes"]), ex["literal"]
    assert literal.duration.tolist() == want["durations"]
    assert literal.recovered.tolist() == want["recovered"]
    assert literal.total == close(want["recovery"], abs=1e-9)
    assert literal.recovered_fraction == want["recovered_fraction"]
    robust, want = recovery_robust(curve, ex["changes"], ex["floor"], w=3), ex["robust"]
    assert robust.level == close(want["levels"], abs=1e-9)
    assert robust.threshold == close(want["thresholds"], abs=1e-9)
    assert robust.duration.tolist() == want["durations"]  # the spike at step 120 does not count
    assert robust.recovered.tolist() == want["recovered"]
    assert robust.total == close(want["recovery"], abs=1e-9)
    extra = companions(curve, ex["changes"], ex["floor"], w=3)
    assert extra.immediate_drop == close(ex["immediate_drop"], abs=1e-9)
    assert extra.deficit_area == close(ex["deficit_area"], abs=1e-9)
    assert extra.no_drop.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("window", [1, 4, 6])
def test_g_noise_floor_by_enumeration(window):
    waits = []
    for order in itertools.permutations(range(window + 1)):
        hits = [j for j, value in enumerate(order[1:]) if value >= order[0]]
        waits.append(hits[0] if hits else window)
    exact = Fraction(EXAMPLES["G_noise_floor"]["window_to_expected_wait"][str(window)])
    assert Fraction(sum(waits), len(waits)) == exact
    assert expected_null_wait(window) == close(float(exact), abs=1e-9)
    assert expected_null_wait(20) == close(EXAMPLES["G_noise_floor"]["W20"], abs=1e-9)  # the paper's window


def test_h_iqm_and_probability_of_improvement():
    ex = EXAMPLES["H_stats"]
    aes, base = np.array(ex["aes"]), np.array(ex["baseline"])
    d = stats.paired_differences(aes, base)
    assert stats.iqm(base) == close(ex["iqm_baseline"], abs=1e-9)
    assert stats.iqm(aes) == close(ex["iqm_aes"], abs=1e-9)
    assert stats.mean(d) == close(ex["mean_difference"], abs=1e-9)
    assert stats.iqm(d) == close(ex["iqm_difference"], abs=1e-9)
    assert stats.probability_of_improvement(aes, base) == close(ex["probability_of_improvement"], abs=1e-9)
    paired = stats.paired_probability_of_improvement(d)
    assert paired == close(ex["paired_probability_of_improvement"], abs=1e-9)
    for n, want in ex["iqm_squares"].items():
        # Squares 1 to N^2 as one list and as N tasks of N seeds: only the number of cells matters.
        squares = np.arange(1, int(n) + 1, dtype=float) ** 2
        assert stats.iqm(squares[None, :]) == close(want, abs=1e-9)
        assert stats.iqm(squares[:, None]) == close(want, abs=1e-9)


def all_resamples(sizes):
    """(prod n_m^n_m, M, n) every equally likely resample once; the sizes are equal."""
    per_task = [list(itertools.product(range(size), repeat=size)) for size in sizes]
    return np.array(list(itertools.product(*per_task)))


def test_i_bootstrap_by_full_enumeration():
    ex = EXAMPLES["I_bootstrap"]["one_task"]
    scores = np.array([ex["scores"]], float)
    values = stats.bootstrap([scores], stats.mean, all_resamples([4]))
    assert len(values) == ex["resamples"]
    assert np.mean(values) == close(ex["mean"], abs=1e-9)
    assert np.std(values) == close(ex["sd"], abs=1e-9)
    plain = stats.percentile_interval(4.0, values, 1)
    assert plain[1:] == close(ex["percentiles_2.5_97.5"], abs=1e-9)
    assert stats.percentile_interval(4.0, values, 4)[1:] == close(ex["stretched"], abs=1e-9)
    ex = EXAMPLES["I_bootstrap"]["two_tasks"]
    scores = np.array(ex["scores"], float)
    values = stats.bootstrap([scores], stats.mean, all_resamples([3, 3]))
    assert len(values) == ex["resamples"]
    assert np.mean(values) == close(ex["mean"], abs=1e-9)
    assert np.std(values) == close(ex["sd"], abs=1e-9)
    assert np.percentile(values, [2.5, 97.5]) == close(ex["percentiles_2.5_97.5"], abs=1e-9)
