"""The command line: `aesjax run | submit | report | replay | ...`, a module each; `aesjax --help` names them all.

Signals are watched before anything that takes time is imported.
"""

import gc
import os
import shlex
import sys
from contextlib import suppress

from experiments.cli.interrupts import INTERRUPTED, Asked, watching

__all__ = ["entry", "main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code.

    0 done, 2 wrong arguments, 3 a run diverged, 130 interrupted.
    """
    words = sys.argv[1:] if argv is None else argv
    with watching(told=f"nothing was written. Start again with:\n  {shlex.join(['aesjax', *words])}") as watch:
        try:
            if "--distributed" in words:  # JAX's service warns of what is meant here, and reads this when imported
                os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
            from experiments.cli.commands import command

            code = command(argv)
            watch.check()
            return code
        except KeyboardInterrupt as error:
            if not isinstance(error, Asked) and not watch.asked:
                raise  # nobody's signal: a library's or a debugger's
            watch.caught()
        except Exception:
            if not watch.asked:  # what a signal raised may come out of a library in other clothes
                raise
            watch.caught()
        print(f"aesjax: interrupted; {watch.told}", file=sys.stderr, flush=True)
        return INTERRUPTED


def entry() -> None:
    """The `aesjax` command.

    What was interrupted has cleaned up by now and ends without Python's own end, in which JAX takes its backends down
    under the feet of a compiler that may still run in another thread.

    Tracing makes a million objects that are all in use: looking for garbage among them takes a tenth of a start.
    """
    gc.set_threshold(200_000, 10, 10)
    code = main()
    if code == INTERRUPTED:
        with suppress(OSError):  # the terminal may have hung up
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
