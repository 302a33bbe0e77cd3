"""Ctrl-C, SIGTERM and SIGHUP from the first import to the last line of a report.

The first signal asks: work that can be lost goes on to its next checkpoint, everything else ends where it stands by an
exception, with its clean-up; before there is anything to clean up, while modules are imported and arguments checked,
the process just ends. The second one ends it at once. Python runs a signal handler only between two of
its own instructions, which a compiler may keep away for minutes, and what a handler raises inside a garbage collector's
callback is dropped. So the signals are also read from a pipe by a thread, which ends the process when it must, and a
dropped exception is raised again.

Imports nothing but the standard library, so that it is there before anything that takes time.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

INTERRUPTED = 130
_NUMBERS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
GRACE = 3.0  # seconds that an orderly end may take where nothing can be lost
_AGAIN = 0.05  # seconds after which an exception that was dropped is raised again


class Asked(KeyboardInterrupt):
    """A signal asked to stop."""


class Watch:
    """What the signals of this process have asked for, and what has to be done about it."""

    def __init__(self, told: str = "") -> None:
        self.asked = False
        self.told = told  # how a person can go on; the last word before the end
        self._begun = False
        self._held = 0
        self._ending = False  # the exception arrived; what runs now is clean-up
        self._cleanups: list[Callable[[], Any]] = []

    def begin(self) -> None:
        """From now on something has to be cleaned up, so that a signal raises an exception."""
        self._begun = True

    def hold(self) -> None:
        """From now on a signal only sets `asked`, which whoever holds looks at."""
        self._begun = True
        self._held += 1

    def let_go(self) -> None:
        """Ends the last `hold`. Raises nothing: whoever held may just be telling that it stopped."""
        self._held = max(0, self._held - 1)

    def check(self) -> None:
        """Nothing, unless a signal asked to stop and nobody holds.

        Raises:
          Asked: it did.
        """
        if self.asked and self._begun and not self._held and not self._ending:
            raise Asked

    @contextmanager
    def cleaning(self, cleanup: Callable[[], Any]) -> Iterator[None]:
        """``cleanup`` is called when the block ends, or when the process has to end inside it; it may run twice."""
        self._cleanups.append(cleanup)
        try:
            yield
        finally:
            self._cleanups.remove(cleanup)
            cleanup()

    def caught(self) -> None:
        """The exception has arrived where it ends; from now on only a second signal matters."""
        self._ending = True

    # --- what the signals call

    def handle(self, number: int, frame: object) -> None:
        """The handler of the signals."""
        self.asked = True
        self.check()

    def dropped(self) -> None:
        """What `handle` raised went nowhere."""
        if not self._ending:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)

    def read(self, pipe: int) -> None:
        """The watching thread: until the pipe is closed."""
        signals, patience = 0, None
        while True:
            ready, _, _ = select.select([pipe], [], [], patience)
            if not ready:
                if not self._held and not self._ending:
                    self.end("interrupted")
                patience = GRACE if self._held else None
                continue
            data = os.read(pipe, 64)
            if not data:
                return
            signals += sum(byte in _NUMBERS for byte in data)
            self.asked = self.asked or signals > 0
            if signals > 1 or (signals and not self._begun):
                self.end("interrupted")
            if signals == 1:
                if self._held:
                    self._say("stopping at the next checkpoint; once more to stop at once")
                patience = GRACE

    def end(self, text: str, code: int = INTERRUPTED) -> None:
        """End the process from a thread with one sentence: the main one may be deep inside a compiler.

        How a person can go on is told where the work was interrupted.
        """
        for cleanup in reversed(self._cleanups):
            with suppress(Exception):
                cleanup()
        self._say(text + (f"; {self.told}" if self.told and code == INTERRUPTED else ""))
        os._exit(code)

    def _say(self, text: str) -> None:
        with suppress(OSError):  # the terminal may have hung up
            os.write(2, f"aesjax: {text}\n".encode())


_CURRENT: list[Watch] = []


def current() -> Watch:
    """The watch of the command under way; outside of one, a watch that no signal reaches."""
    return _CURRENT[-1] if _CURRENT else Watch()


@contextmanager
def watching(told: str = "") -> Iterator[Watch]:
    """Watch the signals of this process while the block runs; in other threads than the main one nothing happens.

    A signal that is ignored on entry (`nohup`) stays ignored. ``told`` is how a person can go on, as long as nobody
    knows better; it has to be there before the first signal that is caught.
    """
    watch = Watch(told)
    if threading.current_thread() is not threading.main_thread() or _CURRENT:
        yield _CURRENT[-1] if _CURRENT else watch
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    numbers = [number for number in _NUMBERS if signal.getsignal(number) != signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (*numbers, signal.SIGALRM)}
    hook, waker = sys.unraisablehook, signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def unraisable(dropped: Any) -> None:
        if dropped.exc_type is not None and issubclass(dropped.exc_type, Asked):
            watch.dropped()
        else:
            hook(dropped)

    sys.unraisablehook = unraisable
    _CURRENT.append(watch)
    for number in (*numbers, signal.SIGALRM):
        signal.signal(number, watch.handle if number != signal.SIGALRM else lambda *_: watch.check())
    thread = threading.Thread(target=watch.read, args=(reading,), name="signals", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.caught()
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        _CURRENT.remove(watch)
        signal.set_wakeup_fd(waker)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook
        os.close(writing)
        thread.join()
        os.close(reading)
