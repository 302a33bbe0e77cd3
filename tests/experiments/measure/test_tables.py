"""The paper's printed tables agree with one another where one follows from another."""

from decimal import Decimal

from experiments.measure import paper_table, round_half_up
from experiments.measure.tables import (
    decimal_mean,
    paper_nauc_drop,
    paper_recovery,
)

MAIN = paper_table("nauc_drop")
CELLS = {(r["family"], r["method"], r["pattern"]): r for r in MAIN}
TIMES = {(r["family"], r["task"], r["method"]): r["recovery_percent"] for r in paper_table("recovery")}
CARRIERS = ("SAC", "PPO", "SQL", "MEow")


def test_every_printed_drop_ratio_follows_from_the_printed_naucs():
    drifting = [r for r in MAIN if r["pattern"] != "Steady"]
    assert len(drifting) == 96
    for r in drifting:
        steady = CELLS[r["family"], r["method"], "Steady"]["nauc"]
        assert r["drop_ratio"] == round_half_up(1 - r["nauc"] / steady, 2), r


def test_look_up_by_our_names():
    assert paper_nauc_drop("toy", "SAC+AES", "abrupt") == (Decimal("0.88"), Decimal("0.22"))
    assert paper_nauc_drop("isaac", "PPO", "steady") is not None
    assert paper_nauc_drop("toy", "SAC+AES-R", "abrupt") is None
    assert paper_recovery("toy", "toy", "SAC", "abrupt") == Decimal("7.8")
    assert paper_recovery("mujoco", "halfcheetah", "SAC", "abrupt") == TIMES["MuJoCo", "HalfCheetah", "SAC"]
    assert paper_recovery("toy", "toy_multigoal_classic", "SAC", "abrupt") is None
    family = [v for (f, _, m), v in TIMES.items() if (f, m) == ("MuJoCo", "SAC")]
    assert paper_recovery("mujoco", None, "SAC", "abrupt") == decimal_mean(family)
