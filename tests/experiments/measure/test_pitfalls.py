"""The known traps of the metrics as tests, and the edges of the curves, the weights and the statistics."""

import numpy as np
import pytest

from experiments.measure import metrics, stats
from experiments.measure.curves import Curve
from experiments.measure.recovery import (
    expected_null_wait,
    null_recovery,
    recovery,
    recovery_robust,
    recovery_vs_steady,
)
from experiments.measure.runs import responsiveness, saturation

T = 1_000_000
STEPS = np.arange(0, T + 1, 10_000)
CHANGES = [200_000, 400_000, 600_000, 800_000]


def test_literal_recovery_of_a_change_that_did_nothing_is_the_formula_not_zero():
    rng = np.random.default_rng(3)
    curves = [Curve(STEPS, r, T) for r in rng.normal(50, 1, (1500, len(STEPS)))]
    measured = np.mean([recovery(c, CHANGES).total for c in curves])
    formula = null_recovery(curves[0], CHANGES)
    # Three windows of 20 evaluations, and one of 21, because the evaluation at T belongs to the last segment.
    assert formula == pytest.approx((3 * expected_null_wait(20) + expected_null_wait(21)) / 100)
    assert formula == pytest.approx(0.106, abs=1e-3)
    assert measured == pytest.approx(formula, abs=4 * 0.09 / np.sqrt(len(curves)))
    robust = np.mean([recovery_robust(c, CHANGES, 0.0).total for c in curves[:200]])
    assert robust < 0.001 < measured


def test_a_poor_learner_recovers_fast_but_not_against_its_own_steady_run():
    poor = np.where(STEPS < 200_000, 5.0, 6.0)
    steady = Curve(STEPS, np.where(STEPS < 200_000, 5.0, 50.0), T)
    drifting = Curve(STEPS, poor, T)
    assert recovery_robust(drifting, CHANGES, 0.0).total == 0.0
    against = recovery_vs_steady(drifting, steady, CHANGES, 0.0)
    assert against.recovered_fraction == 0.0
    assert against.total == pytest.approx(0.8)


def test_nothing_learned_means_not_applicable_and_not_recovered_at_once():
    found = recovery_robust(Curve(STEPS, np.full(len(STEPS), -1.0), T), CHANGES, 0.0)
    assert found.n_not_applicable == 4
    assert np.isnan(found.total)
    assert np.isnan(found.recovered_fraction)


def test_an_evaluation_on_the_change_step_sees_the_new_environment():
    steps = np.arange(0, 101, 10.0)
    r = np.where(steps < 50, 10.0, 20.0)
    assert recovery(Curve(steps, r, 100), [50]).total == 0.0
    assert recovery(Curve(steps, r, 100), [50]).level.tolist() == [10.0]


@pytest.mark.parametrize(
    ("steps", "returns", "says"),
    [
        ([0, 10, 10], [1, 2, 3], "increase strictly"),
        ([0, 10, 110], [1, 2, 3], "leave"),
        ([], [], "equal shape"),
        ([0, 10], [1, 2], "more than one interval"),
    ],
)
def test_a_bad_curve_is_refused_with_a_sentence(steps, returns, says):
    with pytest.raises(ValueError, match=says):
        Curve(steps, returns, 100)


def test_ratio_intervals_include_the_uncertainty_of_the_shared_normaliser():
    own = np.full((1, 5), 50.0)  # the method itself never varies
    sac = np.array([[40.0, 50.0, 60.0, 45.0, 55.0]])
    interval = stats.bootstrap_interval(np.random.default_rng(0), [own, sac], metrics.nauc_family)
    assert interval.high - interval.low > 0.1
    same = stats.bootstrap_interval(np.random.default_rng(0), [sac, sac], metrics.nauc_family)
    assert same == (1.0, 1.0, 1.0)  # joint draw: SAC on Steady is 1 in every replicate


def test_paired_t_test_agrees_with_scipy():
    from scipy import stats as scipy_stats

    d = np.array([0.1, -0.02, 0.15, 0.1, 0.1])
    reference = scipy_stats.ttest_1samp(d, 0.0)
    assert stats.paired_t_p(d) == pytest.approx(reference.pvalue, abs=1e-12)
    assert stats.t_interval(d)[1:] == pytest.approx(tuple(reference.confidence_interval(0.95)), abs=1e-12)
    assert stats.paired_t_p(np.zeros(4)) == 1.0
    assert np.isnan(stats.paired_t_p(np.ones(1)))
    assert stats.holm([0.01, 0.04, 0.03]).tolist() == [0.03, 0.06, 0.06]


def test_an_interval_of_two_methods_is_stretched_by_the_runs_of_the_method_with_fewest():
    """Percentiles of few runs are too narrow; the statistic reads the complete method alone, so only this differs."""
    complete, short = np.arange(9.0)[None], np.where(np.arange(9) < 6, 1.0, np.nan)[None]

    def width(*arrays):
        interval = stats.bootstrap_interval(np.random.default_rng(0), arrays, lambda one, *_: stats.mean(one))
        return interval.high - interval.low

    assert width(complete, short) / width(complete) == pytest.approx(np.sqrt(6 / 5) / np.sqrt(9 / 8))
    assert width(complete, np.full((1, 9), np.nan)) == width(complete)


def test_responsiveness_is_the_relative_rise_soon_after_a_change_and_saturation_a_share():
    steps = np.arange(0, 1001, 10.0)
    weight = np.ones(len(steps))
    weight[(steps > 200) & (steps <= 220)] = 1.5
    weight[(steps > 420) & (steps <= 500)] = 9.0  # too late to count
    assert responsiveness(steps, weight, [200, 400], 1000).value == pytest.approx(0.25)
    assert responsiveness([0, 500, 1000], [1, 1, 1], [200], 1000).reason == "too_few_evaluations_after_a_change"
    assert responsiveness(steps, np.full(len(steps), np.nan), [200], 1000).reason == "not_logged"
    share = saturation([0, 10, 40, 50], [np.nan, 0.5, 0.1, np.nan])  # intervals count by their length
    assert share.value == pytest.approx((10 * 0.5 + 30 * 0.1) / 40)
