"""Faults that a user can meet: kills, signals, two processes on one folder, damaged files, a full disk, a bad cache."""

import json
import resource
import shlex
import shutil
import signal
import subprocess
import sys

import jax
import pytest

from experiments.cli import main
from experiments.study import folder, store
from experiments.study.folder import LOCK, Owner
from tests.refusals import sentence
from tests.waiting import wait_until

# The task without an oracle, whose solution is not what is tested here.
STUDY = "--task toy_multigoal_classic --schedules baseline,aes_r+window+refresh:threshold=1.05+rate".split()
STUDY += "--patterns abrupt --seeds 1 --steps 2000 --evaluations 20 --episodes 2 --devices 1 --no-report".split()
RESULTS = ("curves.parquet", "streams.parquet")


@pytest.fixture(autouse=True)
def started():
    """JAX, with the devices of the suite and not with those of a study that is resumed in this process."""
    assert len(jax.devices()) == 2


def start(out, *words, before="", largest_file=resource.RLIM_INFINITY, **options):
    """`aesjax run` in a process of its own, after the statements ``before``.

    The kernel answers writes beyond ``largest_file`` bytes as a full disk.
    """
    code = (
        before
        + "import resource, runpy, sys; n = int(sys.argv.pop(1)); resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)); "
    )
    code += "runpy.run_module('experiments.cli', run_name='__main__')"
    argv = [sys.executable, "-c", code, str(largest_file), "run", "--out", str(out), *STUDY, *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(process, seconds=120):
    """Exit code and standard error."""
    _, err = process.communicate(timeout=seconds)
    assert "Traceback" not in err, err
    return process.returncode, err


def results(folder):
    return [(folder / name).read_bytes() for name in RESULTS]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "study"
    assert finish(start(folder)) == (0, "")
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copied")


def checkpointed(folder):
    """Whether a checkpoint was written after training began."""
    return lambda: any(path.parent.name[3:] > "0000000" for path in folder.glob("checkpoints/*/[0-9]*/about.json"))


def resumed(folder):
    assert finish(start(folder, "--resume")) == (0, "")
    return results(folder)


# --- kills and signals


@pytest.fixture(scope="module")
def killed(finished, tmp_path_factory):
    """A study ended by SIGKILL after its first two checkpoints."""
    folder = tmp_path_factory.mktemp("killed") / "study"
    process = start(folder, "--checkpoint-seconds", "0")
    wait_until(lambda: checkpointed(folder)() or process.poll() is not None, 120, every=0.005)
    process.kill()
    process.communicate()
    return folder


@pytest.mark.parametrize("truncated", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_killed_study_is_resumed_to_equal_bytes_also_past_a_truncated_checkpoint(
    finished, killed, tmp_path, truncated
):
    folder = shutil.copytree(killed, tmp_path / "copied")
    newest = max(path for path in folder.glob("checkpoints/sac/*") if path.name.isdigit())
    largest = max((path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    if truncated:
        largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
    for place in folder.glob("checkpoints/sac/[0-9]*/about.json"):
        place.write_text(json.dumps(json.loads(place.read_text()) | {"seconds": 1000.0}))
    words = [sys.executable, "-m", "experiments.cli", "run", "--out", str(folder), "--resume", "--no-report"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (f"checkpoint {newest.name} was not used" in done.stdout) == truncated
    assert results(folder) == results(finished)
    assert not (folder / LOCK).exists()
    manifests = [json.loads((each / "manifest.json").read_text()) for each in (folder, finished)]
    assert manifests[0]["runs"] == manifests[1]["runs"]
    assert manifests[0]["num_devices"] == 1  # as it began, and not the machine's default
    assert all(part["seconds"] > 1000.0 for part in manifests[0]["parts"].values())  # of all sessions
    assert manifests[0]["wall_seconds"] > 1000.0


@pytest.mark.slow
def test_the_first_signal_saves_a_checkpoint(tmp_path):
    folder = tmp_path / "stopped"
    process = start(folder, "--steps", "40000", "--checkpoint-seconds", "0")
    wait_until(checkpointed(folder), 120)
    process.send_signal(signal.SIGINT)
    code, err = finish(process)
    assert code == 130
    assert f"aesjax run --out {folder}" in err
    assert "--resume" in err
    assert checkpointed(folder)()
    assert not (folder / LOCK).exists()


def test_a_second_ctrl_c_ends_the_process_and_a_second_sigterm_does_not():
    code = "import os, signal; from experiments.study.process import StopFlag; flag = StopFlag()\nwith flag:\n"
    code += " os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGTERM); assert flag.asked\n"
    code += " print(1, flush=True); os.kill(os.getpid(), signal.SIGINT); print(2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "1\n")


def test_a_study_is_not_resumed_on_another_number_of_devices(killed, tmp_path, capsys):
    """Its numbers depend on them, and this process has two."""
    folder = shutil.copytree(killed, tmp_path / "copied")
    assert main(["run", "--out", str(folder), "--resume", "--no-report", "--quiet"]) == 2
    text = "began with --devices 1, on which their numbers depend; this process has 2: continue with --devices 1, in"
    assert text in sentence(capsys)


def test_a_study_that_has_ended_is_not_trained_again(copied, capsys):
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*") if path.is_file()}
    words = ["run", "--out", str(copied), "--resume", "--no-report"]
    assert main(words) == 0
    assert "nothing is trained again" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*") if path.is_file()} == before
    (copied / "curves.parquet").write_bytes(b"PAR1")
    assert main(words) == 2
    assert "curves.parquet was changed or damaged" in capsys.readouterr().err


# --- output that cannot be written


def test_a_listing_on_a_full_disk_is_refused_in_one_sentence():
    words = [sys.executable, "-m", "experiments.cli", "list"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "aesjax: the output cannot be written: No space left on device\n")
    closed = ["bash", "-c", f"{shlex.join(words)} >&-"]
    done = subprocess.run(closed, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- one folder


def test_the_holder_of_a_lock_is_named_and_its_end_releases_it(tmp_path):
    code = "import sys; from experiments.study.folder import *; held = Owner(Path(sys.argv[1])); print(1, flush=True); "
    code += "input()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    other.stdout.readline()
    with pytest.raises(ValueError, match=f"is in use by process {other.pid} on "):
        Owner(tmp_path)
    (tmp_path / LOCK).write_text("")  # as it is before the holder has written its number
    with pytest.raises(ValueError, match="is in use by another process;"):
        Owner(tmp_path)
    other.kill()
    other.communicate()
    with Owner(tmp_path), pytest.raises(ValueError):
        Owner(tmp_path)
    assert folder.is_empty(tmp_path)


def test_a_folder_that_was_removed_is_not_written_into(tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    with Owner(folder) as owner:
        owner.check()
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / LOCK).touch()
        with pytest.raises(store.Unwritable, match="was removed"):
            owner.check()
    assert (folder / LOCK).exists()  # it is another process's


# --- damaged and absurd files


@pytest.mark.parametrize(("name", "damage"), [("config.json", "flipped"), ("curves.parquet", "truncated")])
def test_a_damaged_file_is_named_by_its_readers(copied, capsys, name, damage):
    path = copied / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    assert main(["report", str(copied)]) == 2
    assert f"{name} was changed or damaged" in sentence(capsys)


def test_a_study_whose_checkpoints_are_all_damaged_is_not_begun_again(killed, tmp_path, capsys):
    copied = shutil.copytree(killed, tmp_path / "copied")
    for path in (copied / "checkpoints" / "sac").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert main(["run", "--out", str(copied), "--resume", "--no-report"]) == 2
    assert "no usable checkpoint" in sentence(capsys)


# --- a full disk


@pytest.mark.slow
def test_on_a_full_disk_nothing_is_half_written_and_the_study_goes_on_later(finished, tmp_path):
    folder = tmp_path / "full"
    process = start(folder, "--checkpoint-seconds", "1", largest_file=4096)  # its programs are only read
    _, err = process.communicate(timeout=120)  # orbax may add its own lines
    assert process.returncode == 2, err
    assert "cannot be written" in err
    assert not list(folder.glob(".*.partial"))
    assert not (folder / "manifest.json").exists()
    assert resumed(folder) == results(finished)
