"""Two versions of a study side by side."""

import polars as pl
import pytest

from experiments.report import write_comparison
from tests.experiments.measure.synthetic import make_curves
from tests.experiments.report.pages import Page, configure, save

SOME = ("SAC", "SAC+AES")


def study(folder, methods=SOME, seeds=(1, 2, 3), lift=0.0, **changes):
    curves = make_curves(methods, ("steady", "abrupt"), seeds, every=5_000)
    noise = (pl.col("seed") * 7).mod(3) / 10
    rise = pl.when(pl.col("method") != "SAC").then(lift + noise * (lift > 0)).otherwise(0.0)
    save(folder, curves.with_columns(return_mean=pl.col("return_mean") + rise), commit=folder.name)
    if changes:
        configure(folder, **changes)
    return folder


def test_a_lift_is_found_and_what_did_not_change_is_said_to_be_the_same(tmp_path):
    a, b = study(tmp_path / "old"), study(tmp_path / "new", seeds=(2, 3, 4), lift=2.0, preset="paper")
    page = write_comparison(a, b, tmp_path / "out")
    text = page.read_text()
    Page(text)
    table = pl.read_csv(page.parent / "tables" / "versions.csv")
    row = table.filter(group="toy · mean return · abrupt", method="SAC+AES").row(0, named=True)
    assert row["pairs"] == "2/3"  # seeds 2 and 3 are in both
    assert row["mean difference"] == pytest.approx(2.15, abs=0.06)
    assert table.filter(method="SAC", group="toy · mean return · abrupt")["mean difference"].to_list() == [0.0]
    assert "8 pairs of runs; 4 with the same mean return to the last bit" in text
    assert "preset: quick here, paper" in text or "preset" in text
    assert "old → new" in text  # the commits
    assert "curves_toy_abrupt" in text
    assert (page.parent / "forest.svg").exists()


def test_a_study_equals_itself_to_the_last_bit(tmp_path):
    a = study(tmp_path / "a")
    text = write_comparison(a, a, tmp_path / "out").read_text()
    assert "All 12 pairs of runs have the same mean return to the last bit." in text


def test_two_versions_of_a_method_under_two_names_are_paired_by_carrier(tmp_path):
    a, b = study(tmp_path / "a", ("SAC+AES",)), study(tmp_path / "b", ("SAC+AES-R",), lift=1.0)
    assert "SAC+AES → SAC+AES-R" in write_comparison(a, b, tmp_path / "out").read_text()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"methods": ("PPO", "PPO+AES")}, "share no method"),
        ({"steps": 200_000}, "for 100000 steps, B for 200000"),
        ({"segments": 4}, "A has 5 segments, B 4"),
        ({"seeds": (7, 8)}, "no finished run with equal method, task, pattern and seed"),
    ],
)
def test_what_cannot_be_compared_is_refused_and_nothing_is_written(tmp_path, other, says):
    a, b = study(tmp_path / "a"), study(tmp_path / "b", **other)
    with pytest.raises(ValueError, match=says):
        write_comparison(a, b, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_is_left_alone(tmp_path):
    a = study(tmp_path / "a")
    with pytest.raises(ValueError, match="is not an empty folder"):
        write_comparison(a, a, a)
