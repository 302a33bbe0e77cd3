"""A pattern that only the manifest knows appears wherever a built-in one does."""

import numpy as np
import polars as pl
import pytest

from experiments.measure import describe
from experiments.measure.study import load_study
from experiments.report import write_report
from experiments.report.draw import draw, dress
from experiments.report.figures import plots_of
from experiments.report.plots import Axis
from tests.experiments.measure.synthetic import MADE_UP, config, make_curves, manifest
from tests.experiments.report.pages import Page, save

METHODS = ("SAC", "SAC+AES")
RUN = ("ramp", "steady", "square", "mixed")
SHOWN = ["steady", "square", "ramp", "mixed"]  # steady, the manifest's order, the built-in ones that it leaves out
FEW = 60


@pytest.fixture(scope="module")
def curves():
    return make_curves(METHODS, RUN, [1, 2], every=5_000)


@pytest.fixture(scope="module")
def page(curves, tmp_path_factory):
    directory = save(tmp_path_factory.mktemp("study"), curves, patterns=MADE_UP)
    return write_report(directory, replicates=FEW)


def groups(markdown, title):
    """The patterns of a table, in order: the last word of its first column."""
    section = markdown.split(f"## {title}")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| toy")]
    return list(dict.fromkeys(row.split(" | ")[0].split(" · ")[-1] for row in rows))


def test_every_table_has_its_rows_in_the_order_of_the_manifest(page):
    markdown = (page.parent / "tables.md").read_text()
    for title in ("Main results", "Entropy weight", "Returns", "Paper parity"):
        assert groups(markdown, title) == SHOWN, title
    assert set(groups(markdown, "Paired differences")) == set(SHOWN)
    assert "- **patterns**: steady, square, ramp, mixed" in markdown


def test_recovery_is_tabulated_for_the_pattern_that_has_it_and_the_paper_has_no_number_for_it(page):
    markdown = (page.parent / "tables.md").read_text()
    for title in ("Recovery after changes", "Recovery of each change"):
        assert groups(markdown, title) == ["square"], title
    row = next(line for line in markdown.split("## Recovery after")[1].splitlines() if "square | SAC |" in line)
    literal, paper, recovered = row.split(" | ")[3:6]
    assert float(literal.split()[0]) > 0
    assert (paper, recovered.isdigit()) == ("–", True)
    found = pl.read_parquet(page.parent / "metrics.parquet").filter(metric="paired:recovery_robust", pattern="square")
    assert found["value"].is_finite().all()


def test_its_figures_and_its_summary_stand_in_the_page_in_the_same_order(page):
    text = page.read_text()
    assert [part.split("<")[0] for part in text.split("<h3>")[1:]] == [*SHOWN]
    assert "up and down between two values" in Page(text).texts
    for name in SHOWN:
        assert (page.parent / f"curves_toy_{name}.png").exists()
        assert (page.parent / f"signals_toy_{name}.png").exists()


@pytest.mark.parametrize(("made_up", "built_in"), [("square", "abrupt"), ("ramp", "linear")])
def test_its_figures_are_those_of_the_built_in_pattern_that_is_like_it(curves, made_up, built_in):
    part = curves.filter(pattern=made_up)
    renamed = part.with_columns(pattern=pl.lit(built_in))

    def pictures(rows, info):
        plots = plots_of(load_study(rows, config(), info), rows, info)
        return [draw(plot).png for plot in plots if plot.pattern]

    assert pictures(part, {"patterns": MADE_UP}) == pictures(renamed, {})


def test_change_points_are_dashed_where_the_drift_jumps_dotted_where_not_and_absent_on_steady():
    from matplotlib.figure import Figure as Canvas

    def lines(changes, jumps):
        axis = Canvas().subplots()
        dress(axis, Axis("", 0.0, 100.0, "steps", np.asarray(changes), jumps))
        return [(line.get_xdata()[0], line.get_linestyle()) for line in axis.lines]

    assert lines([20.0, 40.0], True) == [(20.0, "--"), (40.0, "--")]
    assert lines([20.0], False) == [(20.0, ":")]
    assert lines([], False) == []


def test_a_pattern_that_nothing_describes_is_shown_last_and_the_report_says_so(tmp_path):
    curves = make_curves(METHODS, ("square", "steady", "ramp"), [1, 2], every=5_000)
    directory = save(tmp_path, curves, patterns={"ramp": MADE_UP["ramp"]})
    markdown = (write_report(directory, replicates=FEW).parent / "tables.md").read_text()
    assert groups(markdown, "Main results") == ["steady", "ramp", "square"]
    assert "The manifest does not describe square: shown as gradual drift" in markdown
    assert groups(markdown, "Recovery after changes") == []
    assert "no recovery to measure" in markdown


def test_a_bad_description_is_refused_and_no_report_is_written(tmp_path, curves):
    directory = save(tmp_path, curves, patterns={"square": {"jumps": "yes"}})
    with pytest.raises(ValueError, match="must describe the pattern 'square' by jumps"):
        write_report(directory, replicates=FEW)
    assert not (directory / "report").exists()


def test_the_built_in_table_covers_a_study_that_was_trained_before(curves):
    old = manifest(curves)
    assert "patterns" not in old
    assert set(describe(old)) >= {"steady", "mixed"}
