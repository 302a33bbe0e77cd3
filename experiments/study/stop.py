"""A flag that Ctrl-C, SIGTERM and SIGHUP set, read by the training loop between two intervals."""

import signal
import sys
from contextlib import suppress
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class StopFlag:
    """Catches signals inside a ``with`` block: the first one sets ``asked``; a Ctrl-C after it ends the process.

    Outside the main thread nothing is caught. A signal that is ignored on entry (`nohup`) stays ignored.
    """

    def __init__(self) -> None:
        self.asked = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopFlag":
        with suppress(ValueError):  # not the main thread
            for number in SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True
        for each in self._previous:  # the system ends the process, also in a long call into XLA; schedulers send twice
            signal.signal(each, signal.SIG_DFL if each == signal.SIGINT else signal.SIG_IGN)
        with suppress(OSError, ValueError):  # the terminal may have hung up
            cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # which the progress display hides
            print(f"{cursor}aesjax: stopping at the next checkpoint; Ctrl-C to stop now", file=sys.stderr, flush=True)
