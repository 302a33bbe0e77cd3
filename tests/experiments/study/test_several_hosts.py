"""A study in two processes of one device each is that of one process with two devices, whatever happens to them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# Small, and with a change, at which policies are kept.
WORDS = ["--task", "toy_multigoal_classic", "--patterns", "abrupt", "--schedules", "baseline,aes_r", "--seeds", "1:2"]
WORDS += ["--steps", "4000", "--no-report", "--checkpoint-seconds", "0.3"]
LIMIT = 900.0  # seconds that anything here may take


def start(folder, *more, words=WORDS, **variables):
    command = [sys.executable, "-m", "experiments.cli", "run", "--out", str(folder), *words, *more]
    env = os.environ | variables
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def both(folder, *more, words=WORDS, second=()):
    """Two processes of one program; what only the second one is told comes last."""
    with socket.create_server(("", 0)) as probe:
        port = probe.getsockname()[1]
    where = ["--devices", "1", "--distributed", "--coordinator", f"127.0.0.1:{port}", "--processes", "2"]
    where += ["--join-seconds", "200", *more]
    return [start(folder, *where, "--process-id", str(k), *(second if k else ()), words=words) for k in (0, 1)]


def both_in_slurm(folder, *more):
    """The same with what a SLURM job step of two tasks on one node tells them."""
    words = ["--devices", "1", "--distributed", "--join-seconds", "200", *more]
    step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "localhost"}
    return [start(folder, *words, SLURM_PROCID=str(k), **step) for k in (0, 1)]


def ended(processes):
    """(exit code, what was said on stderr) of each."""
    try:
        said = [process.communicate(timeout=LIMIT)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any("Traceback" in error or "Check failure" in error for error in said), said
    return [(process.returncode, error) for process, error in zip(processes, said, strict=True)]


def alone(folder, *more, words=WORDS):
    [(code, error)] = ended([start(folder, "--devices", "2", *more, words=words)])
    assert code == 0, error
    return folder


def until_checkpoints(folder, processes):
    """Until two checkpoints after the first training are there."""

    def written():
        assert all(process.poll() is None for process in processes), ended(processes)
        return sum(path.name.isdigit() and int(path.name) > 0 for path in folder.glob("checkpoints/sac/*")) >= 2

    wait_until(written, LIMIT)


def assert_equal(folder, whole):
    for name in ("curves.parquet", "streams.parquet"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    for name in ("agents", "moments"):
        files = sorted(p.relative_to(whole) for p in (whole / name).rglob("rows.parquet"))
        assert files == sorted(p.relative_to(folder) for p in (folder / name).rglob("rows.parquet"))
        assert files
    manifests = [json.loads((place / "manifest.json").read_text()) for place in (folder, whole)]
    assert manifests[0]["runs"] == manifests[1]["runs"]
    assert not list(folder.glob(".*"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return alone(tmp_path_factory.mktemp("whole") / "study")


def test_two_processes_train_the_study_of_one(whole, tmp_path):
    folder = tmp_path / "study"
    for code, error in ended(both(folder)):
        assert (code, error) == (0, "")
    assert_equal(folder, whole)
    assert json.loads((folder / "manifest.json").read_text())["hosts"] == 2
    result = subprocess.run(
        [sys.executable, "-m", "experiments.cli", "verify", str(folder)], capture_output=True, text=True, timeout=LIMIT
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("killed", [1, 0])
def test_a_killed_process_ends_both_and_the_study_resumes_to_the_same_curves(whole, tmp_path, killed):
    folder = tmp_path / "study"
    processes = both(folder)
    until_checkpoints(folder, processes)
    processes[killed].kill()
    began = time.monotonic()
    code, error = ended(processes)[1 - killed]
    assert time.monotonic() - began < 60
    assert code == 130
    assert error.startswith(f"aesjax: process {killed} on ")
    assert " is gone; Continue with:\n  aesjax run " in error
    assert error.rstrip().endswith("--resume")
    if killed == 1:
        assert [code for code, _ in ended(both(folder, "--resume", words=("--no-report",)))] == [0, 0]
    else:  # by one process with as many devices
        alone(folder, "--resume")
    assert_equal(folder, whole)


def test_physics_called_from_both_processes_is_that_of_one(tmp_path):
    """MuJoCo's C engine is called back by every device, whichever process it is in."""
    words = ["--task", "hopper", "--carriers", "ppo", "--schedules", "baseline,aes_r", "--patterns", "abrupt"]
    words += ["--seeds", "1:2", "--steps", "3200", "--no-report"]
    folder = tmp_path / "study"
    for code, error in ended(both(folder, words=words)):
        assert (code, error) == (0, "")
    assert_equal(folder, alone(tmp_path / "whole", words=words))


def test_a_signal_to_one_stops_both_at_the_same_checkpoint(whole, tmp_path):
    folder = tmp_path / "study"
    processes = both(folder)
    until_checkpoints(folder, processes)
    os.kill(processes[1].pid, signal.SIGTERM)
    (code, first), (other, second) = ended(processes)
    assert code == other == 130
    assert "interrupted; a checkpoint is written. Continue with:\n" in first
    assert "--resume" in second
    assert [code for code, _ in ended(both_in_slurm(folder, "--resume"))] == [0, 0]
    assert_equal(folder, whole)


@pytest.mark.parametrize(
    ("more", "second", "sentence"),
    [
        ([], ["--seeds", "1:3"], "process 1 differs from process 0 in seeds: [1, 2] -> [1, 2, 3]"),
        ([], ["--schedules", "aes_x"], "aes_x"),
        ([], [], "is not empty"),
        (["--devices", "2"], ["--devices", "1"], "every process must have as many devices; they have 2, 1"),
    ],
    ids=["differs", "unknown", "folder", "devices"],
)
def test_a_refusal_ends_both_with_one_sentence(tmp_path, more, second, sentence):
    folder = tmp_path / "study"
    if sentence == "is not empty":
        folder.mkdir()
        (folder / "somebodys").touch()
    for code, error in ended(both(folder, *more, second=second)):
        assert code == 2
        assert sentence in error
        assert error.startswith("aesjax: ")
        assert error.count("\n") == 1
    assert not (folder / "config.json").exists()
