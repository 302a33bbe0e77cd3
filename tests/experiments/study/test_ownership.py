"""One process owns a folder; what a killed one leaves holds nobody up."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from experiments.study import ownership
from experiments.study.ownership import LOCK, LostError, OwnedError, Owner, clean, is_empty
from tests.waiting import wait_until

HOLD = """
import sys
from pathlib import Path
from experiments.study.ownership import Owner
Owner(Path(sys.argv[1]))
print("mine", flush=True)
sys.stdin.read()
"""
ELSEWHERE = {"host": "node7", "place": "another machine", "pid": 12}


def holding(folder):
    """A process that owns the folder, if it can, until its input ends."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def other(tmp_path):
    """Another process that owns the folder."""
    process = holding(tmp_path)
    assert process.stdout.readline() == "mine\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_owner_is_refused_and_told_who_the_first_one_is(other, tmp_path):
    with pytest.raises(OwnedError, match=f"is in use by process {other.pid} on "):
        Owner(tmp_path)
    with pytest.raises(OwnedError):
        Owner(tmp_path, break_stale=True)  # it lives: it can be ended, not overlooked


def test_the_lock_of_a_killed_process_holds_nobody_up(other, tmp_path):
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert (tmp_path / LOCK).exists()
    with Owner(tmp_path) as owner:
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
        owner.check()
    assert not list(tmp_path.iterdir())


def test_two_owners_in_one_process_are_two(tmp_path):
    with Owner(tmp_path), pytest.raises(OwnedError):
        Owner(tmp_path)
    Owner(tmp_path).release()


def test_of_many_that_try_at_once_one_wins(tmp_path):
    tried = [holding(tmp_path) for _ in range(4)]
    wait_until(lambda: sum(process.poll() is not None for process in tried) == 3)
    said = [process.communicate() for process in tried]
    assert sorted(out for out, _ in said) == ["", "", "", "mine\n"]
    assert sum("OwnedError" in error for _, error in said) == 3


def test_an_owner_on_another_host_counts_while_it_shows_signs_of_life(tmp_path):
    (tmp_path / LOCK).write_text(json.dumps(ELSEWHERE))
    with pytest.raises(OwnedError, match=r"process 12 on node7.*taken for gone 60 s after .*--break-lock"):
        Owner(tmp_path)
    assert json.loads((tmp_path / LOCK).read_text()) == ELSEWHERE
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    long_ago = time.time() - 2 * ownership.STALE
    os.utime(tmp_path / LOCK, (long_ago, long_ago))
    Owner(tmp_path).release()


def test_it_can_be_broken(tmp_path):
    (tmp_path / LOCK).write_text(json.dumps(ELSEWHERE))
    Owner(tmp_path, break_stale=True).release()


@pytest.mark.parametrize("garbage", ["", "{", "[1]", '{"pid": "x"}'])
def test_a_lock_that_tells_nothing_belongs_to_nobody(tmp_path, garbage):
    (tmp_path / LOCK).write_text(garbage)
    Owner(tmp_path).release()


@pytest.mark.parametrize("lose", ["removed", "taken"])
def test_an_owner_notices_that_the_folder_is_its_own_no_more(tmp_path, monkeypatch, lose):
    monkeypatch.setattr(ownership, "BEAT", 0.05)
    folder = tmp_path / "study"
    folder.mkdir()
    owner = Owner(folder)
    before = (folder / LOCK).stat().st_mtime_ns
    wait_until(lambda: (folder / LOCK).stat().st_mtime_ns > before)  # the sign of life
    owner.check()
    (folder / LOCK).unlink()
    if lose == "taken":
        (folder / LOCK).write_text(json.dumps(ELSEWHERE))
    else:
        folder.rmdir()
    with pytest.raises(LostError, match="was removed"):
        wait_until(owner.check)
    owner.release()
    assert (folder / LOCK).exists() == (lose == "taken")  # what is somebody else's is left to him


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(OSError, match="cannot be written: No such file"):
        Owner(tmp_path / "none")


def test_leftovers_are_removed_and_nothing_else(tmp_path):
    keep = ["config.json", ".hidden", "checkpoints/sac/0000000001/seal.json", "report/index.html", "partial-mine"]
    drop = [".config.json.partial", ".report-12/index.html", ".report-old-12/index.html", ".replay-3/summary.md"]
    drop += ["checkpoints/sac/partial-0000000002/rows.parquet", "agents/sac/000/partial-0000000002/rows.parquet"]
    for name in (*keep, *drop):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    clean(tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == sorted(keep)


def test_what_is_left_over_does_not_make_a_folder_full(tmp_path):
    assert is_empty(tmp_path)
    (tmp_path / LOCK).write_text("")
    (tmp_path / ".config.json.partial").write_text("")
    assert is_empty(tmp_path)
    (tmp_path / "config.json").write_text("")
    assert not is_empty(tmp_path)
    assert is_empty(tmp_path, besides=["config.json"])
