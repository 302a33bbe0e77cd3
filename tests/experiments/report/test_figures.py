"""Contents of a report's figures, and the style of their lines."""

import numpy as np
import polars as pl
import pytest

from aesjax.registry import UnknownNameError
from experiments import Results
from experiments.measure.recovery import recovery_robust
from experiments.measure.study import load_study
from experiments.report.figures import line_of, plots_of, read
from tests.experiments.measure.synthetic import config, make_curves, manifest
from tests.experiments.report.pages import configure, save


def plots(curves, **extra):
    info = manifest(curves) | extra
    return {plot.name: plot for plot in plots_of(load_study(curves, config(), info), curves, info)}


@pytest.fixture(scope="module")
def curves():
    return make_curves(("SAC", "SAC+AES"), ("steady", "abrupt"), [1, 2], every=2_000)


def test_a_diverged_seed_leaves_the_mean_curve_and_does_not_cut_it_short():
    curves = make_curves(("SAC",), ("abrupt",), [1, 2], every=5_000)
    cut = curves.filter((pl.col("seed") != 2) | (pl.col("step") < 40_000))
    series = read(cut, "SAC", "entropy_weight")
    assert (len(series.steps), series.counted.shape) == (21, (1, 21))
    assert np.all(np.isfinite(series.counted))
    line = line_of("SAC", series)
    assert line is not None
    assert set(line.seeds) == {1, 2}  # what there is of it can still be looked at


def test_a_plot_of_results_leaves_out_a_diverged_seed(tmp_path):
    curves = make_curves(("SAC",), ("abrupt",), [1, 2], every=5_000)
    cut = curves.filter((pl.col("seed") != 2) | (pl.col("step") < 40_000))
    results = Results.open(save(tmp_path / "study", cut, diverged={("SAC", "abrupt", 2)}))
    (axes,) = results.plot("entropy_weight").axes
    line = next(line for line in axes.get_lines() if line.get_label() == "SAC")
    np.testing.assert_array_equal(line.get_ydata(), curves.filter(seed=1)["entropy_weight"])


def test_a_plot_of_joined_tasks_has_one_of_them(tmp_path):
    folders = []
    for task in ("hopper", "ant"):
        curves = make_curves(("SAC",), ("abrupt",), [1, 2], every=5_000, task=task, family="mujoco")
        curves = curves.with_columns(pl.col("return_mean") + len(task))
        folders.append(save(tmp_path / task, curves, floors={task: 3.0}))
        configure(folders[-1], task=task)
    both = Results.join(folders)
    with pytest.raises(ValueError, match="a plot has one task, and these results have hopper, ant; give one of them"):
        both.plot()
    with pytest.raises(UnknownNameError, match="unknown task of these results 'hoper'; did you mean 'hopper'"):
        both.plot(task="hoper")
    lines = {task: both.plot(task=task).axes[0].get_lines()[-1] for task in ("hopper", "ant")}
    for task, line in lines.items():
        mean = both.curves.filter(task=task).group_by("step").agg(pl.col("return_mean").mean()).sort("step")
        np.testing.assert_allclose(line.get_ydata(), mean["return_mean"])


def test_the_optimum_is_drawn_over_the_seeds_that_were_run(curves):
    own = plots(curves, oracle={"toy": {"abrupt": {"1": [47.0, 40.0], "2": [49.0, 44.0], "9": [0.0, 0.0]}}})
    (line,) = [x for x in own["curves_toy_abrupt"].panels[0].lines if x.name == "optimum"]
    np.testing.assert_allclose(line.y, [48.0, 42.0])  # seed 9 was not run
    assert set(line.seeds) == {1, 2}


def test_the_drift_is_an_axis_per_channel_and_a_line_per_seed_in_task_units(curves):
    plot = plots(curves)["signals_toy_abrupt"]
    drift = plot.panels[0]
    assert [row.label for row in plot.rows[:2]] == ["channel 1", "channel 2"]
    assert [[line.name for line in panel.lines] for panel in plot.panels[:2]] == [["channel 1"], ["channel 2"]]
    rows = curves.filter(method="SAC", pattern="abrupt", seed=2).sort("step")
    np.testing.assert_allclose(drift.lines[0].seeds[2], rows["drift_0"].to_numpy())
    assert drift.lines[0].y is None


def test_recovery_is_marked_on_the_curves_and_a_drift_that_jumps_is_drawn_in_steps(curves):
    own = plots(curves)
    study = load_study(curves, config(), manifest(curves))
    for line in own["curves_toy_abrupt"].panels[0].lines:
        runs = [run for key, run in study.runs.items() if (key.method, key.pattern) == (line.name, "abrupt")]
        changes = study.changes(runs[0].key)
        times = [recovery_robust(run.curve, changes, study.floors["toy"]) for run in runs]
        assert all(np.all(each.recovered) for each in times)
        later = np.max([each.duration for each in times], 0)  # the higher of the two in the middle
        np.testing.assert_array_equal(line.x[list(line.regained)], changes + later)
    assert not any(line.regained for line in own["curves_toy_steady"].panels[0].lines)
    assert not any(line.regained for line in plots(curves, floors={})["curves_toy_abrupt"].panels[0].lines)
    assert [row.stepped for row in own["signals_toy_abrupt"].rows] == [True, True, False, False]
    assert not any(row.stepped for row in own["signals_toy_steady"].rows)


def test_what_is_missing_stands_beside_the_figures():
    curves = make_curves(("SAC",), ("steady", "abrupt"), [1, 2, 3], every=5_000)
    cut = curves.filter(~((pl.col("pattern") == "abrupt") & (pl.col("seed") == 2) & (pl.col("step") > 40_000)))
    info = manifest(cut, diverged=[("SAC", "abrupt", 2)])
    info["runs"].append({"task": "toy", "method": "SAC", "pattern": "abrupt", "seed": 4, "status": ""})
    found = {p.name: p for p in plots_of(load_study(cut, config(), info), cut, info)}
    words = "SAC: 2 of 4 runs count; seed 2 diverged at step 40 000, seed 4 is missing"
    assert found["curves_toy_abrupt"].warnings == (words,)
    assert found["curves_toy_steady"].warnings == ()
