"""For tests of other processes and threads: wait for what must happen, however busy the machine."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 60.0, every: float = 0.02) -> None:
    """Until the condition holds; fails after as many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain"
        time.sleep(every)
