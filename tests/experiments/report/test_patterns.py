"""A pattern that only the manifest knows appears wherever a built-in one does."""

from types import SimpleNamespace

import pytest

from experiments.measure import summarise
from experiments.measure.study import load_study
from experiments.report.cells import Lookup
from experiments.report.figures import plots_of
from experiments.report.overview import facts, limits
from experiments.report.tables import build_tables
from tests.experiments.measure.synthetic import BUILT_IN, MADE_UP, config, make_curves, manifest

METHODS = ("SAC", "SAC+AES")
RUN = ("ramp", "steady", "square", "mixed")
SHOWN = ["steady", "square", "ramp", "mixed"]  # steady, the manifest's order, the built-in ones that it leaves out
FEW = 60


@pytest.fixture(scope="module")
def reported():
    """Contents of the report of a study with patterns of its own."""
    curves = make_curves(METHODS, RUN, [1, 2], every=5_000)
    return report_of(curves, manifest(curves) | {"patterns": MADE_UP | BUILT_IN})


def report_of(curves, info):
    study, frame = load_study(curves, config(), info), summarise(curves, config(), info, replicates=FEW)
    look = Lookup(frame, study.patterns)
    tables = {table.key: table for table in build_tables(look)}
    plots = plots_of(study, curves, info)
    said = dict(facts(study, look, config(), info))
    return SimpleNamespace(study=study, frame=frame, tables=tables, plots=plots, facts=said, limits=limits(study, info))


def patterns_in(table):
    return list(dict.fromkeys(title.split(" · ")[-1] for title, _ in table.groups))


def test_every_table_has_its_rows_in_the_order_of_the_manifest(reported):
    for key in ("main", "weights", "returns", "paper"):
        assert patterns_in(reported.tables[key]) == SHOWN, key
    assert [plot.pattern for plot in reported.plots if plot.kind == "curves"] == SHOWN
    assert reported.facts["patterns"] == ", ".join(SHOWN)


def test_recovery_is_tabulated_for_the_pattern_that_has_it_and_the_paper_has_no_number_for_it(reported):
    assert patterns_in(reported.tables["recovery"]) == patterns_in(reported.tables["changes"]) == ["square"]
    method, _, raw, paper, *_ = (cell.text for cell in reported.tables["recovery"].rows[0])
    assert (method, float(raw) > 0, paper) == ("SAC", True, "–")


def test_a_pattern_that_nothing_describes_is_shown_last_and_the_report_says_so():
    curves = make_curves(METHODS, ("square", "steady", "ramp"), [1, 2], every=5_000)
    found = report_of(curves, manifest(curves) | {"patterns": {"ramp": MADE_UP["ramp"]}})
    assert patterns_in(found.tables["main"]) == ["steady", "ramp", "square"]
    assert any("does not describe square: shown as gradual drift" in text for text in found.limits)
    assert found.tables["recovery"].groups == []
    assert "no recovery to measure" in found.tables["recovery"].notes[0]
