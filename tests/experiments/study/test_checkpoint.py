"""A checkpoint is written completely or not at all; one that cannot be read is skipped for the one before."""

import json
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import polars as pl
import pytest

from experiments import Study
from experiments.study import checkpoint, store
from experiments.study.checkpoint import CheckpointError, evaluated, load_newest, save
from experiments.study.folder import claim
from experiments.study.process import numerics, start_jax
from tests.experiments.configs import config_of
from tests.imports import ROOT

STUDY = "0123456789abcdef"
STATE = {"weights": np.arange(6.0), "step": np.int32(7)}


def rows(count):
    return pl.DataFrame({"seed": [1] * count, "step": list(range(count))})


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The checkpoints of evaluations 38 and 39, the newest of three."""
    folder = tmp_path_factory.mktemp("two") / "sac"
    for number in (37, 38, 39):
        save(folder, STUDY, 0, number, STATE, rows(number))
    return folder


@pytest.fixture
def copy(two, tmp_path):
    return shutil.copytree(two, tmp_path / "sac")


def test_the_newest_two_are_stored_and_the_newest_is_loaded_by_its_own_study_alone(two):
    assert sorted(path.name for path in two.iterdir()) == ["0000000038", "0000000039"]
    saved = load_newest(two, STUDY, STATE)
    assert (saved.batch, saved.number, saved.notes) == (0, 39, [])
    assert saved.rows.equals(rows(39))
    np.testing.assert_array_equal(saved.state["weights"], STATE["weights"])
    with pytest.raises(CheckpointError, match="another configuration"):
        load_newest(two, "another", STATE)


def test_the_batch_after_999_is_the_newest(tmp_path):
    for batch in (998, 999, 1000):
        save(tmp_path, STUDY, batch, 5, STATE, rows(1))
    saved = load_newest(tmp_path, STUDY, STATE)
    assert (saved.batch, len(list(tmp_path.iterdir())), evaluated(tmp_path, 10)) == (1000, 2, 10_005)


def test_arrays_of_size_zero_are_saved_and_take_their_shapes_from_the_program(tmp_path):
    state = {"step": np.arange(2), "nothing": np.zeros((2, 0, 3), np.float32), "empty": np.zeros((2, 0), np.int32)}
    save(tmp_path, STUDY, 0, 1, state, rows(1))
    one = {name: leaf[:1] for name, leaf in state.items()}  # a reader of one run knows no number of runs
    for like in (state, one):
        saved = load_newest(tmp_path, STUDY, like)
        for name, leaf in state.items():
            np.testing.assert_array_equal(saved.state[name], leaf, strict=True)


@pytest.mark.parametrize("name", numerics())
def test_a_study_continues_only_with_the_settings_and_versions_of_its_checkpoints(two, tmp_path, name):
    """Each alone; a finished study is only opened."""
    shutil.copytree(two, tmp_path / "checkpoints" / "sac")
    for path in (tmp_path / "checkpoints").glob("*/*/about.json"):
        about = json.loads(path.read_text())
        path.write_text(json.dumps(about | {"numerics": about["numerics"] | {name: "other"}}))
    with pytest.raises(ValueError, match=f"--resume: the study in {tmp_path} needs {name}=other, with which it was"):
        start_jax(None, tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    start_jax(None, tmp_path)


@pytest.mark.parametrize("inner", ["trials", "study", "added/0123", "study/added/0123"])
def test_the_unfinished_studies_of_a_tuning_and_of_added_runs_need_their_numerics(two, tmp_path, inner):
    shutil.copytree(two, tmp_path / inner / "checkpoints" / "sac")
    for path in (tmp_path / inner).glob("checkpoints/*/*/about.json"):
        about = json.loads(path.read_text())
        path.write_text(json.dumps(about | {"numerics": about["numerics"] | {"jax": "other"}}))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=f"--resume: the study in {tmp_path} needs jax=other"):
        start_jax(None, tmp_path)
    (tmp_path / inner / "manifest.json").write_text("{}")
    start_jax(None, tmp_path)


@pytest.mark.parametrize("call", [Study.run, lambda study, place: study.forecast(folder=place)])
def test_a_folder_below_the_home_folder_has_its_numerics_checked(two, tmp_path, monkeypatch, call):
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(two, tmp_path / "x" / "checkpoints" / "sac")
    for path in (tmp_path / "x").glob("checkpoints/*/*/about.json"):
        about = json.loads(path.read_text())
        path.write_text(json.dumps(about | {"numerics": about["numerics"] | {"jax": "other"}}))
    with pytest.raises(ValueError, match=f"the study in {tmp_path}/x needs jax=other, with which it was made"):
        call(Study(steps=2000, seeds=1), "~/x")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_default_prng_impl", "rbg"),
        ("jax_threefry_partitionable", False),
        ("jax_random_seed_offset", 1),
        ("jax_enable_x64", True),
        ("jax_default_matmul_precision", "highest"),
        ("jax_disable_most_optimizations", True),
    ],
)
def test_a_setting_of_jax_that_decides_numbers_is_recorded(name, value):
    before, old = numerics(), jax.config.values[name]
    try:
        jax.config.update(name, value)
        assert numerics() == before | {name: str(value)}
    finally:
        jax.config.update(name, old)


def test_the_command_refuses_to_continue_with_another_generator(two, tmp_path):
    study = tmp_path / "study"
    claim(config_of(steps=2000), study, resume=False).owner.release()
    shutil.copytree(two, study / "checkpoints" / "sac")
    words = [sys.executable, "-m", "experiments.cli", "run", "--resume", "--out", str(study)]
    environment = os.environ | {"JAX_THREEFRY_PARTITIONABLE": "0"}
    ran = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    cure = "needs jax_threefry_partitionable=True, with which it was made; False gives other numbers"
    assert (ran.returncode, ran.stderr) == (2, f"aesjax: --resume: the study in {study} {cure}\n")


@pytest.mark.parametrize("name", ["rows.parquet", "state/_METADATA", "about.json"])
def test_a_damaged_file_means_the_checkpoint_before_and_without_one_a_refusal(copy, name):
    for number, newest in ((38, "0000000039"), (None, "0000000038")):
        path = copy / newest / name
        path.write_bytes(path.read_bytes()[:-2])
        if number is None:
            with pytest.raises(CheckpointError, match="no usable checkpoint"):
                load_newest(copy, STUDY, STATE)
        else:
            saved = load_newest(copy, STUDY, STATE)
            assert (saved.number, saved.rows.height) == (number, number)
            assert "checkpoint 0000000039 was not used" in saved.notes[0]


def test_a_checkpoint_that_cannot_be_written_leaves_those_before_it(copy, monkeypatch):
    def full(path, state):
        (path / "half").mkdir(parents=True)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write_state", full)
    with pytest.raises(store.Unwritable, match="0000000040 cannot be written: No space left on device"):
        save(copy, STUDY, 0, 40, STATE, rows(40))
    assert sorted(path.name for path in copy.iterdir()) == ["0000000038", "0000000039"]


def test_an_adopted_checkpoint_is_one_of_its_new_study(two, tmp_path):
    checkpoint.adopt(two, tmp_path / "whole", STUDY, 4, "whole")
    saved = load_newest(tmp_path / "whole", "whole", STATE)
    assert (saved.batch, saved.number, saved.notes) == (4, 39, [])
    np.testing.assert_array_equal(saved.state["weights"], STATE["weights"])
    assert load_newest(two, STUDY, STATE).batch == 0  # the old one stays
    with pytest.raises(CheckpointError, match="another configuration"):
        checkpoint.adopt(two, tmp_path / "other", "foreign", 4, "whole")
    with pytest.raises(CheckpointError, match="there is none"):
        checkpoint.adopt(tmp_path / "nothing", tmp_path / "other", STUDY, 4, "whole")
