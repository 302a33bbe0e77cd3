"""A swept number is a column of curves and metrics, and the horizontal axis of a figure."""

import json

import pytest

from aesjax.registry import UnknownNameError
from experiments import Results
from experiments.measure.study import load_study
from experiments.report.write import write_report
from experiments.study.program import rows_of
from tests.experiments.configs import config_of
from tests.experiments.measure.synthetic import STEPS, make_curves
from tests.experiments.report.pages import configure, save

KAPPAS = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Results of two methods, of which one reads kappa, at ten numbers with the default 1 among them."""
    names = ["SAC", *("SAC+AES" + (f"[kappa={kappa:g}]" if kappa != 1 else "") for kappa in KAPPAS)]
    curves = make_curves(names, ("steady", "abrupt"), [1, 2, 3], every=5_000, gain=0.03)
    folder = save(tmp_path_factory.mktemp("swept") / "study", curves)
    sizes = {"steps": STEPS, "evaluations": 20, "patterns": "steady,abrupt", "seeds": 3}
    configure(folder, **config_of("sac", "baseline,aes", sweep={"kappa": KAPPAS}, **sizes).to_json())
    return Results.open(folder)


@pytest.mark.parametrize("frame", ["curves", "metrics"])
def test_a_swept_number_is_a_column_also_at_its_default(swept, frame):
    """A method that does not read the number has none."""
    numbers = dict(getattr(swept, frame).select("method", "kappa").unique().iter_rows())
    assert numbers["SAC"] is None
    assert numbers["SAC+AES"] == 1.0
    assert sorted(value for value in numbers.values() if value is not None) == KAPPAS
    assert load_study(swept.curves, swept._files.config, swept.manifest).methods() == swept.methods


@pytest.mark.parametrize("column", ["return", "return_mean", "final_return"])
def test_a_metric_is_drawn_against_the_number(swept, column):
    figure = swept.plot(column, against="kappa")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["steady", "abrupt"]
    lines = {line.get_label(): line for line in figure.axes[1].get_lines()}
    assert list(lines) == ["SAC", "SAC+AES"]
    assert lines["SAC+AES"].get_xdata().tolist() == KAPPAS
    metric = "final_return" if column == "final_return" else "mean_return"
    rows = swept.metrics.filter(level="method", metric=metric, pattern="abrupt", method="SAC+AES[kappa=0.3]")
    assert lines["SAC+AES"].get_ydata()[3] == rows["value"][0]
    (alone,) = swept.plot(column, "abrupt", "SAC+AES", against="kappa").axes
    assert len(alone.get_lines()) == 1


def test_a_line_keeps_all_settings_but_the_number(tmp_path):
    """Also where no method has the default, and where a definition differs in more than numbers."""
    sizes = {"steps": STEPS, "evaluations": 20, "patterns": "steady,abrupt", "seeds": 2}
    sweep = {"kappa": [0.1, 0.3], "beta": [0.5, 0.95]}
    config = config_of("sac", "baseline,aes,aes:proxy=td_mean", sweep=sweep, **sizes)
    curves = make_curves([row.name for row in rows_of(config)], ("steady", "abrupt"), [1, 2], every=5_000)
    folder = save(tmp_path / "study", curves)
    configure(folder, **config.to_json())
    (axes,) = Results.open(folder).plot("return", "abrupt", against="kappa").axes
    assert {line.get_label() for line in axes.get_lines()} == {
        "SAC",
        "SAC+AES",
        "SAC+AES[beta=0.5]",
        "SAC+AES[proxy=td_mean]",
        "SAC+AES[beta=0.5,proxy=td_mean]",
    }


def test_an_unknown_axis_is_refused(swept):
    with pytest.raises(UnknownNameError, match="unknown axis of this study's sweep 'kapa'; did you mean 'kappa'"):
        swept.plot("return", against="kapa")


def test_a_report_draws_many_settings_against_their_number(swept):
    """Learning curves are those of methods without the number and of the emphasised settings."""
    page = write_report(swept.directory, replicates=100)
    assert {"sweep_toy_steady.png", "sweep_toy_abrupt.svg"} <= {path.name for path in page.parent.iterdir()}
    text = page.read_text()
    assert "Mean return over training against kappa" in text
    plots = json.loads(text.split('id="data">')[1].split("</script>")[0])["plots"]
    assert "sweep_toy_steady" not in plots
    lines = {line["name"] for panel in plots["curves_toy_abrupt"]["panels"] for line in panel["lines"]}
    assert "SAC" in lines
    assert len(lines) <= 5
