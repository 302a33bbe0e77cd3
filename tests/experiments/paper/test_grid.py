"""The grid: its parts can be trained, its tables follow from the record, and its page states them."""

from collections import Counter

import matplotlib.image
import numpy as np
import polars as pl
import pytest

from experiments.paper import grid
from experiments.paper import grid_tables as tables
from tests.pages import ROOT

RECORD = tables.read()
SETTINGS = {(each.task, each.carrier): each for each in tables.settings(RECORD.runs)}
PAGE = " ".join((ROOT / "docs" / "grid.md").read_text().split())


def cell(setting, part, row, pattern):
    return next(each for each in getattr(setting, part) if (each.row, each.pattern) == (row, pattern))


def outcomes(part, row, *carriers, task=None):
    chosen = [s for s in SETTINGS.values() if s.carrier in carriers and task in (None, s.task)]
    return Counter(each.outcome for s in chosen for each in getattr(s, part) if each.row == row)


@pytest.mark.parametrize("part", [*grid.SIZES, "F"])
def test_every_cell_of_a_part_is_a_study_with_a_folder_of_its_own(part):
    cells = grid.cells(part)
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        config = cell.study.config
        assert config.task == cell.study.task
        if part in "ACD":
            assert len(grid.controls(cell, ROOT).study.methods) == 2


def mean_returns(study, method, pattern):
    """Area under the curve by the trapezoid over the horizon, by seed."""
    rows = RECORD.curves.filter(study=study, method=method, pattern=pattern).sort("seed", "step")
    step, value = (pl.col(name).cast(pl.Float64) for name in ("step", "return_mean"))
    area = ((step - step.shift()) * (value + value.shift()) / 2).sum() / step.max()
    return rows.group_by("seed", maintain_order=True).agg(area.alias("mean"))["mean"].to_numpy()


@pytest.mark.parametrize(
    ("carrier", "row", "pattern", "ours", "theirs", "seeds"),
    [
        ("sac", tables.PUBLISHED, "periodic", ("", "SAC+AES"), ("", "SAC+fixed[base=0.2]"), slice(5, 10)),
        ("ppo", tables.TIMING, "linear", ("", "PPO+AES"), ("-controls", "PPO+permuted(aes)"), slice(0, 10)),
    ],
)
def test_a_number_of_the_tables_is_recomputed_from_the_curves(carrier, row, pattern, ours, theirs, seeds):
    ours, theirs = (mean_returns(f"A-toy-100000-{carrier}{end}", method, pattern) for end, method in (ours, theirs))
    d = (ours - theirs)[seeds]
    part = "tuned" if len(d) == 5 else "published"
    found = cell(SETTINGS["toy", carrier], part, row, pattern).interval
    half = {5: 2.776445, 10: 2.262157}[len(d)] * d.std(ddof=1) / np.sqrt(len(d))  # quantiles of Student's t
    np.testing.assert_allclose(found, (d.mean(), d.mean() - half, d.mean() + half), atol=1e-3)
    assert f"{d.mean():+.1f} ± {half:.1f}" in PAGE


def test_runs_are_those_of_the_curves():
    again = tables.scores(RECORD.curves, RECORD.studies).cast({pl.Float32: pl.Float64})
    assert again.equals(RECORD.runs)
    assert set(RECORD.studies) == set(RECORD.curves["study"].unique())


def test_the_seeds_of_the_report_choose_nothing_and_the_seeds_of_the_choice_enter_no_reported_difference():
    assert not set(tables.CHOOSING) & set(tables.REPORTING)
    runs = RECORD.runs.filter(task="toy", carrier="sac")
    setting = SETTINGS["toy", "sac"]
    late = pl.col("seed").is_in(list(tables.REPORTING))
    noise = pl.Series(np.random.default_rng(0).normal(size=runs.height))
    other = next(tables.settings(runs.with_columns(mean_return=pl.when(late).then(noise).otherwise("mean_return"))))
    assert (other.methods, other.constant) == (setting.methods, setting.constant)
    shifted = pl.col("mean_return") + pl.when(late).then(0.0).otherwise(3.0)  # of all methods: the choice stays
    again = next(tables.settings(runs.with_columns(mean_return=shifted)))
    assert [each.interval for each in again.tuned] == [each.interval for each in setting.tuned]


