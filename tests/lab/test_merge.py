"""Studies of single tasks become one study of a family."""

import json

import polars as pl
import pytest

from aesjax.lab.merge import merge_studies
from aesjax.measure.study import load_study
from experiments.cli import main
from tests.measure.synthetic import STEPS, config, make_curves
from tests.report.test_report import save


def study(folder, task, **changes):
    curves = make_curves(("SAC", "SAC+AES"), ("steady", "abrupt"), [1, 2], every=5_000, task=task, family="mujoco")
    save(folder, curves, floors={task: 3.0}, oracle={task: {}})
    (folder / "config.json").write_text(json.dumps(config() | {"task": task} | changes))
    return folder


def test_two_tasks_are_measured_as_one_family(tmp_path, capsys):
    folders = [study(tmp_path / task, task) for task in ("hopper", "ant")]
    out = tmp_path / "family"
    assert main(["report", *map(str, folders), "--out", str(out)]) == 0
    assert str(out / "report" / "index.html") in capsys.readouterr().out
    merged = load_study(
        pl.read_parquet(out / "curves.parquet"),
        *(json.loads((out / f"{n}.json").read_text()) for n in ("config", "manifest")),
    )
    assert merged.tasks("mujoco") == ["ant", "hopper"]
    assert merged.horizons == {"hopper": STEPS, "ant": STEPS}
    assert merged.floors == {"hopper": 3.0, "ant": 3.0}
    assert len(merged.runs) == 16
    tables = (out / "report" / "tables.md").read_text()
    assert "mujoco numbers average 5 tasks, ours 2" in tables
    metrics = pl.read_parquet(out / "report" / "metrics.parquet")
    assert {"ant", "hopper"} <= set(metrics["task"].drop_nulls())


@pytest.mark.parametrize(
    ("task", "changes", "text"),
    [
        ("hopper", {}, "two of the studies hold the same run"),
        ("ant", {"segments": 10}, "has 10 segments"),
        ("hopper", {"steps": 7}, "trained hopper for 7 steps"),
    ],
)
def test_what_does_not_fit_together_is_refused_and_nothing_is_written(tmp_path, task, changes, text):
    folders = [study(tmp_path / "one", "hopper"), study(tmp_path / "two", task, **changes)]
    with pytest.raises(ValueError, match=text):
        merge_studies(folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("words", "text"), [(["a", "b"], "--out and several folders"), ([], "needs the folder")])
def test_the_command_says_what_it_needs(words, text, capsys):
    assert main(["report", *words]) == 2
    assert text in capsys.readouterr().err
