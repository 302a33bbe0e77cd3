"""Every seed by itself, and the ones that ended far from the others by name."""

import polars as pl

from experiments.measure import describe, summarise
from experiments.report.cells import Lookup
from experiments.report.seeds import outliers, seed_table
from tests.experiments.measure.synthetic import config, make_curves, manifest

FEW = 100


def look_of(curves, diverged=()):
    return Lookup(summarise(curves, config(), manifest(curves, diverged=diverged), replicates=FEW), describe({}))


def test_the_seed_that_found_a_local_goal_is_named_with_its_end_and_the_others():
    curves = make_curves(("SAC", "SAC+AES-R"), ("steady", "abrupt"), range(1, 6), every=5_000)
    lost = (pl.col("method") == "SAC+AES-R") & (pl.col("pattern") == "steady") & (pl.col("seed") == 2)
    curves = curves.with_columns(return_mean=pl.when(lost).then(0.5 * pl.col("return_mean")).otherwise("return_mean"))
    look = look_of(curves)
    [found] = outliers(look, {"toy": 3.0})
    end = look.seeds("toy", "SAC+AES-R", "steady", "final_return")[2]
    assert (found.method, found.pattern, found.ends) == ("SAC+AES-R", "steady", {2: end})
    assert 20 < end < 25
    assert found.sentence.startswith(f"SAC+AES-R, toy, steady: seed 2 ends at {end:.1f}, the others at 4")
    table = seed_table(look, {"toy": 3.0})
    assert table.header == ["method", "seed 1", "seed 2", "seed 3", "seed 4", "seed 5"]
    marked = [(g, str(row[0]), n) for g, rows in table.groups for row in rows for n, c in enumerate(row) if c.kind]
    assert marked == [("toy · steady", "SAC+AES-R", 2)]
    assert table.notes == [found.sentence]


def test_a_run_that_does_not_count_is_a_dash():
    curves = make_curves(("SAC",), ("abrupt",), range(1, 6), every=5_000)
    [(_, [row])] = seed_table(look_of(curves, [("SAC", "abrupt", 3)]), {}).groups
    assert row[3].text == "–"
    assert all(float(cell.text) > 0 for cell in (*row[1:3], *row[4:]))
