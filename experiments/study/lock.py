"""The lock of a study's folder: one process at a time writes into it."""

import os
import shutil
import socket
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from experiments.study import store

LOCK = ".lock"
_SECONDS = 0.5  # for a process that is just releasing the lock, or looking whether it is held
#: Left behind by a killed process; every other name in a folder belongs to somebody.
_LEFTOVERS = (".*.partial", ".report-*", ".replay-*", f"{store.CHECKPOINTS}/*/{store.PARTIAL}*")
_LEFTOVERS += tuple(f"{folder}/*/*/{store.PARTIAL}*" for folder in (store.AGENTS, store.SNAPSHOTS))


class OwnedError(ValueError):
    """Another process holds the lock of the folder; the message names it."""


class LostError(store.Unwritable):
    """The folder or its lock was removed while it was held."""


class Owner:
    """Holds the lock of a folder until `release`; the system releases it when the process ends, however it ends.

    Args:
      directory: an existing folder.

    Raises:
      OwnedError: another process holds it.
      Unwritable: the lock cannot be written.
    """

    def __init__(self, directory: Path):
        self.directory, self.path = directory, directory / LOCK
        self._lock = FileLock(self.path, timeout=_SECONDS, thread_local=False)
        try:
            self._lock.acquire()
            self._file = self.path.stat().st_ino
            self.path.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        except Timeout:
            who = "another process"
            with suppress(OSError):
                who = self.path.read_text(errors="replace")[:200] or who
            raise OwnedError(f"{directory} is in use by {who}; wait for it, end it, or choose another folder") from None
        except OSError as error:
            raise store.Unwritable(f"{directory} cannot be written: {store.reason(error)}") from None

    def check(self) -> None:
        """Return if the lock is still held.

        Raises:
          LostError: the folder or its lock is gone; writing now could damage another process's results.
        """
        with suppress(OSError):
            if self.path.stat().st_ino == self._file:
                return
        raise LostError(f"{self.directory} was removed, or another process took it over")

    def release(self) -> None:
        """Release the lock and remove its file; no-op the second time."""
        if not self._lock.is_locked:
            return
        with suppress(OSError):
            self.check()
            self.path.unlink()
        self._lock.release()

    def __enter__(self) -> "Owner":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def in_use(directory: Path) -> bool:
    """Return whether a process holds the lock of ``directory``."""
    path = directory / LOCK
    if not path.exists():
        return False
    try:
        with FileLock(path, blocking=False):
            return False
    except Timeout:
        return True
    except OSError:  # a folder that may be read but not written
        return False


def clean(directory: Path) -> None:
    """Remove the leftovers of killed processes from a folder whose lock is held."""
    for pattern in _LEFTOVERS:
        for path in directory.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def is_empty(directory: Path, besides: Collection[str] = ()) -> bool:
    """Return whether a folder holds nothing but a lock and leftovers of killed processes.

    Args:
      besides: names that do not count.
    """
    left = {path for pattern in _LEFTOVERS for path in directory.glob(pattern)}
    return all(path in left or path.name in (LOCK, *besides) for path in directory.iterdir())
