"""Paired contrasts against plain arithmetic and SciPy's paired t test."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from experiments.measure.contrasts import best_of, contrasts, share_of

RANDOM = np.random.default_rng(0)
A, B = RANDOM.normal(1.0, 1.0, 6), RANDOM.normal(0.0, 1.0, 6)
SCORES = {
    "a": {"abrupt": dict(enumerate(A)), "steady": dict(enumerate(A))},
    "b": {"abrupt": dict(enumerate(B)), "steady": {0: A[0] - 1, 9: 5.0}},
    "c": {"abrupt": {0: 10.0}},
}


def test_difference_and_p_are_those_of_the_paired_t_test():
    [found] = contrasts(SCORES, [("a", "b", "abrupt")])
    expected = ttest_rel(A, B)
    low, high = expected.confidence_interval()
    np.testing.assert_allclose(found.difference, [np.mean(A - B), low, high], rtol=1e-9)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.p_holm == found.p
    assert (found.seeds, found.wins) == (6, int(np.sum(A > B)))


def test_only_common_seeds_are_paired_and_one_alone_decides_nothing():
    [found] = contrasts(SCORES, [("a", "b", "steady"), ("a", "nobody", "steady"), ("a", "c", "mixed")])
    assert (found.seeds, found.difference.value, found.verdict) == (1, pytest.approx(1.0), "undecided")


def test_the_more_is_asked_the_larger_p():
    shifted = {"d": {"abrupt": dict(enumerate(B + 3.0 + 0.1 * A))}, **SCORES}
    alone = contrasts(shifted, [("d", "b", "abrupt")])[0]
    first, second = contrasts(shifted, [("d", "b", "abrupt"), ("a", "b", "abrupt")])
    assert alone.verdict == first.verdict == "better"
    assert first.p_holm == pytest.approx(2 * alone.p)
    assert second.p_holm >= second.p
    [back] = contrasts(shifted, [("b", "d", "abrupt")])
    assert (back.verdict, back.wins) == ("worse", 0)


def test_the_best_in_hindsight_and_shares_of_it():
    assert best_of(SCORES, ["a", "b", "nobody"], "abrupt") == ("a" if A.mean() > B.mean() else "b")
    assert best_of(SCORES, ["nobody"], "abrupt") is None
    assert share_of(SCORES, "a", "c", "abrupt", floor=2.0) == pytest.approx((A.mean() - 2.0) / 8.0)
    assert np.isnan(share_of(SCORES, "a", "c", "steady"))


def test_the_best_is_chosen_by_the_seeds_that_all_have():
    scores = {"few": {"abrupt": {1: 4.0, 2: 4.0}}, "more": {"abrupt": {1: 5.0, 2: 5.0, 3: -50.0}}}
    assert best_of(scores, ["few", "more"], "abrupt") == "more"
    apart = {"few": {"abrupt": {1: 4.0}}, "more": {"abrupt": {2: 3.0}}}  # no seed in common: each by its own
    assert best_of(apart, ["few", "more"], "abrupt") == "few"
