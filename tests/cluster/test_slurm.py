"""A study in parts on a real SLURM: one part is pre-empted, one killed, and the joined bytes are those of one machine.

Skipped where SLURM is not installed; `tests/cluster/slurm.sh install` installs it from Debian's packages.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

SCRIPT = Path(__file__).with_name("slurm.sh")
MISSING = [name for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun") if shutil.which(name) is None]
# Forty runs, eight groups of five.
STUDY = ["--task", "toy_multigoal_classic", "--patterns", "abrupt", "--schedules", "baseline,aes_r", "--seeds", "1:20"]
STUDY += ["--steps", "400", "--together", "5", "--no-report"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"SLURM is not installed: there is no {', '.join(MISSING)}"),
    pytest.mark.skipif(os.getuid() != 0, reason="SLURM's daemons need root"),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The environment in which the commands of a fresh SLURM work."""
    folder = tmp_path_factory.mktemp("slurm")
    try:
        subprocess.run([SCRIPT, "start", folder], check=True, timeout=120)
        yield {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    finally:
        subprocess.run([SCRIPT, "stop", folder], check=False, timeout=120)


def aesjax(*words, env=None):
    code = "from experiments.cli import entry; entry()"
    argv = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=600, env=env)


def begun(part):
    """Whether a part has written a checkpoint after some training and has not ended."""
    trained = any(int(about.parent.name) > 0 for about in part.glob("checkpoints/sac/0*/about.json"))
    return trained and not (part / "manifest.json").exists()


def test_a_study_in_four_parts_gives_the_bytes_of_one_machine(slurm, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "study"
    result = aesjax("submit", "--cluster", "local", "--parts", "1", *STUDY, "--out", whole)
    assert result.returncode == 0, result.stderr
    options = ["--cluster", "slurm", "--parts", "4", "--partition", "low", "--time", "30", "--cpus", "1"]
    result = aesjax("submit", *options, *STUDY, "--checkpoint-seconds", "0", "--out", out, env=slurm)
    assert result.returncode == 0, result.stderr
    jobs = json.loads((out / "plan.json").read_text())["jobs"]
    assert len(jobs) == 4

    wait_until(lambda: begun(out / "parts" / "2"), 600)  # what SLURM sends before it pre-empts a job or its time is up
    subprocess.run(["scancel", "--signal=USR2", jobs["2"]], check=True, env=slurm)
    wait_until(lambda: begun(out / "parts" / "3"), 600)
    os.kill(int((out / "parts" / "3" / ".lock").read_text().split()[1]), signal.SIGKILL)
    wait_until(lambda: "part 3  failed (signal 9)" in aesjax("status", out, env=slurm).stdout, 600)
    result = aesjax("submit", "--resume", "--out", out, env=slurm)
    assert result.returncode == 0, result.stderr
    assert "parts 3 of 4" in result.stdout

    wait_until(lambda: (out / "manifest.json").exists(), 1200)
    for name in ("curves.parquet", "streams.parquet", "config.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    for part in "23":
        assert json.loads((out / "parts" / part / "manifest.json").read_text())["resumed"]
    logs = {part: (out / "tasks" / part / "log.txt").read_text() for part in "1234"}
    assert "--resume" in logs["2"]
    assert "a checkpoint is written" in logs["2"]
    assert "joined" in aesjax("status", out, env=slurm).stdout


def test_what_slurm_refuses_is_said_in_its_words(slurm, tmp_path):
    words = ["submit", "--cluster", "slurm", "--parts", "2", "--partition", "none", *STUDY, "--out", tmp_path / "study"]
    result = aesjax(*words, env=slurm)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "sbatch refused the job" in result.stderr
    assert "partition" in result.stderr
