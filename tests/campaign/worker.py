"""Commands inside a process kept for many of them: each costs a fraction of a second instead of an import.

A worker is forked from a server that has imported everything and run nothing. Its memory is bounded, so that an input
that asks for all of it is a finding and not the end of the machine, and training is a tripwire: an input that was to be
refused has been accepted when it gets there.
"""

import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.campaign.judge import Outcome

_PRELOAD = ["tests.campaign.preload"]
_MEMORY = 3 * 2**29  # bytes beyond what the imports take
_CALLS = 200  # until a fresh process takes over, in case the calls before left something in this one


class ReachedTraining(BaseException):
    """A command got as far as training. No `Exception`, so that nobody takes it for a failure of the command."""


def command(argv: Sequence[str], directory: str | None = None, may_train: bool = False) -> int:
    """`aesjax` with these arguments, in the folder given; the exit code."""
    import jax

    from experiments.cli import main
    from experiments.study import train
    from experiments.study.devices import start_jax

    start_jax(1)  # what the studies were trained on, before a command starts it with more
    jax.devices()

    def tripwire(*_: Any, **__: Any) -> None:
        raise ReachedTraining

    if directory is not None:
        os.chdir(directory)
    kept = train.train
    if not may_train:
        train.train = tripwire
    try:
        return main(list(argv))
    finally:
        train.train = kept


class Worker:
    """Runs functions that return an exit code, and tells what they printed. Use as a context manager."""

    def __init__(self) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOAD)
        self._process: Any = None  # of the context's own class
        self._calls = 0

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def call(self, function: Callable[..., int], *words: Any, longest: float = 60.0) -> Outcome:
        """What ``function(*words)`` did; after ``longest`` seconds it is stopped, and its exit code is None."""
        process = self._ready()
        self._ours.send((function, words))
        try:
            if self._ours.poll(longest):
                return self._ours.recv()
        except EOFError:  # the process died of it
            process.join()
            outcome = Outcome(process.exitcode, *self._printed())
            self._end()
            return outcome._replace(err=outcome.err + f"\nFatal Python error: ended with {outcome.code}")
        outcome = Outcome(None, *self._printed())
        self._end()
        return outcome

    def _ready(self) -> Any:
        """The process, a fresh one where there is none or it has had its calls."""
        self._calls += 1
        if self._process is not None and self._calls <= _CALLS:
            return self._process
        self._end()
        self._folder = tempfile.TemporaryDirectory(prefix="aesjax-campaign-")
        self._ours, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs, self._folder.name), daemon=True)
        self._process.start()
        theirs.close()
        self._calls = 1
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._ours.close()
            self._folder.cleanup()
            self._process = None

    def _printed(self) -> tuple[str, str]:
        out, err = ((Path(self._folder.name) / name).read_text(errors="replace") for name in ("out", "err"))
        return out, err


def _serve(requests: Connection, folder: str) -> None:
    most = _data_bytes() + _MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files = [os.open(Path(folder) / name, os.O_RDWR | os.O_CREAT | os.O_APPEND) for name in ("out", "err")]
    for number, file in zip((1, 2), files, strict=True):
        os.dup2(file, number)  # what libraries print below Python, too
    while True:
        try:
            function, words = requests.recv()
        except EOFError:
            return
        for file in files:
            os.ftruncate(file, 0)
        outcome = _outcome(function, words)
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = (Path(folder, name).read_text(errors="replace") for name in ("out", "err"))
        requests.send(outcome._replace(out=out, err=err))


def _outcome(function: Callable[..., int], words: Sequence[Any]) -> Outcome:
    """The exit code that Python would give."""
    try:
        return Outcome(function(*words), "", "")
    except ReachedTraining:
        return Outcome(0, "", "", reached_training=True)
    except SystemExit as end:
        return Outcome(end.code if isinstance(end.code, int) else int(end.code is not None), "", "")
    except BaseException:
        traceback.print_exc()
        return Outcome(1, "", "")


def _data_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
