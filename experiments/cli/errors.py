"""The one place where what goes wrong becomes a sentence and an exit code."""

import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONGEST = 1200  # characters of a refusal
TRACEBACK = "AESJAX_TRACEBACK"  # variable of the environment; 1: show the traceback behind a sentence
_TRACEBACK = "\nTraceback (most recent call last):"
DONE, WRONG, DIVERGED, INTERRUPTED = 0, 2, 3, 130


class Refusal(Exception):
    """The request is impossible; the text is one sentence, and nothing was written."""


def _one_line(text: str) -> str:
    """A message about typed text as one line of bounded length."""
    line = " ".join(text.split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def say(text: str) -> None:
    """A line on stderr, marked as ours."""
    print(f"aesjax: {text}", file=sys.stderr, flush=True)


def guard_streams() -> None:
    """Let standard output and error print any text in any locale, and into nothing where they are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115 -- None where it was closed
        stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, stream)


@contextmanager
def refusing() -> Iterator[None]:
    """Errors that a person can act on become a `Refusal`; a mistake of the program keeps its traceback.

    With `AESJAX_TRACEBACK=1` in the environment a refusal also shows the traceback of its error.

    The first kind are ValueError, OSError, a module that is not installed, and look-ups of unknown names, which are
    KeyErrors of a class of their own. A plain KeyError has no sentence to show.
    """
    try:
        yield
    except KeyError as error:
        if type(error) is KeyError:
            raise
        raise Refusal(str(error)) from _shown(error)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        if isinstance(error, BrokenPipeError):  # nobody reads on, which is no mistake
            raise
        text = getattr(error, "strerror", None) or str(error)
        if isinstance(error, OSError) and error.strerror and error.filename:
            text = f"{error.filename}: {text}"
        elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
            text = f"the output cannot be written: {text}"
        raise Refusal(text) from _shown(error)


def _shown(error: Exception) -> Exception | None:
    return error if os.environ.get(TRACEBACK) == "1" else None


def guarded(command: Callable[[], int]) -> int:
    """The exit code of ``command``: its own, 2 with a sentence for a refusal, 0 for a reader that stopped early.

    Output that nobody reads to its end (`| head`) ends the command quietly.
    """
    try:
        code = command()
        sys.stdout.flush()
        return code
    except Refusal as refusal:
        if refusal.__cause__ is not None:
            traceback.print_exception(refusal.__cause__)
        text, mark, lines = str(refusal).partition(_TRACEBACK)  # of a simulator's own code, which keeps its lines
        say(_one_line(text) + mark + lines)
        return WRONG
    except OSError as error:  # of standard output, which Python would write once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return DONE
        say(f"the output cannot be written: {error.strerror or error}")
        return WRONG
