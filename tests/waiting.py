"""For tests of other processes and threads: wait for what must happen, however busy the machine."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], seconds: float = 60.0, every: float = 0.02) -> Found:
    """First true value of the condition; fails after as many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain"
        time.sleep(every)
    return found
