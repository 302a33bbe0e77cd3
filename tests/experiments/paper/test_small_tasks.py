"""The page of the record on small tasks comes from the scores that lie beside it."""

from pathlib import Path

import numpy as np
import polars as pl

from experiments.paper import small_tasks

RECORD = Path(__file__).parents[3] / "experiments" / "results" / "small-tasks"


def test_the_page_is_recomputed_from_the_stored_scores():
    text = (RECORD / small_tasks.PAGE).read_text()
    assert text == small_tasks.page(pl.read_csv(RECORD / small_tasks.RUNS), text.partition("\n## ")[0])


def test_runs_are_paired_and_none_is_missing():
    runs = pl.read_csv(RECORD / small_tasks.RUNS)
    assert np.isfinite(runs["mean_return"].to_numpy()).all()
    for carrier in small_tasks.carriers_of(runs):
        for method, settings in carrier.scores.items():
            assert {len(by_seed) for by_seed in settings.values()} <= {len(carrier.seeds), 20}, method
            assert all(set(carrier.seeds) <= set(by_seed) for by_seed in settings.values()), method


def test_the_opponent_is_the_best_cell_on_the_same_seeds_and_worse_methods_are_never_chosen():
    levels = {"SAC+fixed": 5.0, "SAC+fixed[base=0.03]": 4.0, "SAC+fixed[base=0.1]": 6.0, "SAC": 9.0, "SAC+AES": 5.5}
    setting, other, seeds = ("a", "steady"), ("a", "abrupt"), range(1, 6)
    scores = {m: {s: {k: v + 0.01 * k for k in seeds} for s in (setting, other)} for m, v in levels.items()}
    scores["SAC"][other] = {k: 1.0 + 0.013 * k for k in seeds}  # the best of all in one setting, the worst in the other
    scores["SAC+fixed[base=0.03]"][setting][1] += 50.0  # on seed 1 alone
    assert small_tasks.best_cell(scores, "SAC", setting, [2, 3]) == "SAC+fixed[base=0.1]"
    assert small_tasks.best_cell(scores, "SAC", setting, seeds) == "SAC+fixed[base=0.03]"
    found = small_tasks.contrast(scores, "SAC+AES", small_tasks.GRID, other, seeds)
    assert np.isclose(found.interval.value, -0.5)
    carrier = small_tasks.Carrier("SAC", scores, [setting, other], list(seeds))
    best, _, worse = small_tasks.chosen(carrier, seeds)
    assert (best, worse) == ("SAC+AES", {"SAC"})
