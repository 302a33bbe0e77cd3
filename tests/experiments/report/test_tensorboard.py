"""The events that TensorBoard reads."""

import struct

import numpy as np
import polars as pl
import pytest
from tensorboardX.proto.event_pb2 import Event

from experiments.cli.run import Runtime, again
from experiments.report.live import write_tensorboard, writers
from tests.experiments.measure.synthetic import make_curves


def events(folder):
    """Scalars of event files by (tag, step): records of length, checksum, protocol buffer, checksum."""
    found = {}
    for path in folder.iterdir():
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + size])
            found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
            at += 16 + size
    return found


def test_every_logged_number_of_every_run_is_there(tmp_path):
    curves = make_curves(("SAC", "SAC+AES[kappa=0.3]"), ("steady", "abrupt"), [1, 2], every=5_000)
    assert write_tensorboard(curves, tmp_path / "events") == 8
    assert (tmp_path / "events" / "toy" / "SAC+AES_kappa=0.3_" / "abrupt" / "seed-1").is_dir()
    found = events(tmp_path / "events" / "toy" / "SAC" / "abrupt" / "seed-2")
    rows = curves.filter(method="SAC", pattern="abrupt", seed=2)
    for name in ("return_mean", "entropy_weight", "drift_1"):
        written = [found[name, step] for step in rows["step"]]
        np.testing.assert_allclose(written, rows[name].to_numpy(), rtol=1e-6)
    assert ("at_min", 0) not in found  # nothing was logged there
    assert ("at_min", 5_000) in found


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "note").write_text("mine")
    with pytest.raises(ValueError, match=r"--tensorboard .* is not an empty folder"):
        write_tensorboard(make_curves(("SAC",), ("steady",), [1], every=20_000), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_continued_study_adds_its_events_to_the_folder(tmp_path, monkeypatch):
    curves = make_curves(("SAC",), ("steady",), [1], every=20_000)
    for resume, part in ((False, pl.col("step") < 50_000), (True, pl.col("step") >= 50_000)):
        monkeypatch.setattr("time.time", lambda now=1e9 + resume: now)  # names of event files have whole seconds
        with writers(tmp_path / "events", None, resume=resume) as on_rows:
            on_rows(curves.filter(part))
    written = events(tmp_path / "events" / "toy" / "SAC" / "steady" / "seed-1")
    assert {step for tag, step in written if tag == "return_mean"} == {*curves["step"]}
    words = again("", Runtime(tensorboard=tmp_path / "events"), tmp_path / "study").split()
    assert words[-3:] == ["--tensorboard", str(tmp_path / "events"), "--resume"]