def test_equivalent_needs_the_complete_interval_inside_the_margin():
    difference = {"steady": [0.1, -0.1, 0.1, -0.1, 0.0], "abrupt": [3.0, -3.0, 3.0, -3.0, 0.0], "mixed": [5.0] * 5}
    rows = [("a", p, seed, value) for p, own in difference.items() for seed, value in enumerate(own)]
    rows += [("b", p, seed, 0.01 * seed) for p in difference for seed in range(5)]
    runs = pl.DataFrame(rows, ["method", "pattern", "seed", "mean_return"], orient="row")
    found = tables._contrasts(runs, {"row": ("a", "b")}, range(5), margin=1.0)
    assert [each.outcome for each in found] == ["equivalent", "not significant", "better"]


def test_a_study_is_added_once(tmp_path):
    folder = ROOT / "experiments" / "results" / "toy-quick"
    for _ in range(2):
        tables.record([folder], tmp_path)
    curves, runs, studies = tables.read(tmp_path)
    stored = pl.read_parquet(folder / "curves.parquet")
    np.testing.assert_array_equal(curves["return_mean"], stored["return_mean"].cast(pl.Float32))
    assert list(studies) == ["toy-quick"]
    assert runs.height == stored.select("method", "pattern", "seed").unique().height
    assert not list(tables.settings(runs))  # three seeds: nothing to choose on


def test_the_page_states_the_outcomes():
    sac, ppo = (outcomes("tuned", tables.PUBLISHED, carrier) for carrier in ("sac", "ppo"))
    assert f"worse than the chosen constant in {sac['worse']} of {sac.total()} settings" in PAGE
    assert f"and better in {sac['better']}." in PAGE
    assert f"significant in {ppo['better'] + ppo['worse']} of {ppo.total()} settings" in PAGE
    held = RECORD.runs.filter(carrier="ppo", method="PPO+AES")["saturation_max"]
    assert held.min() == 1.0
    own = outcomes("tuned", tables.TUNED, "sac", "ppo")
    same = [s for s in SETTINGS.values() if s.methods[tables.TUNED] == s.methods[tables.PUBLISHED]]
    assert all(
        each.outcome not in ("better", "worse") for s in same for each in s.tuned if each.row == tables.PUBLISHED
    )
    total = own.total() + 6 * len(same)
    assert f"better than the chosen constant in {own['better']} of {total} settings and worse in {own['worse']}" in PAGE
    gains = [each for each in SETTINGS["toy", "sac"].tuned if (each.row, each.outcome) == (tables.TUNED, "better")]
    assert len(gains) == own["better"]
    assert all(each.interval.value < 0.5 for each in gains)
    for row, text in ((tables.LEVEL, "mean-matched constant"), (tables.TIMING, "time-permuted weights")):
        own = outcomes("published", row, "sac", "ppo")
        differ = own["better"] + own["worse"]
        assert f"{text} in {differ} of {own.total()} settings; {own['equivalent']} are equivalent" in PAGE
    assert outcomes("published", tables.BASELINE, "sac", task="toy") == {"better": 5, "worse": 1}
    assert cell(SETTINGS["toy", "sac"], "published", tables.BASELINE, "steady").outcome == "worse"
    assert outcomes("published", tables.BASELINE, "sac", task="reacher") == {"worse": 6}
    own = outcomes("published", tables.BASELINE, "ppo")
    assert f"is better in {own['better']} of {own.total()} settings and worse in {own['worse']}." in PAGE
    own = outcomes("tuned", tables.BASELINE, "sac")
    assert f"auto-tuned SAC in {own['worse']} of {own.total()} settings and worse in {own['better']}." in PAGE


def test_its_picture_is_drawn_from_the_record(tmp_path):
    tables.figure(RECORD.runs, tmp_path / "kappa.png")
    drawn, stored = (matplotlib.image.imread(folder / "kappa.png") for folder in (tmp_path, ROOT / "docs"))
    assert drawn.shape == stored.shape
    assert np.abs(drawn - stored).mean() < 0.01
