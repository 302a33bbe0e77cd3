"""`--distributed`: where a process stands, and what is refused before it meets the others."""

import pytest

from experiments.cli import main
from experiments.cli.distributed import place_of

STEP = {
    "SLURM_JOB_ID": "70001",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NODELIST": "node[07-09,12]",
}


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("node7", "node7"),
        ("node[07-09,12]", "node07"),
        ("gpu[3,5]", "gpu3"),
        ("alpha,beta[1-2]", "alpha"),
        ("a-b[1-2],c", "a-b1"),
    ],
)
def test_slurm_says_where_a_task_stands(nodes, host):
    place = place_of(None, None, None, STEP | {"SLURM_STEP_NODELIST": nodes})
    assert place == (host, 61_440 + 70001 % 4096, 2, 4)


def test_options_go_before_slurm():
    assert place_of("[::1]:4000", 0, 2, STEP) == ("::1", 4000, 0, 2)
    assert place_of(None, 1, None, STEP)[2:] == (1, 4)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--processes", "2"], "--processes is an option of --distributed, which is not given"),
        (["--distributed"], "outside of a SLURM job step (SLURM_PROCID is not set)"),
        (["--distributed", "--process-id", "0", "--processes", "2"], "(SLURM_STEP_NODELIST is not set)"),
        (
            ["--distributed", "--coordinator", "here:1", "--process-id", "2", "--processes", "2"],
            "--process-id must be between 0 and 1; got 2",
        ),
        (
            ["--distributed", "--coordinator", "here", "--process-id", "0", "--processes", "2"],
            "--coordinator must be HOST:PORT with a port between 1 and 65535; got 'here'",
        ),
        (
            ["--distributed", "--coordinator", "here:1", "--process-id", "0", "--processes", "0"],
            "--processes must be at least 1; got 0",
        ),
        (["--distributed", "--heartbeat-seconds", "nan"], "--heartbeat-seconds must be between 1 and 86400; got nan"),
        (
            [
                "--distributed",
                "--coordinator",
                "127.0.0.1:1",
                "--process-id",
                "1",
                "--processes",
                "2",
                "--join-seconds",
                "1",
            ],
            "no process 0 at 127.0.0.1:1 within 1 s: Connection refused",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, monkeypatch, capsys, words, sentence):
    for name in STEP:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")  # put back afterwards
    assert main(["run", "--out", str(tmp_path / "study"), *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "study").exists()
