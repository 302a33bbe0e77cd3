"""Compiled programs between processes: found again, never trusted when damaged, never a reason to stop."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.study import compiled
from experiments.study.compiled import SWITCH, folder_of, kept

#: Prints a number that a compiled program made, how many programs were read back, and how many were written.
SCRIPT = """
from experiments.study.devices import start_jax
start_jax(1)
import jax
from experiments.study.compiled import watched
with watched() as seen:
    print(float(jax.jit(lambda x: (x @ x).sum() / 3)(jax.numpy.ones((5, 5)))).hex())
print(sum("hits" in event for event in seen), sum("misses" in event for event in seen))
"""


def process(folder, *words, **more):
    """What a process with ``folder`` as its switch prints, and its lines on stderr."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    command = [sys.executable, *(words or ("-c", SCRIPT))]
    done = subprocess.run(command, env=env | {SWITCH: str(folder)} | more, capture_output=True, text=True, check=True)
    return done.stdout.split(), done.stderr.splitlines()


def test_the_folder_is_the_platforms_place_for_caches(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    home = Path.home()
    assert folder_of({}) == home / ".cache" / "aesjax" / "compiled"
    assert folder_of({"XDG_CACHE_HOME": "/var/tmp/caches"}) == Path("/var/tmp/caches/aesjax/compiled")
    assert folder_of({"XDG_CACHE_HOME": "relative"}) == home / ".cache" / "aesjax" / "compiled"
    assert folder_of({SWITCH: "/elsewhere"}) == Path("/elsewhere")
    assert folder_of({SWITCH: "off"}) is None
    with pytest.raises(ValueError, match="off or an absolute folder; got 'here'"):
        folder_of({SWITCH: "here"})
    monkeypatch.setattr(sys, "platform", "darwin")
    assert folder_of({"XDG_CACHE_HOME": "/unused"}) == home / "Library" / "Caches" / "aesjax" / "compiled"


def test_what_was_not_used_for_longest_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "LARGEST", 1000)
    for age in range(12):
        path = tmp_path / f"processor{age % 2}" / f"jit_{age}-cache"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
        os.utime(path, (1e9 - age, 1e9 - age))
    compiled._trim(tmp_path)
    left = {path.name for path in tmp_path.rglob("*-cache")}
    assert left == {f"jit_{age}-cache" for age in range(7)}
    assert kept(tmp_path).size == 700
    compiled._trim(tmp_path)  # below the limit nothing goes
    assert kept(tmp_path).programs == 7


def test_a_folder_that_is_not_there_keeps_nothing(tmp_path):
    assert kept(tmp_path / "none")[1:] == (0, 0)


def test_a_second_process_reads_what_the_first_compiled_and_damage_is_repaired(tmp_path):
    (number, read, written), told = process(tmp_path)
    assert (int(read), told) == (0, [])
    assert int(written) > 0
    assert process(tmp_path) == ([number, written, "0"], [])
    there = kept(tmp_path).programs
    for index, path in enumerate(sorted(tmp_path.rglob("*-cache"))):
        data = path.read_bytes()
        path.write_bytes((b"", data[: len(data) // 2], b"nonsense" * 20, data[:-9] + bytes(9))[index % 4])
    (again, read, repaired), told = process(tmp_path)
    assert (again, int(read), repaired) == (number, 0, written)
    assert len(told) == 1  # however many are damaged
    assert told[0].startswith("aesjax: compiled programs in ")
    assert process(tmp_path) == ([number, written, "0"], [])
    assert kept(tmp_path).programs == there


def test_without_a_place_to_keep_them_it_says_so_once_and_compiles(tmp_path):
    (tmp_path / "file").touch()
    (_, read, written), told = process(tmp_path / "file")
    assert (read, written) == ("0", "0")
    assert len(told) == 1
    assert "compiled programs are not kept" in told[0]
    assert process("off")[1] == []


def test_two_processes_at_once_do_not_mind_each_other(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    env |= {SWITCH: str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", SCRIPT], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [one.communicate() for one in both]
    assert said[0][0].split()[0] == said[1][0].split()[0]
    assert not any(b"Traceback" in err for _, err in said)
    assert process(tmp_path)[0][2] == "0"


@pytest.mark.slow
def test_curves_do_not_depend_on_what_was_kept(tmp_path):
    """Compiled, read back and never kept: the same bytes; and the second study of a shape compiles nothing."""
    words = ("-m", "experiments.cli", "run", "--carriers", "ppo", "--steps", "3200", "--schedules", "aes")
    words += ("--patterns", "abrupt", "--seeds", "1", "--devices", "1", "--no-report", "--out")
    curves = []
    for index, switch in enumerate((tmp_path / "kept", tmp_path / "kept", "off")):
        process(switch, *words, str(tmp_path / str(index)))
        curves.append((tmp_path / str(index) / "curves.parquet").read_bytes())
        if index == 0:
            there = kept(tmp_path / "kept").programs
            assert there > 0
    assert curves[0] == curves[1] == curves[2]
    assert kept(tmp_path / "kept").programs == there
