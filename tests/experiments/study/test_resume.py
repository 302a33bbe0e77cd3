"""A study that is killed and resumed gives the numbers of one that was not, to the last bit.

The processes here run one program, which the first compiles for all of them (see `tests/conftest.py`).
"""

import json
import random
import shutil
import subprocess
import sys
import time
from functools import partial

import pytest

from tests.waiting import wait_until

# The task without an oracle, whose solution is not what is tested here.
WORDS = ["--task", "toy_multigoal_classic", "--patterns", "abrupt"]
WORDS += ["--schedules", "baseline,aes_r,aes_r+window+refresh:threshold=1.05+rate"]
WORDS += ["--seeds", "1:2", "--steps", "4000", "--no-report"]
CODE = "import sys; from experiments.cli import main; sys.exit(main(sys.argv[1:]))"

# Legs on the ground, on MuJoCo's C engine; twenty steps are enough to come down and to begin anew.
CONTACTS = """
from functools import partial
from envs.isaac import build
ant = partial(build, "isaac_ant", engine="mujoco", time_limit=20)
"""


def command(folder, *more, words=WORDS):
    return [sys.executable, "-c", CODE, "run", "--out", str(folder), *words, "--checkpoint-seconds", "0.3", *more]


def finish(folder, *more, words=WORDS):
    return subprocess.run(command(folder, *more, words=words), capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "study"
    began = time.monotonic()
    result = finish(folder)
    assert result.returncode == 0, result.stderr
    return folder, time.monotonic() - began


def checkpoints(folder, carrier="sac"):
    place = folder / "checkpoints" / carrier
    return sorted(p.name for p in place.iterdir() if p.name.isdigit()) if place.exists() else []


def begun_or_over(process, folder, carrier):
    return len(checkpoints(folder, carrier)) >= 2 or process.poll() is not None


def kill(folder, carrier="sac", words=WORDS):
    """A study ended by SIGKILL at a random moment after its first two checkpoints."""
    for longest in (0.5, 0.1, 0.0):  # a kill that comes after the end is none
        process = subprocess.Popen(command(folder, words=words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(partial(begun_or_over, process, folder, carrier), 200, every=0.01)
        time.sleep(random.uniform(0.0, longest))
        process.kill()
        process.wait()
        if not (folder / "curves.parquet").exists():
            return folder
        shutil.rmtree(folder)
    raise AssertionError("the study was over before it could be killed")


@pytest.fixture(scope="module")
def killed(whole, tmp_path_factory):
    return kill(tmp_path_factory.mktemp("killed") / "study")


def copy_of(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.mark.slow
def test_a_killed_study_resumes_to_the_same_curves(whole, killed, tmp_path):
    folder = copy_of(killed, tmp_path)
    result = finish(folder, "--resume", words=("--no-report",))  # the folder knows which study it is
    assert result.returncode == 0, result.stderr
    for name in ("curves.parquet", "streams.parquet"):
        assert (folder / name).read_bytes() == (whole[0] / name).read_bytes()
    manifests = [json.loads((f / "manifest.json").read_text()) for f in (folder, whole[0])]
    for name in ("runs", "num_devices"):
        assert manifests[0][name] == manifests[1][name]


@pytest.mark.slow
def test_a_killed_study_with_contacts_resumes_to_the_same_curves(tmp_path, monkeypatch):
    (tmp_path / "contacts.py").write_text(CONTACTS)
    monkeypatch.chdir(tmp_path)
    words = ["--task", "contacts:ant", "--carriers", "ppo", "--schedules", "aes_r", "--patterns", "abrupt"]
    words += ["--seeds", "1", "--steps", "2400", "--no-report"]
    whole, folder = tmp_path / "whole", kill(tmp_path / "killed", "ppo", words)
    for result in (finish(whole, words=words), finish(folder, "--resume", words=words)):
        assert result.returncode == 0, result.stderr
    for name in ("curves.parquet", "streams.parquet"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_a_truncated_checkpoint_is_passed_over_for_the_one_before_and_named(whole, killed, tmp_path):
    folder = copy_of(killed, tmp_path)
    names = checkpoints(folder)
    assert len(names) in (2, 3)  # three where the kill came before the oldest was removed
    newest = folder / "checkpoints" / "sac" / names[-1]
    largest = max((p for p in newest.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
    result = finish(folder, "--resume")
    assert result.returncode == 0, result.stderr
    assert f"checkpoint {names[-1]} was not used" in result.stdout
    assert (folder / "curves.parquet").read_bytes() == (whole[0] / "curves.parquet").read_bytes()
