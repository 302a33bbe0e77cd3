"""What the figures of a report show, and in which colour."""

import numpy as np
import polars as pl

from aesjax.report.figures import _oracle, _series, colours
from tests.measure.synthetic import make_curves

METHODS = [carrier + kind for carrier in ("SAC", "PPO", "MEow") for kind in ("", "+AES", "+AES-R")]


def test_a_diverged_seed_leaves_the_mean_curve_and_does_not_cut_it_short():
    curves = make_curves(("SAC",), ("abrupt",), [1, 2], every=5_000)
    cut = curves.filter((pl.col("seed") != 2) | (pl.col("step") < 40_000))
    steps, values = _series(cut, "SAC", "entropy_weight")
    assert (len(steps), values.shape) == (21, (1, 21))
    assert np.all(np.isfinite(values))
    none = cut.filter(pl.col("seed") == 2).with_columns(return_mean=float("nan"))
    assert _series(none, "SAC", "entropy_weight")[1].shape == (1, 8)


def test_a_method_keeps_its_colour_across_carriers():
    found = colours(METHODS)
    assert found["SAC+AES"] == found["PPO+AES"] != found["SAC+AES-R"]
    assert found["SAC"] == found["MEow"]


def test_the_optimum_is_that_of_the_seeds_that_are_drawn():
    by_seed = {"oracle": {"toy": {"abrupt": {"1": [10.0, 20.0], "2": [30.0, 40.0], "3": [0.0, 0.0]}}}}
    assert _oracle(by_seed, "toy", "abrupt", [1, 2]).tolist() == [20.0, 30.0]
    assert _oracle({"oracle": {"toy": {"abrupt": [5.0, 6.0]}}}, "toy", "abrupt", [1]).tolist() == [5.0, 6.0]
    assert _oracle(by_seed, "toy", "abrupt", [9]) is None
