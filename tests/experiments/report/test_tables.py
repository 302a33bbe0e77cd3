"""The tables of a report mark and round as they say."""

import polars as pl

from experiments.measure import describe, summarise
from experiments.report.cells import Lookup, number
from experiments.report.tables import build_tables, hindsight_table, optional_tables
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


def test_what_only_some_studies_log_gets_a_table_in_those():
    curves = make_curves(SOME, ("abrupt",), range(1, 4))
    columns = {"window_share": 0.25, "refreshes": pl.when(pl.col("step") % 50_000 == 0).then(1.0).otherwise(0.0)}
    more = curves.with_columns(**{k: pl.lit(v) if isinstance(v, float) else v for k, v in columns.items()})
    more = more.with_columns(critic_dormant=pl.lit(0.125), return_nominal=pl.col("return_mean") - 1.0)
    tables = {}
    for name, rows in (("plain", curves), ("more", more)):
        look = Lookup(summarise(rows, config(), manifest(rows), replicates=FEW), describe({}))
        tables[name] = {table.key: table for table in optional_tables(look)}
    assert tables["plain"] == {}
    assert tables["more"]["levers"].header == ["method", "window", "refreshes"]
    assert [str(cell) for cell in tables["more"]["levers"].rows[0]] == ["SAC", "0.250", "3.0"]
    assert [str(cell) for cell in tables["more"]["networks"].rows[1]] == ["SAC+AES", "0.125"]
    _, in_force, nominal = tables["more"]["elsewhere"].rows[0]
    assert abs(float(in_force.text) - float(nominal.text) - 1.0) < 0.011


def test_numbers_are_rounded_half_up_and_never_minus_zero():
    assert [number(x) for x in (0.125, -0.001, float("nan"), None)] == ["0.13", "0.00", "–", "–"]
