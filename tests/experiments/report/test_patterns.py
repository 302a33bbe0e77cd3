"""A pattern that only the manifest knows appears wherever a built-in one does."""

import polars as pl
import pytest

from experiments.measure import summarise
from experiments.measure.study import load_study
from experiments.report import write_report
from experiments.report.cells import Lookup
from experiments.report.overview import limits
from experiments.report.tables import build_tables
from tests.experiments.measure.synthetic import MADE_UP, config, make_curves, manifest
from tests.experiments.report.pages import Page, save

METHODS = ("SAC", "SAC+AES")
RUN = ("ramp", "steady", "square", "mixed")
SHOWN = ["steady", "square", "ramp", "mixed"]  # steady, the manifest's order, the built-in ones that it leaves out
FEW = 60
slow = pytest.mark.slow  # a report


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    curves = make_curves(METHODS, RUN, [1, 2], every=5_000)
    return write_report(save(tmp_path_factory.mktemp("study"), curves, patterns=MADE_UP), replicates=FEW)


def groups(markdown, title):
    """The patterns of a table, in order: the last word of its first column."""
    section = markdown.split(f"## {title}")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| toy")]
    return list(dict.fromkeys(row.split(" | ")[0].split(" · ")[-1] for row in rows))


@slow
def test_every_table_has_its_rows_in_the_order_of_the_manifest(page):
    markdown = (page.parent / "tables.md").read_text()
    for title in ("Main results", "Entropy weight", "Returns", "Paper parity"):
        assert groups(markdown, title) == SHOWN, title
    assert set(groups(markdown, "Paired differences")) == set(SHOWN)
    assert "- **patterns**: steady, square, ramp, mixed" in markdown


@slow
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


@slow
def test_its_figures_and_its_summary_stand_in_the_page_in_the_same_order(page):
    text = page.read_text()
    assert [part.split("<")[0] for part in text.split("<h3>")[1:]] == [*SHOWN]
    assert "up and down between two values" in Page(text).texts
    for name in SHOWN:
        assert (page.parent / f"curves_toy_{name}.png").exists()
        assert (page.parent / f"signals_toy_{name}.png").exists()


def test_a_pattern_that_nothing_describes_is_shown_last_and_the_report_says_so():
    curves = make_curves(METHODS, ("square", "steady", "ramp"), [1, 2], every=5_000)
    info = manifest(curves) | {"patterns": {"ramp": MADE_UP["ramp"]}}
    study, frame = load_study(curves, config(), info), summarise(curves, config(), info, replicates=FEW)
    tables = {table.key: table for table in build_tables(Lookup(frame, study.patterns))}
    assert [title for title, _ in tables["main"].groups] == ["toy · steady", "toy · ramp", "toy · square"]
    assert any("does not describe square: shown as gradual drift" in text for text in limits(study, info))
    assert tables["recovery"].groups == []
    assert "no recovery to measure" in tables["recovery"].notes[0]
