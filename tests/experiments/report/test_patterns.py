"""A pattern that only the manifest knows appears wherever a built-in one does."""

import polars as pl
import pytest

from experiments.report import write_report
from tests.experiments.measure.synthetic import MADE_UP, make_curves
from tests.experiments.report.pages import Page, save

pytestmark = pytest.mark.slow  # a report each

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


def test_a_pattern_that_nothing_describes_is_shown_last_and_the_report_says_so(tmp_path):
    curves = make_curves(METHODS, ("square", "steady", "ramp"), [1, 2], every=5_000)
    directory = save(tmp_path, curves, patterns={"ramp": MADE_UP["ramp"]})
    markdown = (write_report(directory, replicates=FEW).parent / "tables.md").read_text()
    assert groups(markdown, "Main results") == ["steady", "ramp", "square"]
    assert "The manifest does not describe square: shown as gradual drift" in markdown
    assert groups(markdown, "Recovery after changes") == []
    assert "no recovery to measure" in markdown
