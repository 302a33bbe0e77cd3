"""Tables as files, and the data of live charts."""

import json

import numpy as np
import polars as pl

from experiments.report.cells import Cell, Table
from experiments.report.exports import frame_of, write_tables
from experiments.report.looks import Look
from experiments.report.payload import payload
from experiments.report.plots import Axis, Line, Panel, Plot, Row

ROWS = [
    [Cell("SAC"), Cell("5/5"), Cell("▲ 1.20", "[1.00, 1.40]", "better"), Cell("–"), Cell("80 %")],
    [Cell("PPO"), Cell("4/5"), Cell("-0.50†", "n=4"), Cell("3.1"), Cell("–")],
]


def table():
    return Table(
        "t", "Title", "How to read it.", ["method", "runs", "value", "value", "share"], [("toy · abrupt", ROWS)]
    )


def test_numbers_become_columns_with_their_intervals_and_words_stay_words():
    frame = frame_of(table())
    assert frame.columns == [
        "group",
        "method",
        "runs",
        "value",
        "value low",
        "value high",
        "value n",
        "value (2)",
        "share",
    ]
    assert frame["value"].to_list() == [1.2, -0.5]
    assert frame["value low"].to_list() == [1.0, None]
    assert frame["value n"].to_list() == [None, 4.0]
    assert frame["value (2)"].to_list() == [None, 3.1]
    assert frame["share"].to_list() == [80.0, None]
    assert frame["runs"].to_list() == ["5/5", "4/5"]


def test_every_table_with_rows_is_written_three_times(tmp_path):
    empty = Table("empty", "Nothing", "", ["method"])
    write_tables([table(), empty], tmp_path, {"t": "## Title\n", "empty": ""})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.md", "t.parquet"]
    assert pl.read_parquet(tmp_path / "t.parquet").equals(
        pl.read_csv(tmp_path / "t.csv").cast(frame_of(table()).schema)
    )


def test_the_data_of_a_chart_is_rounded_shared_and_cannot_leave_its_element():
    x = np.array([0.0, 1000.0, 2000.0])
    name = "</script><b>"
    lines = tuple(Line(name, x, np.array([1.23456, np.nan, 2.0]), seeds={3: x}) for _ in range(2))
    axis = Axis("environment steps", 0.0, 2000.0, "steps")
    panels = (Panel(0, 0, lines),)
    plot = Plot(
        "p", "curves", "toy", "abrupt", "T", "c", "a", axis, (Row("return"),), ("SAC",), panels, {name: Look(0)}
    )
    text = payload([plot])
    assert "<" not in text
    found = json.loads(text)["plots"]["p"]
    assert found["grids"] == [[0, 1000, 2000]]  # one for both lines
    assert found["panels"][0]["lines"][0] == {
        "name": name,
        "x": 0,
        "y": [1.235, None, 2],
        "seeds": {"3": [0, 1000, 2000]},
    }
