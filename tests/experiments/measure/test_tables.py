"""The paper's printed tables agree with one another where one follows from another."""

from decimal import Decimal

import pytest

from experiments.measure import paper_table, round_half_up
from experiments.measure.tables import (
    PAPER_TABLES,
    decimal_mean,
    equal_weight_mean,
    paper_nauc_drop,
    paper_recovery,
)

MAIN = paper_table("nauc_drop")
CELLS = {(r["family"], r["method"], r["pattern"]): r for r in MAIN}
TIMES = {(r["family"], r["task"], r["method"]): r["recovery_percent"] for r in paper_table("recovery")}
CARRIERS = ("SAC", "PPO", "SQL", "MEow")


def test_tables_have_the_papers_sizes():
    sizes = {"nauc_drop": 120, "recovery": 96, "ablation": 8, "quantile": 5, "ema": 5, "clip": 5}
    assert {name: len(paper_table(name)) for name in PAPER_TABLES} == sizes
    with pytest.raises(ValueError, match="unknown paper table 'main'"):
        paper_table("main")


def test_sac_on_steady_is_the_unit_and_steady_rows_do_not_drop():
    assert all(CELLS[f, "SAC", "Steady"]["nauc"] == Decimal("1.00") for f in ("Toy", "MuJoCo", "Isaac Gym"))
    steady = [r for r in MAIN if r["pattern"] == "Steady"]
    assert len(steady) == 24
    assert all(r["drop_ratio"] == Decimal("0.00") for r in steady)


def test_every_printed_drop_ratio_follows_from_the_printed_naucs():
    drifting = [r for r in MAIN if r["pattern"] != "Steady"]
    assert len(drifting) == 96
    for r in drifting:
        steady = CELLS[r["family"], r["method"], "Steady"]["nauc"]
        assert r["drop_ratio"] == round_half_up(1 - r["nauc"] / steady, 2), r


def test_mean_recovery_over_the_twelve_tasks():
    want = [
        "SAC",
        "13.96",
        "SAC+AES",
        "7.74",
        "PPO",
        "12.12",
        "PPO+AES",
        "8.43",
        "SQL",
        "15.73",
        "SQL+AES",
        "9.73",
        "MEow",
        "11.58",
        "MEow+AES",
        "6.42",
    ]
    for method, printed in zip(want[::2], want[1::2], strict=True):
        cells = [v for (_, _, m), v in TIMES.items() if m == method]
        assert len(cells) == 12
        assert round_half_up(decimal_mean(cells), 2) == Decimal(printed)
    assert decimal_mean([v for (_, _, m), v in TIMES.items() if m == "SQL"]) == Decimal("15.725")


def test_aes_is_better_in_every_recovery_and_every_drifting_cell():
    for family, task, method in TIMES:
        if method in CARRIERS:
            assert TIMES[family, task, method + "+AES"] < TIMES[family, task, method]
    for (family, method, pattern), row in CELLS.items():
        if method in CARRIERS:
            aes = CELLS[family, method + "+AES", pattern]["nauc"]
            assert aes >= row["nauc"] if pattern == "Steady" else aes > row["nauc"]


def test_rounding_is_half_up_in_decimal():
    assert [str(round_half_up(x, 2)) for x in ("15.725", 2.675, 0.125, -0.125, 9.725)] == [
        "15.73",
        "2.68",
        "0.13",
        "-0.13",
        "9.73",
    ]


def test_look_up_by_our_names():
    assert paper_nauc_drop("toy", "SAC+AES", "abrupt") == (Decimal("0.88"), Decimal("0.22"))
    assert paper_nauc_drop("isaac", "PPO", "steady") is not None
    assert paper_nauc_drop("toy", "SAC+AES-R", "abrupt") is None
    assert paper_recovery("toy", "toy", "SAC", "abrupt") == Decimal("7.8")
    assert paper_recovery("mujoco", "halfcheetah", "SAC", "abrupt") == TIMES["MuJoCo", "HalfCheetah", "SAC"]
    assert paper_recovery("toy", "toy_multigoal_classic", "SAC", "abrupt") is None
    family = [v for (f, _, m), v in TIMES.items() if (f, m) == ("MuJoCo", "SAC")]
    assert paper_recovery("mujoco", None, "SAC", "abrupt") == decimal_mean(family)


def test_families_weigh_the_same_in_an_ablation_mean():
    cells = {("toy", "abrupt"): 1.0, ("toy", "mixed"): 1.0, ("mujoco", "abrupt"): 0.0}
    assert equal_weight_mean(cells) == 0.5
