"""Ctrl-C and its like, at any moment: one sentence, exit code 130, nothing left over; the second time at once."""

import os
import signal
import subprocess
import sys
import time

import pytest

WORDS = ["--schedules", "baseline", "--patterns", "steady", "--seeds", "1", "--steps", "400000", "--no-report"]
LIBRARY = """
import gc, os, signal, sys, time
from experiments.cli.interrupts import Asked, watching
{body}
"""
HOLDING = """
with watching() as watch:
    watch.hold()
    print('go', flush=True)
    time.sleep(60)
"""


def caught(pid, number):
    """Whether the process has a handler of its own for the signal."""
    with open(f"/proc/{pid}/status") as file:
        mask = next(line for line in file if line.startswith("SigCgt"))
    return int(mask.split()[1], 16) >> (number - 1) & 1


@pytest.fixture(autouse=True)
def hear():
    """Tests under nohup or in the background would hand on to their processes that signals are ignored."""
    deaf = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_IGN]
    for number in deaf:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in deaf:
        signal.signal(number, signal.SIG_IGN)


def start(folder, *words):
    command = [sys.executable, "-m", "experiments.cli", "run", "--out", str(folder), *WORDS, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not caught(process.pid, signal.SIGTERM):  # Python itself has none: from here on it is ours
        assert process.poll() is None
        time.sleep(0.002)
    return process


def python(body):
    command = [sys.executable, "-c", LIBRARY.format(body=body)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("number", "delay"),
    [(signal.SIGINT, 0.0), (signal.SIGTERM, 0.7), (signal.SIGHUP, 2.0), (signal.SIGINT, 4.0), (signal.SIGINT, 8.0)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_signal_at_any_moment_ends_in_an_orderly_way(tmp_path, number, delay):
    folder = tmp_path / "study"
    process = start(folder)
    time.sleep(delay)
    process.send_signal(number)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    assert "Traceback" not in error
    assert "KeyboardInterrupt" not in error
    assert error.count("aesjax: interrupted; ") == 1
    assert f"aesjax run --out {folder}" in error
    left = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    assert not [name for name in left if name.startswith(".") or "partial" in name]
    assert ("--resume" in error) == ("config.json" in left)


def test_the_second_signal_ends_at_once():
    process = subprocess.Popen(
        [sys.executable, "-c", LIBRARY.format(body=HOLDING)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "go\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert time.monotonic() - began < 20.0
    assert process.returncode == 130
    assert error.splitlines() == [
        "aesjax: stopping at the next checkpoint; once more to stop at once",
        "aesjax: interrupted",
    ]


def test_the_first_signal_that_is_caught_is_answered_in_full():
    """The thread that ends the process may run before the block under the watch does."""
    body = """
began = signal.set_wakeup_fd

def set_wakeup_fd(*arguments, **words):
    before = began(*arguments, **words)
    os.write(arguments[0], bytes([signal.SIGINT]))  # as if a signal came the moment that somebody listens
    return before

signal.set_wakeup_fd = set_wakeup_fd
with watching(told="start again"):
    time.sleep(30)
"""
    result = python(body)
    assert (result.returncode, result.stderr) == (130, "aesjax: interrupted; start again\n")


def test_an_exception_that_a_destructor_drops_is_raised_again():
    body = """
class Dropping:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass  # the handler runs here, where nobody can catch what it raises

try:
    with watching() as watch:
        watch.begin()
        Dropping()
        time.sleep(30)
except Asked:
    print("asked")
"""
    result = python(body)
    assert (result.stdout, result.stderr) == ("asked\n", "")


def test_what_blocks_python_for_long_is_ended_by_the_thread():
    body = """
import threading
from experiments.cli import interrupts
interrupts.GRACE = 0.3
lock = threading.Lock()
with watching() as watch, watch.cleaning(lambda: print("cleaned", flush=True)):
    watch.begin()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    signal.signal(signal.SIGINT, lambda *_: None)  # as if Python never came to run the handler
    time.sleep(30)
"""
    result = python(body)
    assert (result.returncode, result.stdout) == (130, "cleaned\n")
    assert result.stderr == "aesjax: interrupted\n"


def test_ignored_signals_stay_ignored():
    """As under nohup."""
    body = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with watching() as watch:
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(0.2)
    print(watch.asked, signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)
"""
    assert python(body).stdout == "False True\n"


def test_handlers_are_put_back():
    body = """
before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)], sys.unraisablehook
with watching():
    pass
print(before == ([signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)], sys.unraisablehook))
print(signal.set_wakeup_fd(-1))
"""
    assert python(body).stdout == "True\n-1\n"


def test_nothing_heavy_is_imported_before_signals_are_watched():
    code = "import sys, experiments.cli; print(sorted({'jax', 'tyro', 'numpy', 'aesjax'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert result.stdout == "[]\n"


def test_what_was_interrupted_ends_without_the_end_of_python():
    """In it JAX takes its backends down, which has crashed where a compiler still ran in another thread."""
    body = """
import atexit
import experiments.cli as cli
atexit.register(print, "the end of Python")
cli.main = lambda: print("told") or int(sys.argv[1])
cli.entry()
"""
    said = []
    for code in (130, 2):
        command = [sys.executable, "-c", LIBRARY.format(body=body), str(code)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        said.append((result.returncode, result.stdout))
    assert said == [(130, "told\n"), (2, "told\nthe end of Python\n")]
