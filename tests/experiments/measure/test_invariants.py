"""Invariants of the metrics, as properties over random studies."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from experiments.measure import Curve, auc, companions, metrics, recovery, recovery_robust, stats

settings.register_profile("measure", deadline=None, max_examples=60)
settings.load_profile("measure")

HORIZON, EVERY, CHANGES = 100.0, 5.0, (20.0, 40.0, 60.0, 80.0)
STEPS = np.arange(0.0, HORIZON + 1, EVERY)
value = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3))
returns = arrays(np.float64, len(STEPS), elements=value)
positive = arrays(np.float64, (2, 3), elements=st.floats(1, 100).map(lambda x: round(x, 3)))
scale = st.floats(0.1, 10)
shift = st.floats(-50, 50).filter(lambda c: abs(c) > 1)


def near(a, b, tolerance=1e-7):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@given(returns, returns, scale, scale, st.integers(1, len(STEPS) - 2))
def test_1_area_is_linear_and_additive(x, y, a, b, cut):
    combined = auc(Curve(STEPS, a * x + b * y, HORIZON))
    near(combined, a * auc(Curve(STEPS, x, HORIZON)) + b * auc(Curve(STEPS, y, HORIZON)))
    left = auc(Curve(STEPS[: cut + 1], x[: cut + 1], STEPS[cut]))
    right = auc(Curve(STEPS[cut:] - STEPS[cut], x[cut:], HORIZON - STEPS[cut]))
    near(left + right, auc(Curve(STEPS, x, HORIZON)))


@given(positive, positive, positive, scale)
def test_3_scaling_returns_changes_no_ratio(ns, steady, sac, a):
    floors = np.array([-1.0, -2.0])
    for b in (None, floors):
        ab = None if b is None else a * b
        near(metrics.nauc_family(a * ns, a * sac, ab).value, metrics.nauc_family(ns, sac, b).value)
        near(metrics.nauc_task(a * ns, a * sac, ab).values, metrics.nauc_task(ns, sac, b).values)
        for drop in (metrics.drop_family, metrics.drop_task, metrics.drop_run):
            near(drop(a * ns, a * steady, ab, a * sac)[0], drop(ns, steady, b, sac)[0])


@given(positive, positive, positive, scale, shift)
def test_4_shifting_returns_changes_the_literal_ratios_but_not_the_safe_ones(ns, steady, sac, a, c):
    b = np.array([-1.0, -2.0])
    move = lambda x: a * x + c  # noqa: E731
    near(metrics.nauc_family(move(ns), move(sac), move(b)).value, metrics.nauc_family(ns, sac, b).value)
    near(metrics.nauc_task(move(ns), move(sac), move(b)).values, metrics.nauc_task(ns, sac, b).values)
    for drop in (metrics.drop_family, metrics.drop_task, metrics.drop_run):
        near(drop(move(ns), move(steady), move(b), move(sac))[0], drop(ns, steady, b, sac)[0])
    literal, moved = metrics.nauc_family(ns, sac).value, metrics.nauc_family(move(ns), move(sac)).value
    if abs(literal - 1.0) > 1e-3 and abs(np.mean(move(sac))) > 1e-3:
        assert abs(literal - moved) > 1e-9


@given(returns, st.sampled_from([0.5, 2.0, 4.0]), st.sampled_from([-64.0, 0.0, 32.0]))
def test_3_and_4_recovery_ignores_scale_and_offset(x, a, c):
    floor = -101.0
    x = np.round(x * 8) / 8  # dyadic, so that the transform is exact and no comparison flips by rounding
    old, new = Curve(STEPS, x, HORIZON), Curve(STEPS, a * x + c, HORIZON)
    moved = a * floor + c
    assert recovery(new, CHANGES).duration.tolist() == recovery(old, CHANGES).duration.tolist()
    before, after = recovery_robust(old, CHANGES, floor), recovery_robust(new, CHANGES, moved)
    tie = np.min(np.abs(x[:, None] - before.threshold[None, :])) < 1e-9
    assert tie or before.total == after.total
    left, right = companions(old, CHANGES, floor), companions(new, CHANGES, moved)
    near(left.immediate_drop, right.immediate_drop)
    near(left.deficit_area, right.deficit_area)


@given(positive, positive, positive, st.booleans())
def test_5_drop_is_one_minus_the_ratio_of_naucs_whatever_the_normaliser(ns, steady, normaliser, safe):
    b = np.array([-3.0, 0.5]) if safe else None
    ratio = metrics.nauc_family(ns, normaliser, b).value / metrics.nauc_family(steady, normaliser, b).value
    near(metrics.drop_family(ns, steady, b).value, 1.0 - ratio, 1e-10)


@given(returns, st.integers(4, len(STEPS) - 1), st.floats(0, 50))
def test_6_recovery_is_bounded_and_monotone(x, j, rise):
    for found in (
        recovery(Curve(STEPS, x, HORIZON), CHANGES),
        recovery_robust(Curve(STEPS, x, HORIZON), CHANGES, -200),
    ):
        assert 0.0 <= found.total <= (HORIZON - CHANGES[0]) / HORIZON
    single = recovery(Curve(STEPS, x, HORIZON), [20.0]).total
    higher, lower = x.copy(), x.copy()
    higher[j] += rise
    lower[3] -= rise
    assert recovery(Curve(STEPS, higher, HORIZON), [20.0]).total <= single
    assert recovery(Curve(STEPS, lower, HORIZON), [20.0]).total <= single


@given(positive, positive, st.permutations(range(3)))
def test_8_the_order_of_the_seeds_does_not_matter(x, y, order):
    for statistic in (stats.mean, stats.iqm):
        near(statistic(x[:, order]), statistic(x))
    near(stats.probability_of_improvement(x[:, order], y), stats.probability_of_improvement(x, y))
    near(stats.performance_profile(x[:, order], [5, 50]), stats.performance_profile(x, [5, 50]))
    both, d = stats.paired_differences(x[:, order], y[:, order]), stats.paired_differences(x, y)
    near(stats.mean(both), stats.mean(d))
    near(stats.iqm(both), stats.iqm(d))
    near(stats.paired_probability_of_improvement(both), stats.paired_probability_of_improvement(d))
    near(stats.t_interval(both[0]), stats.t_interval(d[0]))


@given(arrays(np.float64, (2, 2, 4), elements=st.integers(0, 5).map(float)))
def test_9_probabilities_of_improvement_are_complementary(both):
    x, y = both
    near(stats.probability_of_improvement(x, y) + stats.probability_of_improvement(y, x), 1.0)
    near(stats.probability_of_improvement(x, x), 0.5)
    near(stats.paired_probability_of_improvement(x - y) + stats.paired_probability_of_improvement(y - x), 1.0)
    near(stats.paired_probability_of_improvement(x - x), 0.5)


@given(positive)
def test_10_one_seed_has_no_width_and_duplicated_seeds_are_no_information_about_the_mean(x):
    single = stats.bootstrap_interval(np.random.default_rng(0), [x[:, :1]], replicates=200)
    near(single.low, single.value)
    near(single.high, single.value)
    one = x[:1]
    twice = np.concatenate([one, one], axis=1)
    near(stats.mean(twice), stats.mean(one))


@given(st.lists(st.one_of(st.floats(0, 1), st.just(float("nan"))), min_size=1, max_size=8))
def test_holm_is_at_least_the_raw_value_at_most_bonferroni_and_keeps_the_order(p):
    p, adjusted = np.array(p), stats.holm(p)
    valid = np.isfinite(p)
    assert np.array_equal(np.isfinite(adjusted), valid)
    assert np.all(adjusted[valid] >= p[valid])
    assert np.all(adjusted[valid] <= np.minimum(1, valid.sum() * p[valid]) + 1e-12)
    for i, j in itertools.combinations(np.flatnonzero(valid), 2):
        assert (adjusted[i] - adjusted[j]) * (p[i] - p[j]) >= 0
