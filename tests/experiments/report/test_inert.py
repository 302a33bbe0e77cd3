"""Channels that drift without changing anything are marked wherever the drift of their task is shown."""

import pytest

from experiments.report import write_report
from tests.experiments.measure.synthetic import make_curves
from tests.experiments.report.pages import save

INERT = "‡"


@pytest.fixture(scope="module")
def curves():
    return make_curves(("SAC", "SAC+AES"), ("steady", "abrupt"), [1, 2], every=5_000)


def tables(curves, folder, **manifest):
    return (write_report(save(folder, curves, **manifest), replicates=60).parent / "tables.md").read_text()


@pytest.mark.slow
def test_scopes_under_drift_are_marked_and_steady_is_not(curves, tmp_path):
    task = curves["task"][0]
    text = tables(curves, tmp_path, inert={task: ["joint_damping"]})
    for title in ("Main results", "Entropy weight", "Paper parity"):
        section = text.split(f"## {title}")[1].split("\n## ")[0]
        assert f"abrupt {INERT} | SAC |" in section
        assert f"steady {INERT}" not in section
        assert f"- {INERT} Drifts without changing anything: joint_damping in {task}." in section


@pytest.mark.slow
def test_nothing_is_marked_where_every_channel_acts(curves, tmp_path):
    text = tables(curves, tmp_path, inert={"another task": ["gravity"]})
    assert INERT not in text
