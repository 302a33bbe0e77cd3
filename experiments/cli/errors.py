"""The one place where what goes wrong becomes a sentence and an exit code."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

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


class Output:
    """A standard stream that never ends a study: if it cannot be written, the rest goes into ``place``.

    Without a place, before a study has its folder, standard output that cannot be written ends the command.
    """

    place: Path | None = None  # a file in the folder of the study

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text and return its length."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._try(self._stream.flush)

    def _try(self, act: Callable[..., Any], *arguments: Any) -> None:
        try:
            act(*arguments)
        except OSError as error:
            for place in filter(None, (Output.place, Path(os.devnull))):
                with suppress(OSError):
                    file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
                    os.dup2(file, self._stream.fileno())
                    os.close(file)
                    self._stream.flush()  # the buffer still holds what could not be written
                    break
            if Output.place is None and self._stream is sys.__stdout__:
                if isinstance(error, BrokenPipeError):
                    raise
                raise Refusal(f"the output cannot be written: {error.strerror}") from None


def guard_streams() -> None:
    """Give standard output and error an `Output` that prints any text in any locale."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115 -- None where it was closed
        stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, Output(stream))


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
    except BrokenPipeError:  # nobody reads on, which is no mistake
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None and error.strerror else ""
        raise Refusal(f"{place}{error.strerror or error}") from _shown(error)
    except (ValueError, ModuleNotFoundError) as error:
        raise Refusal(str(error)) from _shown(error)


def _shown(error: Exception) -> Exception | None:
    return error if os.environ.get(TRACEBACK) == "1" else None


def guarded(command: Callable[[], int]) -> int:
    """The exit code of ``command``: its own, 2 with a sentence for a refusal, 0 for a reader that stopped early.

    Output that nobody reads to its end (`| head`) ends the command quietly.
    """
    try:
        code = command()
        sys.stdout.flush()
    except Refusal as refusal:
        if refusal.__cause__ is not None:
            traceback.print_exception(refusal.__cause__)
        text, mark, lines = str(refusal).partition(_TRACEBACK)  # of a simulator's own code, which keeps its lines
        say(_one_line(text) + mark + lines)
        return WRONG
    except BrokenPipeError:
        return DONE
    return code
