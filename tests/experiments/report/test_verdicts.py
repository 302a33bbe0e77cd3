"""The answer of a study: per method, never pooled, after the correction."""

import numpy as np
import polars as pl

from experiments.measure import describe, summarise
from experiments.measure.opponents import asides_of
from experiments.measure.study import load_study
from experiments.report.cells import Lookup
from experiments.report.compare import paired_table
from experiments.report.verdicts import verdicts
from experiments.session.results import Results
from tests.experiments.measure.synthetic import config, make_curves, manifest, with_controls
from tests.experiments.report.pages import save

FEW = 100


def look_of(curves):
    frame = summarise(curves, config(), manifest(curves), replicates=FEW)
    return Lookup(frame, describe({}))


def shifted(curves, method, by, pattern="abrupt"):
    """The returns of a method under a pattern moved by ``by`` with a little noise of its own."""
    noise = np.random.default_rng(1).normal(0, 0.05, curves.height)
    mine = (pl.col("method") == method) & (pl.col("pattern") == pattern)
    return curves.with_columns(
        return_mean=pl.when(mine).then(pl.col("return_mean") + by + pl.Series(noise)).otherwise("return_mean")
    )


def test_one_methods_wins_and_anothers_losses_are_two_lines():
    curves = make_curves(("SAC", "SAC+AES", "SAC+AES-R"), ("steady", "abrupt"), range(1, 6), every=2_000, gain=0.0)
    curves = shifted(shifted(curves, "SAC+AES", 3.0), "SAC+AES-R", -3.0)
    found = verdicts(look_of(curves))
    good, bad = [v for v in found if v.metric == "nauc_task_safe"]
    drop, worse = [v for v in found if v.metric == "drop_run_safe"]  # lower is better; nothing to judge on steady
    assert (drop.better, drop.worse, drop.undecided) == (("abrupt",), (), ())
    assert (worse.better, worse.worse, worse.undecided) == ((), ("abrupt",), ())
    assert (good.method, good.against, good.better, good.worse, good.undecided) == (
        *("SAC+AES", "SAC", ("abrupt",), (), ("steady",)),
    )
    assert (bad.method, bad.better, bad.worse, bad.undecided) == ("SAC+AES-R", (), ("abrupt",), ("steady",))
    assert good.n == 5
    assert good.sentence == (
        "SAC+AES against SAC, safe nAUC: better on abrupt; undecided on steady (5 pairs of runs, after Holm)"
    )


def test_fewer_than_five_pairs_are_a_hint_in_verdicts_tables_and_comparisons(tmp_path):
    for seeds, outcome in ((range(1, 5), "hint"), (range(1, 6), "better")):
        curves = make_curves(("SAC", "SAC+AES"), ("abrupt",), seeds, every=2_000, gain=0.0)
        curves = shifted(curves, "SAC+AES", 3.0)
        look = look_of(curves)
        (found,) = [v for v in verdicts(look) if v.metric == "mean_return"]
        assert getattr(found, outcome) == ("abrupt",)
        assert f"{outcome} on abrupt" in found.sentence
        cells = [row[3] for title, rows in paired_table(look).groups if "mean return (" in title for row in rows]
        assert [c.kind for c in cells] == [outcome]
        results = Results.open(save(tmp_path / outcome, curves))
        assert list(results.compare("SAC+AES", "SAC", metric="return")["outcome"]) == [outcome]


def test_what_the_correction_takes_away_is_undecided():
    """A difference with p of about 0.03 alone, beside another."""
    methods = ("SAC", "SAC+m0", "SAC+m1")
    curves = make_curves(methods, ("abrupt",), range(1, 6), every=2_000, gain=0.0)
    for rank, method in enumerate(methods[1:]):
        rng = np.random.default_rng(rank)
        apart = 0.8 + 0.69 * np.linspace(-1, 1, 5) if rank == 0 else rng.normal(0, 1, 5)
        by = pl.col("seed").replace_strict(dict(zip(range(1, 6), apart, strict=True)))
        mine = pl.col("method") == method
        curves = curves.with_columns(
            return_mean=pl.when(mine).then(pl.col("return_mean") + by).otherwise("return_mean")
        )
    look = look_of(curves)
    found = next(v for v in verdicts(look) if v.method == "SAC+m0")
    p = look.get(("toy", None), "SAC+m0", "abrupt", "p:mean_return")["value"]
    adjusted = look.get(("toy", None), "SAC+m0", "abrupt", "p_holm:mean_return")["value"]
    assert p < 0.05 < adjusted, (p, adjusted)
    assert found.undecided == ("abrupt",)


def test_controls_are_opponents_and_no_methods():
    curves, frame = with_controls()
    found = verdicts(Lookup(frame, describe({}), asides=asides_of(load_study(curves, config(), manifest(curves)))))
    assert {v.method for v in found} == {"SAC", "SAC+AES-R", "SAC+AES-R+window[window.power=1]"}
    against = {v.against for v in found if v.method == "SAC+AES-R"}
    assert against == {"SAC", "best constant", "constant at mean"}
    assert all(
        {*v.better, *v.worse, *v.hint, *v.undecided} == {"steady", "abrupt"}
        for v in found
        if v.metric == "nauc_task_safe"
    )
    assert {v.against for v in found if v.method == "SAC"} == {"best constant"}
    later = [v for v in found if v.metric == "later_return"]
    assert {v.against for v in later} == {"SAC", "best constant", "constant at mean", "permuted"}
    assert all({*v.better, *v.worse, *v.hint, *v.undecided} == {"abrupt"} for v in later)  # nothing changes on steady
