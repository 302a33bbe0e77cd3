"""A flag that Ctrl-C, SIGTERM and SIGHUP set, read by the training loop between two intervals."""

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
PARENT = "AESJAX_PARENT"  # variable of a process that shall end with the one that started it, whose number it holds
_ONE = 1.0  # seconds within which signals of a scheduler count as one


class StopFlag:
    """Catches signals inside a ``with`` block: the first one sets ``asked``, the second one ends the process.

    Only Ctrl-C counts as the second within a second of the first: a scheduler may send SIGTERM twice.

    Outside the main thread nothing is caught. A signal that is ignored on entry (`nohup`) stays ignored. Where
    `interrupt` was called before and its exception did not end the program, ``asked`` is set from the start.
    """

    requested = False

    def __init__(self) -> None:
        self.asked = StopFlag.requested
        self._previous: dict[int, Any] = {}
        self._timer: threading.Timer | None = None

    def __enter__(self) -> "StopFlag":
        with suppress(ValueError):  # not the main thread
            for number in _SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True
        for each in self._previous:  # not by an exception, which a long call into XLA would keep away
            signal.signal(each, signal.SIG_DFL if each == signal.SIGINT else signal.SIG_IGN)
        self._timer = threading.Timer(_ONE, self._heed)
        self._timer.daemon = True
        self._timer.start()
        with suppress(OSError, ValueError):  # the terminal may have hung up
            cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # which the progress display hides
            print(f"{cursor}aesjax: stopping at the next checkpoint; again to stop now", file=sys.stderr, flush=True)

    def _heed(self) -> None:
        """Let every further signal end the process, by C's function: Python's is for the main thread alone."""
        for each in self._previous:
            ctypes.CDLL(None).signal(each, None)


def interrupt(number: int, frame: object) -> None:
    """Handles signals where no `StopFlag` does: by an exception, and a note of it in case that a library catches it.

    Raises:
      KeyboardInterrupt: always.
    """
    StopFlag.requested = True
    raise KeyboardInterrupt


def end_with_parent() -> None:
    """Have this process get SIGTERM when the process named by `PARENT` is gone; Linux alone offers that."""
    parent = os.environ.pop(PARENT, None)
    if parent is None:
        return
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if parent != str(os.getppid()):  # it is gone already
        interrupt(signal.SIGTERM, None)
