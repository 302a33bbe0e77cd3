"""Calibration: the fit is least squares, a split covers what it promises, reuse does not, runs do (C1 to C6)."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from aesjax.schedules import calibration as cal
from tests.experiments.theory import worlds
from tests.experiments.theory.generators import proxies

REPETITIONS = 10_000
SIZES = (10, 20, 50)


# --- C1: the fit ---


def least_squares(v, b):
    """The nondecreasing least-squares fit at each pair, as a bounded linear problem in its increments."""
    unique, group = np.unique(v, return_inverse=True)
    increments = np.tril(np.ones((len(unique), len(unique))))[group]
    low = np.concatenate([[-np.inf], np.zeros(len(unique) - 1)])
    return increments @ lsq_linear(increments, b, (low, np.inf), tol=1e-14).x


def instances(rng):
    for size in range(1, 13):
        for ties in (False, True):
            v = rng.integers(0, max(2, size // 2), size).astype(float) if ties else rng.normal(size=size)
            yield v, rng.normal(size=size) + rng.choice([0.0, 1.0, -1.0]) * v


def test_the_fit_solves_the_quadratic_program_with_and_without_ties(report):
    worst = 0.0
    for v, b in instances(np.random.default_rng(0)):
        fitted = cal.predict(cal.isotonic_fit(v, b), v)
        np.testing.assert_allclose(fitted, least_squares(v, b), atol=1e-6)
        worst = max(worst, np.abs(fitted - least_squares(v, b)).max())
    report("C1 largest difference", worst)


def test_between_fitted_signals_the_bound_is_a_step_or_a_line():
    fit = cal.isotonic_fit(np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.0, 3.0]))
    query = np.array([0.0, 1.0, 1.9, 2.0, 3.0, 4.0, 9.0])
    np.testing.assert_array_equal(cal.predict(fit, query), [0, 0, 0, 1, 1, 3, 3])
    np.testing.assert_allclose(cal.predict(fit, query, interpolate=True), [0, 0, 0.9, 1, 2, 3, 3])


# --- C2, C3, C4: coverage of one fresh pair ---


def covered(size, make, **options):
    """(REPETITIONS,) bool: does a fresh drift keep the bound?"""
    rng = np.random.default_rng(size)
    v = rng.random((REPETITIONS, size + 1))
    b = np.maximum(0.0, v + 0.1 * rng.standard_normal(v.shape))
    bound = make(v[:, :size], b[:, :size], 0.1, **options)
    return b[:, size] <= cal.upper_bound(bound, v[:, size:], **options)[:, 0]


def halves(v, b, delta):
    h = v.shape[-1] // 2
    return cal.split_conformal(v[..., :h], b[..., :h], v[..., h:], b[..., h:], delta)


@pytest.mark.parametrize(("size", "missing"), [(10, 0.30), (20, 0.20), (50, 0.10)])
def test_fit_and_margin_from_the_same_pairs_miss_the_promised_coverage(report, size, missing):
    step, line = (covered(size, cal.reused_conformal, interpolate=x).mean() for x in (False, True))
    report(f"C2 coverage, step, N={size}", step)
    report(f"C2 coverage, interpolated, N={size}", line)
    error = 3.0 * np.sqrt(0.25 / REPETITIONS)
    assert step + error < 0.9 - missing
    assert step < line
    assert line + error < 0.9 - missing / 2.0


@pytest.mark.parametrize("size", SIZES)
def test_a_split_covers_exactly_what_exchangeability_promises(report, size):
    n = size - size // 2
    index = cal.conformal_index(n, 0.1)
    expected = min(1.0, index / (n + 1))
    assert 0.9 - 1e-12 <= expected <= 0.9 + 1.0 / (n + 1)
    found = covered(size, halves).mean()
    report(f"C3 coverage, N={size}", found)
    assert abs(found - expected) <= 3.0 * np.sqrt(expected * (1.0 - expected) / REPETITIONS)


def test_too_few_residuals_give_an_infinite_margin_that_a_cap_makes_trivial():
    rng = np.random.default_rng(3)
    v, b = rng.random((2, 2, 5))
    bound = cal.split_conformal(v[0], b[0], v[1], b[1], 0.1)
    assert cal.conformal_index(5, 0.1) == 6
    assert np.isinf(bound.margin)
    np.testing.assert_array_equal(cal.upper_bound(bound, v[0], cap=2.0), np.full(5, 2.0))
    assert np.isfinite(cal.split_conformal(v[0], b[0], v[1], b[1], 0.2).margin)  # index 5 of 5


# --- C5 and what coverage does not give ---


def test_coverage_of_one_round_is_not_coverage_of_all_rounds(report):
    found = worlds.rounds_of_a_run(np.random.default_rng(4), 1_000)
    report("C5 one round", found["each"])
    report("C5 all 50 rounds", found["all"])
    assert found["each"] == pytest.approx(0.9, abs=0.015)
    assert found["all"] < 0.03
    assert found["trivial"] > 0.95  # scaled by 1/(mu (1 - gamma)) every bound is the largest drift there is


def test_coverage_over_all_rounds_says_nothing_about_drift_events(report):
    found = worlds.rare_drift(np.random.default_rng(5), 20)
    for name, value in found.items():
        report(f"rare drift, {name}", value)
    assert found["overall"] > 0.87
    assert found["at drift"] < 0.01
    assert found["windows with drift"] < 0.5
    assert found["lag known"] < 0.5
    assert found["margin of events"] > 0.8
    assert found["its slack"] > 10.0


def test_pooling_the_rounds_of_different_runs_covers_the_pool_and_not_the_run(report):
    share = worlds.gain_between_runs(np.random.default_rng(6), 400)["per run"]
    report("runs that reach .85", np.mean(share >= 0.85))
    assert share.mean() == pytest.approx(0.9, abs=0.05)
    assert np.mean(share >= 0.85) < 0.87
    assert np.mean(share < 0.6) > 0.05


# --- C6: the run-level scale ---


def test_the_ratio_is_the_smallest_factor_that_dominates():
    rng = np.random.default_rng(8)
    drift, signal = rng.exponential(size=(2, 200, 60))
    ratio = cal.run_ratios(drift, signal)[:, None]
    assert np.all(cal.dominates(drift, ratio * signal))
    assert not np.any(cal.dominates(drift, (1.0 - 1e-9) * ratio * signal))


def test_drift_before_the_first_signal_makes_a_run_infinite_and_no_drift_makes_it_zero():
    drift = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    signal = np.array([[0.0, 0.0, 5.0], [0.0, 4.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(cal.run_ratios(drift, signal), [np.inf, 0.25, 0.0])


def test_run_level_rates_hold_and_the_guarantee_is_no_more_than_it_says(report):
    found = worlds.run_level(np.random.default_rng(10), 120)
    for name, values in found.items():
        if name != "ratios":
            report(f"run level, {name}, n=39", values[-1])
    np.testing.assert_allclose(found["dominance"], 0.9, atol=0.05)
    np.testing.assert_allclose(found["smallest delta: dominance"], [0.9, 0.95, 0.975], atol=0.05)
    assert np.all(found["at drift"] < 0.5)
    assert np.all(found["every round"] < 0.5)
    assert np.all(found["other schedule"] < 0.88)


def test_capping_every_round_breaks_prefix_dominance():
    drift, bound = np.array([0.0, 1.0, 1.0, 1.0]), np.array([3.0, 0.0, 0.0, 0.0])
    assert cal.dominates(drift, bound)
    assert not cal.dominates(drift, np.minimum(bound, 2.0))
    found = worlds.announced_drift(np.random.default_rng(11), 20)
    assert found["uncapped"] > 0.8
    assert found["capped"] < 0.2


# --- smoothing ---


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95, 0.99])
def test_the_debt_of_smoothing_is_exact(decay):
    rng = np.random.default_rng(13)
    for v in proxies(rng, 300).values():
        smooth, value = [], 0.0
        for x in v:
            value = decay * value + (1.0 - decay) * x
            smooth.append(value)
        held = np.cumsum(smooth) + cal.smoothing_debt(np.array(smooth), decay)
        np.testing.assert_allclose(held, np.cumsum(v), rtol=1e-9, atol=1e-12)


# --- measures and errors ---


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: cal.isotonic_fit(np.zeros(3), np.zeros(4)), "same shape"),
        (lambda: cal.isotonic_fit(np.zeros(0), np.zeros(0)), "N >= 1"),
        (lambda: cal.isotonic_fit(np.array([np.nan]), np.zeros(1)), "finite"),
        (lambda: cal.run_ratios(np.array([-1.0]), np.ones(1)), ">= 0"),
        (lambda: cal.conformal_index(9, 0.0), "delta must lie in (0, 1); got 0.0"),
        (lambda: cal.conformal_index(0, 0.5), "n must be at least 1; got 0"),
        (lambda: cal.runs_needed(1.0), "got 1.0"),
        (lambda: cal.window_maximum(np.zeros(3), 4), "between 1 and the number of rounds, 3; got 4"),
        (lambda: cal.smoothing_debt(np.zeros(3), 1.0), "decay must lie in [0, 1); got 1.0"),
        (lambda: cal.predict(cal.isotonic_fit(np.zeros((2, 3)), np.zeros((2, 3))), np.zeros((3, 3))), "do not fit"),
    ],
)
def test_bad_arguments_are_refused_with_the_reason(call, part):
    with pytest.raises(ValueError) as error:
        call()
    assert part in str(error.value)
