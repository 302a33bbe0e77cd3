"""A checkpoint is written completely or not at all; one that cannot be read is skipped for the one before."""

import shutil

import numpy as np
import polars as pl
import pytest

from experiments.study import checkpoint, store
from experiments.study.checkpoint import CheckpointError, load_newest, save

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


def test_arrays_of_size_zero_are_saved_and_take_their_shapes_from_the_program(tmp_path):
    state = {"step": np.arange(2), "nothing": np.zeros((2, 0, 3), np.float32), "empty": np.zeros((2, 0), np.int32)}
    save(tmp_path, STUDY, 0, 1, state, rows(1))
    one = {name: leaf[:1] for name, leaf in state.items()}  # a reader of one run knows no number of runs
    for like in (state, one):
        saved = load_newest(tmp_path, STUDY, like)
        for name, leaf in state.items():
            np.testing.assert_array_equal(saved.state[name], leaf, strict=True)


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
