"""The one place where what goes wrong becomes a sentence and an exit code."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONGEST = 1200  # characters of a refusal
DONE, WRONG, DIVERGED, INTERRUPTED = 0, 2, 3, 130


class Refusal(Exception):
    """What was asked for is impossible; the text is one sentence for a person, and nothing was written."""


def _one_line(text: str) -> str:
    """What was typed may hold anything; what is said about it is one line of bounded length."""
    line = " ".join(text.split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def say(text: str) -> None:
    """A line on stderr, marked as ours."""
    print(f"aesjax: {text}", file=sys.stderr, flush=True)


@contextmanager
def refusing() -> Iterator[None]:
    """Errors that a person can act on become a `Refusal`; a mistake of the program keeps its traceback.

    The first kind are ValueError, OSError, a module that is not installed, and look-ups of unknown names, which are
    KeyErrors of a class of their own. A plain KeyError has no sentence to show.
    """
    try:
        yield
    except KeyError as error:
        if type(error) is KeyError:
            raise
        raise Refusal(str(error)) from None
    except BrokenPipeError:  # nobody reads on, which is no mistake
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None and error.strerror else ""
        raise Refusal(f"{place}{error.strerror or error}") from None
    except (ValueError, ModuleNotFoundError) as error:
        raise Refusal(str(error)) from None


def guarded(command: Callable[[], int]) -> int:
    """The exit code of ``command``: its own, 2 with a sentence for a refusal, 0 for a reader that stopped early.

    Output that nobody reads to its end (`| head`) ends the command quietly.
    """
    try:
        code = command()
        sys.stdout.flush()
    except Refusal as refusal:
        say(_one_line(str(refusal)))
        return WRONG
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own flush at exit
        return DONE
    return code
