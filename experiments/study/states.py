"""The state of a sweep on disk, by orbax, and what is left to do where its writes fail."""

import gc
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.study import store

_CODE = r"os_error_code='(\d+)'"  # in what tensorstore says at great length
QUIET = 0.02  # seconds between looks for late writes
LOOKS, ENOUGH = 25, 500  # looks in a row without any, after which there are none; and looks after all


def write_state(path: Path, state: Any) -> None:
    """Write a pytree of arrays into the new folder ``path``, whose parent is removed where that fails (OSError).

    Long and late messages of failed writes become one sentence.
    """
    loggers = [logging.getLogger("absl"), logging.getLogger("asyncio")]
    levels, heard = [each.level for each in loggers], sys.unraisablehook
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    sys.unraisablehook = _hushed_futures(heard)
    try:
        refused = _refused(path, state)
        if refused is None:
            sys.unraisablehook = heard
        else:
            without_late_writes(path.parent)
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
    if refused is not None:
        raise refused


def _refused(path: Path, state: Any) -> OSError | None:
    """Why it could not be written, without the traceback that would keep the unfinished writes alive.

    Orbax's errors of a full disk are of many classes.
    """
    import orbax.checkpoint as ocp

    try:
        with ocp.PyTreeCheckpointer() as writer:
            # Orbax refuses arrays of size zero; of those the leading axis is written.
            writer.save(path, jax.tree.map(lambda x: x if np.size(x) else np.zeros(x.shape[:1], x.dtype), state))
    except OSError as error:
        return OSError(*error.args)
    except (ValueError, RuntimeError) as error:
        code = re.search(_CODE, str(error))
        if code is not None:
            return OSError(int(code[1]), os.strerror(int(code[1])))
        return OSError(f"{type(error).__name__}: {store.reason(error)}")
    return None


def _hushed_futures(heard: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A hook that drops what the writes of a save that failed still tell to its event loop, which ended with it.

    There is no end to wait for, so the hook stays after such a save.
    """
    if getattr(heard, "__name__", "") == "without_late_futures":
        return heard

    def without_late_futures(dropped: Any) -> None:
        if not isinstance(dropped.exc_value, RuntimeError) or str(dropped.exc_value) != "Event loop is closed":
            heard(dropped)

    return without_late_futures


def without_late_writes(partial: Path) -> None:
    """Remove a folder in which a write has failed.

    Orbax ends with the first of its writes that fails; others are under way in threads that nobody can wait for, and
    make the folder again. So it is removed until it stays away.
    """
    quiet = 0
    for _ in range(ENOUGH):
        quiet = 0 if os.path.lexists(partial) else quiet + 1
        if quiet == LOOKS:
            break
        shutil.rmtree(partial, ignore_errors=True)
        time.sleep(QUIET)
    gc.collect()  # their messages appear now, not when Python ends


def read_state(path: Path, like: Any) -> Any:
    """The state of ``path`` as NumPy arrays, in the structure of ``like``, a pytree of shapes."""
    import orbax.checkpoint as ocp

    arguments = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray), like)
    with ocp.PyTreeCheckpointer() as reader:
        state = reader.restore(path, item=like, restore_args=arguments)
    return jax.tree.map(lambda x, y: x if np.size(y) else np.zeros(x.shape + y.shape[1:], x.dtype), state, like)
