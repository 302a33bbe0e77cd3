"""The tables of a report mark and round as they say."""

import polars as pl

from experiments.measure import describe, summarise
from experiments.report.cells import Lookup
from experiments.report.tables import build_tables, hindsight_table
from tests.experiments.measure.synthetic import config, make_curves, manifest

SOME = ("SAC", "SAC+AES")
FEW = 100


def test_marks_follow_the_direction_of_the_metric(tmp_path):
    curves = make_curves(SOME, ("steady", "abrupt"), range(1, 6), gain=0.2)
    frame = summarise(curves, config(), manifest(curves), replicates=FEW)
    paired = next(t for t in build_tables(Lookup(frame, describe({}))) if t.key == "paired")
    marks = {title: [str(row[3])[0] for row in rows] for title, rows in paired.groups if "abrupt" in title}
    assert marks["toy · safe nAUC (higher is better) · abrupt"] == ["▲"]
    assert marks["toy · safe DropRatio (lower is better) · abrupt"] == ["▲"]
    swapped = curves.with_columns(pl.col("method").replace({"SAC": "SAC+AES", "SAC+AES": "SAC"}))
    frame = summarise(swapped, config(), manifest(swapped), replicates=FEW)
    paired = next(t for t in build_tables(Lookup(frame, describe({}))) if t.key == "paired")
    assert all(
        str(r[3]).startswith("▼")
        for title, rows in paired.groups
        if "nAUC" in title and "abrupt" in title
        for r in rows
    )


def test_the_best_constant_in_hindsight_stands_beside_the_best_of_the_rest():
    methods = ("SAC", "SAC+fixed", "SAC+AES", "SAC+fixed[base=0.2]", "SAC+AES-R")  # later ones suffer less
    curves = make_curves(methods, ("abrupt",), range(1, 4))
    look = Lookup(summarise(curves, config(), manifest(curves), replicates=FEW), describe({}))
    (_, rows), *more = hindsight_table(look, methods[1::2]).groups
    assert not more
    assert [str(cell) for cell in rows[0]][:3] == ["SAC", "2", "SAC+fixed[base=0.2]"]
    assert str(rows[0][4]) == "SAC+AES-R"
    assert float(rows[0][3].text) < float(rows[0][5].text)
    assert not hindsight_table(look, ["SAC+fixed"]).rows  # one constant is no choice
    assert "hindsight" not in [table.key for table in build_tables(look)]
    assert "hindsight" in [table.key for table in build_tables(look, methods[1::2])]
