"""Metrics of other files and of installed packages, in frames, comparisons and reports."""

import importlib
import sys

import numpy as np
import polars as pl
import pytest

from aesjax.registry import UnknownNameError
from experiments import Metric, Results
from experiments.cli import main
from tests.experiments.measure.synthetic import make_curves
from tests.experiments.report.pages import save
from tests.pages import ROOT, blocks

AES = "SAC+AES"


@pytest.fixture
def results(tmp_path):
    curves = make_curves(("SAC", AES), ("steady", "abrupt"), [1, 2], every=5_000)
    return Results.open(save(tmp_path / "study", curves))


@pytest.fixture
def worst(tmp_path, monkeypatch):
    """The metric of the page, in a module outside the repository."""
    (body,) = blocks(ROOT / "docs" / "write_metric.md", "python")
    (tmp_path / "worst.py").write_text(body)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "worst", raising=False)
    return importlib.import_module("worst").WORST


def smallest(results, method, seed):
    """Smallest mean return of the five segments, ends included."""
    rows = results.curves.filter(method=method, pattern="abrupt", seed=seed)
    inside = [rows.filter(pl.col("step").is_between(20_000 * i, 20_000 * (i + 1))) for i in range(5)]
    return min(part["return_mean"].mean() for part in inside)


def test_a_metric_of_another_file_reaches_frames_comparison_and_report(results, worst):
    own = Results.open(results.directory, metrics=[worst])
    runs = own.metrics.filter(level="run", metric="worst_segment", pattern="abrupt", method=AES)
    expected = [smallest(results, AES, seed) for seed in (1, 2)]
    np.testing.assert_allclose(runs["value"].to_list(), expected)
    frame = own.compare(AES, "SAC", "worst_segment", "abrupt")
    assert frame["pairs"].to_list() == [2]
    gains = [smallest(results, AES, seed) - smallest(results, "SAC", seed) for seed in (1, 2)]
    np.testing.assert_allclose(frame["difference"][0], np.mean(gains))
    assert results.compare(AES, "SAC", worst, "abrupt").equals(frame)
    with pytest.raises(UnknownNameError, match="unknown metric 'worst_segment'"):
        results.compare(AES, "SAC", "worst_segment")
    tables = own.report().with_name("tables.md")
    text = tables.read_text()
    for part in ("Custom metrics", "return of the worst segment (higher is better) · abrupt"):
        assert part in text
    tables.unlink()
    assert main(["report", str(results.directory), "--metric", "worst:WORST"]) == 0
    assert tables.read_text() == text
    assert any("return of the worst segment" in sentence for sentence in own.verdicts)


def test_the_gain_of_a_custom_metric_may_be_a_custom_metric(results):
    area = Metric("area", lambda run: run.mean)
    double = Metric("double", lambda run: 2.0 * run.mean, gain="area")
    frame = Results.open(results.directory, metrics=[area, double]).compare(AES, "SAC", "double")
    plain = results.compare(AES, "SAC", "return")
    np.testing.assert_allclose(frame["detectable_share"], 2.0 * plain["detectable_share"])
    with pytest.raises(UnknownNameError, match="unknown metric 'area'"):
        results.compare(AES, "SAC", double)


def test_an_installed_metric_is_in_every_comparison_and_a_bad_one_is_one_sentence(results, worst, tmp_path):
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[aesjax.metrics]\nworst = worst:WORST\n")
    opened = Results.open(results.directory)
    assert "worst_segment" in set(opened.metrics["metric"])
    assert opened.compare(AES, "SAC", "worst_segment")["pairs"].to_list() == [2, 2]
    (info / "entry_points.txt").write_text("[aesjax.metrics]\nworst = worst:BEST\n")
    with pytest.raises(ValueError, match="metric 'worst' cannot be loaded from worst:BEST"):
        Results.open(results.directory).compare(AES, "SAC")


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        ([lambda run: 1.0], "a custom metric must be of type Metric; got function"),
        ([Metric("nauc", lambda run: 1.0)], "two metrics with the name 'nauc'"),
        ([Metric("broken", lambda run: run.lost)], r"metric 'broken' failed on .* 'StudyRun' object has no attribute"),
        ([Metric("many", lambda run: [1.0, 2.0])], r"metric 'many' failed on SAC, toy, steady, seed 1"),
    ],
)
def test_a_faulty_metric_is_named(results, metrics, text):
    with pytest.raises(ValueError, match=text):
        Results.open(results.directory, metrics=metrics).metrics  # noqa: B018
