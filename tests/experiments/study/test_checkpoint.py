"""A checkpoint is written completely or not at all; one that cannot be read is skipped for the one before."""

import os
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
    """The checkpoints of chunks 38 and 39."""
    folder = tmp_path_factory.mktemp("two") / "sac"
    for chunk in (38, 39):
        save(folder, STUDY, 0, chunk, STATE, rows(chunk))
    return folder


@pytest.fixture
def copy(two, tmp_path):
    return shutil.copytree(two, tmp_path / "sac")


def test_what_is_saved_is_what_is_loaded(two):
    saved = load_newest(two, STUDY, STATE)
    assert (saved.wave, saved.chunk, saved.rows.height, saved.notes) == (0, 39, 39, [])
    np.testing.assert_array_equal(saved.state["weights"], STATE["weights"])


def test_arrays_of_size_zero_are_saved_and_take_their_shapes_from_the_program(tmp_path):
    state = {"step": np.arange(2), "nothing": np.zeros((2, 0, 3), np.float32), "empty": np.zeros((2, 0), np.int32)}
    save(tmp_path, STUDY, 0, 1, state, rows(1))
    one = {name: leaf[:1] for name, leaf in state.items()}  # a reader of one run knows no number of runs
    for like in (state, one):
        saved = load_newest(tmp_path, STUDY, like)
        for name, leaf in state.items():
            np.testing.assert_array_equal(saved.state[name], leaf, strict=True)


def test_all_of_a_checkpoint_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    synced, sync = set(), store.sync
    monkeypatch.setattr(store, "sync", lambda path: (sync(path), synced.add(path.name)))
    rename = os.rename

    def renamed(source, target):
        if str(source).endswith("partial-0000000001"):  # not orbax's own
            assert {path.name for path in (source, *source.rglob("*"))} <= synced
        rename(source, target)

    monkeypatch.setattr(os, "rename", renamed)
    save(tmp_path, STUDY, 0, 1, STATE, rows(1))
    assert [path.name for path in tmp_path.iterdir()] == ["0000000001"]


@pytest.mark.parametrize("name", ["rows.parquet", "state/_METADATA", "about.json"])
def test_a_damaged_file_means_the_checkpoint_before(copy, name):
    path = copy / "0000000039" / name
    path.write_bytes(path.read_bytes()[:-2])
    saved = load_newest(copy, STUDY, STATE)
    assert saved.chunk == 38
    assert "checkpoint 0000000039 was not used" in saved.notes[0]
    assert saved.rows.height == 38


def test_where_all_are_damaged_it_says_so(copy):
    for path in copy.glob("*/about.json"):
        path.unlink()
    with pytest.raises(CheckpointError, match="no usable checkpoint"):
        load_newest(copy, STUDY, STATE)


def test_a_checkpoint_that_cannot_be_written_leaves_those_before_it(copy, monkeypatch):
    def full(path, state):
        (path / "half").mkdir(parents=True)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write_state", full)
    with pytest.raises(store.Unwritable, match="0000000040 cannot be written: No space left on device"):
        save(copy, STUDY, 0, 40, STATE, rows(40))
    assert sorted(path.name for path in copy.iterdir()) == ["0000000038", "0000000039"]


def test_an_adopted_checkpoint_is_one_of_its_new_study(tmp_path):
    state, rows = {"x": np.arange(6.0).reshape(2, 3)}, pl.DataFrame({"step": [0, 4]})
    checkpoint.save(tmp_path / "part", "part", 1, 7, state, rows)
    checkpoint.adopt(tmp_path / "part", tmp_path / "whole", "part", 4, "whole")
    saved = checkpoint.load_newest(tmp_path / "whole", "whole", state)
    assert saved is not None
    assert (saved.wave, saved.chunk, saved.notes) == (4, 7, [])
    assert np.array_equal(saved.state["x"], state["x"])
    assert checkpoint.newest_height(tmp_path / "whole") == 2
    assert checkpoint.load_newest(tmp_path / "part", "part", state).wave == 1  # the old one stays
    with pytest.raises(checkpoint.CheckpointError, match="another configuration"):
        checkpoint.adopt(tmp_path / "part", tmp_path / "other", "foreign", 4, "whole")
    with pytest.raises(checkpoint.CheckpointError, match="there is none"):
        checkpoint.adopt(tmp_path / "nothing", tmp_path / "other", "part", 4, "whole")
