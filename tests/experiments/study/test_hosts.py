"""A sweep over two processes of one device each gives what one process with two devices gives; see `pair.py`."""

import shutil
import socket
import subprocess
import sys

import polars as pl
import pytest

from tests.experiments.study.pair import Stop, trained
from tests.imports import ROOT


def free_port():
    with socket.create_server(("", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the two processes left."""
    folder = tmp_path_factory.mktemp("pair")
    assert trained(folder / "single", Stop(7)) == "a checkpoint is written"
    port = free_port()
    command = [sys.executable, "-m", "tests.experiments.study.pair", str(port)]
    started = [
        subprocess.Popen(
            [*command, str(index), str(folder)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for index in (0, 1)
    ]
    try:
        for process in started:
            output, error = process.communicate(timeout=300)
            assert process.returncode == 0, error
            assert output.endswith("done\n")
    finally:
        for process in started:
            process.kill()
    return folder


@pytest.mark.parametrize("name", ["whole", "resumed", "single"])
def test_every_process_has_the_rows_that_one_process_has(folder, name):
    """Trained at one go; stopped by one of them and resumed; begun by one process with two devices."""
    expected = trained()
    for index in (0, 1):
        assert pl.read_parquet(folder / f"{name}{index}.parquet").equals(expected, null_equal=True)


def test_one_process_resumes_what_two_have_begun(folder, tmp_path):
    begun = shutil.copytree(folder / "left", tmp_path / "begun")
    assert trained(begun, resume=True).equals(trained(), null_equal=True)


def test_checkpoints_are_written_once_and_hold_all_runs(folder):
    stopped = sorted(path.name for path in (folder / "left").iterdir())
    assert stopped == ["0010000000", "0010000001"]  # the newer where the stop was agreed on
    assert not list(folder.rglob("partial-*"))
