"""`aesjax table grid`: a small part of the design from nothing to its tables, continued and refused."""

import json
import shutil

import polars as pl
import pytest

from experiments.cli import main
from experiments.cli.table import Table, _train
from experiments.paper import design, evidence, record
from experiments.session.study import Study
from experiments.study import store
from tests.experiments.measure.synthetic import STEPS, make_curves
from tests.experiments.report.pages import save

SMALL = ["--part", "C", "--tasks", "pendulum", "--carriers", "ppo", "--patterns", "steady,abrupt", "--quiet"]
SMALL += ["--steps", "2000", "--seeds", "1:5", "--evaluations", "2", "--episodes", "1"]


STUDIES = {"whole": (), "broken": {("SAC", "steady", 2)}}  # with their diverged runs


def run(out, *options):
    return main(["table", "grid", *SMALL, "--out", str(out), *options])


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid") / "out"
    assert run(folder) == 0
    return folder


@pytest.mark.slow
def test_a_part_is_trained_recorded_and_printed_and_nothing_is_trained_twice(out, capsys):
    studies = ["C-pendulum-2000-ppo", "C-pendulum-2000-ppo-controls"]
    assert sorted(path.parent.name for path in out.rglob(store.MANIFEST)) == studies
    curves, runs, stored = record.read(out / "record")
    assert list(stored) == studies
    assert set(runs["status"]) == {"finished"}
    assert runs["method"].n_unique() == 10 + 2  # the design, whose baseline is a constant, and controls
    assert "permuted(aes)" in " ".join(curves["method"].unique())
    before = {path: path.read_bytes() for path in out.rglob("*.*") if path.is_file()}
    assert run(out) == 0
    assert {path: path.read_bytes() for path in before} == before
    shutil.rmtree(out / studies[1])
    assert run(out) == 0  # trains the controls again, and nothing else
    assert "record: " in capsys.readouterr().out
    assert record.read(out / "record").runs.equals(runs)
    assert (out / studies[0] / store.MANIFEST).read_bytes() == before[out / studies[0] / store.MANIFEST]
    assert "no data" not in (out / "tables.md").read_text()  # the paper has no such task


def test_a_finished_study_is_reported_and_keeps_its_exit_code(tmp_path, capsys):
    study = Study("toy", "sac", "steady", 1, steps=STEPS, evaluations=100)
    curves = make_curves(("SAC",), ("steady",), [1, 2], every=20_000)
    whole, broken = (save(tmp_path / name, curves, diverged=runs) for name, runs in STUDIES.items())
    assert _train(Table("grid", "A", tmp_path), whole, study) == 0
    assert capsys.readouterr().err == ""
    assert _train(Table("grid", "A", tmp_path, report=True), broken, study) == 3
    assert "broken/manifest.json: diverged runs: 1" in capsys.readouterr().err
    assert [folder.name for folder in tmp_path.iterdir() if (folder / "report" / "index.html").exists()] == ["broken"]


@pytest.mark.slow
def test_a_finished_study_that_is_not_the_one_asked_for_is_refused(out, capsys):
    path = out / "C-pendulum-2000-ppo" / store.CONFIG
    assert json.loads(path.read_text())["steps"] == 2000
    assert run(out, "--seeds", "1:6") == 2
    assert "C-pendulum-2000-ppo holds a study with other seeds; choose another --out" in capsys.readouterr().err


@pytest.mark.slow
def test_the_results_of_a_study_are_added_to_a_record_that_the_audit_reads(out, tmp_path, capsys):
    study = out / "C-pendulum-2000-ppo"
    assert main(["export", str(study), "--results", "--out", str(tmp_path / "record")]) == 0
    assert main(["audit", str(tmp_path / "record"), "--json", str(tmp_path / "audit.json")]) == 0
    [group] = json.loads((tmp_path / "audit.json").read_text())["evidence"]
    assert group["studies"] == ["C-pendulum-2000-ppo"]


@pytest.mark.slow
def test_a_dry_run_names_what_is_missing_and_writes_nothing(tmp_path, capsys):
    assert run(tmp_path / "out", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "C-pendulum-2000-ppo: missing" in said
    assert "nothing was written" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("--part D --tasks hopper --carriers ppo", "--with-reference"),
        ("--part appendix --carriers ppo", "--with-reference"),
        ("--part C --tasks pendulum --carriers ppo --seeds 1:2", "5 seeds"),
        ("--part C --tasks pendulum --carriers ppo --patterns abrupt", "the pattern steady"),
        ("--part F --tasks pendulum --carriers ppo", "a constant and `aes`"),  # its opponents are in part C
        ("--part appendix --carriers sac --patterns steady", "a pattern of abrupt"),
        (
            "--part H --tasks pendulum --carriers crossq",
            "a constant and `aes`, of SAC on a task",
        ),  # SAC's is the opponent
    ],
)
def test_a_selection_whose_tables_would_be_empty_is_refused_before_training(words, needed, tmp_path, capsys):
    assert main(["table", "grid", *words.split(), "--out", str(tmp_path / "out")]) == 2
    assert needed in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_references_are_those_that_neither_the_selection_nor_the_record_has():
    alone, both = (design.cells("D", carriers, tasks=["hopper"]) for carriers in (["ppo"], ["ppo", "sac"]))
    empty = record.Record(pl.DataFrame(), pl.DataFrame(), {})
    [reference] = evidence.references(alone, empty)
    assert (reference.study.patterns, [str(m.carrier.name) for m in reference.study.methods]) == ("steady", ["sac"])
    assert reference.study.seeds == alone[0].study.seeds
    assert evidence.references(both, empty) == evidence.references(alone, record.read()) == []
    shorter = design.cells("D", ["ppo"], tasks=["hopper"], given={"steps": 4_960})
    assert evidence.references(shorter, record.read())  # runs of other sizes cannot serve


@pytest.mark.parametrize(
    ("words", "hint"), [(["--carriers", "sak"], "did you mean 'sac'"), (["--part", "X"], "unknown part 'X'")]
)
def test_a_wrong_name_is_refused_in_one_sentence(words, hint, tmp_path, capsys):
    assert run(tmp_path / "out", *words) == 2
    assert hint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
