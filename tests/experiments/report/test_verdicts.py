"""The answer of a study: per method, never pooled, after the correction."""

import numpy as np
import polars as pl

from experiments.measure import summarise
from experiments.measure.comparisons import BETTER, NOT_SIGNIFICANT, WORSE, asides_of, outcome_of
from experiments.measure.study import load_study
from experiments.report.cells import Lookup
from experiments.report.compare import paired_table
from experiments.report.verdicts import verdicts
from experiments.session.results import Results
from tests.experiments.measure.synthetic import config, controlled, make_curves, manifest, with_controls
from tests.experiments.report.pages import save

FEW = 100


def look_of(curves):
    frame = summarise(curves, config(), manifest(curves), replicates=FEW)
    return Lookup(frame, ())


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
    assert (good.method, good.against, good.n) == ("SAC+AES", "SAC", 5)
    assert good.patterns == {BETTER: ("abrupt",), WORSE: (), NOT_SIGNIFICANT: ("steady",)}
    assert good.sentence == (
        "SAC+AES against SAC, floor-corrected nAUC: better on abrupt; not significant on steady "
        "(5 pairs of runs, after Holm)"
    )
    assert (bad.method, bad.patterns[WORSE]) == ("SAC+AES-R", ("abrupt",))
    drops = [v.patterns for v in found if v.metric == "drop_run_safe"]  # lower is better; no judgement on steady
    assert drops[0] == {BETTER: ("abrupt",), WORSE: (), NOT_SIGNIFICANT: ()}
    assert drops[1] == {BETTER: (), WORSE: ("abrupt",), NOT_SIGNIFICANT: ()}


def test_fewer_than_five_pairs_are_never_significant_in_verdicts_tables_and_comparisons(tmp_path):
    for seeds, outcome, kind in ((range(1, 5), NOT_SIGNIFICANT, ""), (range(1, 6), BETTER, BETTER)):
        curves = make_curves(("SAC", "SAC+AES"), ("abrupt",), seeds, every=2_000, gain=0.0)
        curves = shifted(curves, "SAC+AES", 3.0)
        look = look_of(curves)
        (found,) = [v for v in verdicts(look) if v.metric == "mean_return"]
        assert found.patterns[outcome] == ("abrupt",)
        cells = [row[3] for title, rows in paired_table(look).groups if "mean return (" in title for row in rows]
        assert [c.kind for c in cells] == [kind]
        results = Results.open(save(tmp_path / str(len(seeds)), curves))
        frame = results.compare("SAC+AES", "SAC", metric="return")
        assert list(frame["outcome"]) == [outcome]
        row = results.metrics.filter(metric="paired:mean_return", task="toy", method="SAC+AES")
        assert frame.select("low", "high").row(0) == row.select("low", "high").row(0)


def test_a_difference_that_the_correction_takes_away_is_not_significant():
    assert outcome_of(1.0, 0.049, "mean_return", 5) == outcome_of(-1.0, 0.049, "drop_run", 5) == BETTER
    assert outcome_of(-1.0, 0.049, "mean_return", 5) == WORSE
    assert outcome_of(1.0, 0.05, "mean_return", 5) == outcome_of(1.0, np.nan, "mean_return", 5) == NOT_SIGNIFICANT


def test_controls_are_opponents_and_no_methods():
    curves, frame = with_controls()
    found = verdicts(Lookup(frame, (), asides=asides_of(load_study(curves, controlled(), {}))))
    assert {v.method for v in found} == {"SAC", "SAC+AES-R", "SAC+AES-R+window[window.power=1]"}
    against = {v.against for v in found if v.method == "SAC+AES-R"}
    assert against == {"SAC", "best constant", "constant at mean"}
    assert {v.against for v in found if v.method == "SAC"} == {"best constant"}
    later = [v for v in found if v.metric == "later_return"]
    assert {v.against for v in later} == {"SAC", "best constant", "constant at mean", "permuted"}
    assert all(sum(v.patterns.values(), ()) == ("abrupt",) for v in later)  # nothing changes on steady
