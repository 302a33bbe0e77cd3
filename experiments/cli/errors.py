"""Conversion of errors to one sentence and an exit code."""

import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONGEST = 1200  # longest message, characters
TRACEBACK = "AESJAX_TRACEBACK"  # environment variable; 1: also show the traceback
_TRACEBACK = "\nTraceback (most recent call last):"
DONE, WRONG, DIVERGED, INTERRUPTED = 0, 2, 3, 130


class Refusal(Exception):
    """An invalid request; the text is one sentence, and nothing was written."""


def _one_line(text: str) -> str:
    """A message as one line of bounded length."""
    line = " ".join(text.split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def say(text: str) -> None:
    """Print a line on stderr with the prefix `aesjax:`."""
    print(f"aesjax: {text}", file=sys.stderr, flush=True)


def guard_streams() -> None:
    """Make standard output and error print any text in any locale, and discard it if they are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115 -- None if it was closed
        stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, stream)


@contextmanager
def refusing() -> Iterator[None]:
    """Turn errors that a user can act on into a `Refusal`; bugs keep their traceback.

    With `AESJAX_TRACEBACK=1` in the environment a refusal also shows the traceback of its error.

    User errors are ValueError, OSError, missing modules and `UnknownNameError`. Other KeyErrors are bugs.
    """
    try:
        yield
    except KeyError as error:
        if type(error) is KeyError:
            raise
        raise Refusal(str(error)) from _shown(error)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe, which is not an error
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
    """Exit code of ``command``: its own, 2 with a message for a refusal, 0 if the reader of its output stopped early.

    A closed output pipe (`| head`) ends the command silently.
    """
    try:
        code = command()
        sys.stdout.flush()
        return code
    except Refusal as refusal:
        if refusal.__cause__ is not None:
            traceback.print_exception(refusal.__cause__)
        text, mark, lines = str(refusal).partition(_TRACEBACK)  # of simulator code, whose messages have several lines
        say(_one_line(text) + mark + lines)
        return WRONG
    except OSError as error:  # of standard output, which Python would flush again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return DONE
        say(f"the output cannot be written: {error.strerror or error}")
        return WRONG
