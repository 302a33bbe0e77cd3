"""The tables of a report mark and round as they say."""

import polars as pl

from aesjax.measure import describe, summarise
from aesjax.report.cells import Lookup, number
from aesjax.report.tables import build_tables
from tests.measure.synthetic import config, make_curves, manifest

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


def test_numbers_are_rounded_half_up_and_never_minus_zero():
    assert [number(x) for x in (0.125, -0.001, float("nan"), None)] == ["0.13", "0.00", "–", "–"]
