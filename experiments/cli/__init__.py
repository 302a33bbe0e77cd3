"""The command line: `aesjax run | submit | report | ...`, one module per group of commands."""

import gc
import os
import signal
import sys

from experiments.cli.errors import guard_streams
from experiments.study.process import SIGNALS

__all__ = ["entry", "main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code.

    0 done, 2 wrong arguments, 3 a run diverged, 130 interrupted.
    """
    try:
        from experiments.cli.commands import command

        return command(argv)
    except ModuleNotFoundError as error:
        if "." in str(error.name) or str(error.name) in ("aesjax", "agents", "envs", "experiments"):
            raise  # a bug
        print(f"aesjax: {error.name} is not installed: pip install '.[lab]' in a clone", file=sys.stderr, flush=True)
        return 2
    except KeyboardInterrupt:
        print("aesjax: interrupted", file=sys.stderr, flush=True)
        return 130


def entry() -> None:
    """The `aesjax` command.

    An interrupted process skips Python's shutdown, in which JAX closes its backends while a compiler may still run in
    another thread. Garbage collection is delayed, because tracing creates a million live objects and collecting them
    takes a tenth of the start-up time.
    """
    gc.set_threshold(200_000, 10, 10)
    for number in SIGNALS:  # as an exception, so that partial files are removed
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    guard_streams()
    code = main()
    if code == 130:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # the terminal may be closed
            os._exit(code)
    sys.exit(code)
