"""One owner per folder: who trains a study, or writes its report, holds its lock as long as that takes.

The lock is the file `.lock` in the folder with the owner's host and process, held by `flock`, which the kernel lets go
when the process ends, however it ends: what `kill -9` leaves behind holds nobody up. A shared file system may keep
`flock` to one host (Lustre without `-o flock`, old NFS). So an owner also touches the file every `BEAT` seconds, and
the lock of another host counts as long as it was touched within `STALE` seconds, both on the clock of the file system,
so that the clocks of the hosts do not matter. A host that lost power is taken for gone after that, or at once with
``break_stale``.
"""

import errno
import fcntl
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from experiments.study import checkpoint, seals, store

LOCK = ".lock"
BEAT, STALE = 5.0, 60.0
_NOT_SUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
#: What a killed process leaves behind; everything else in a folder is somebody's.
LEFTOVERS = (".*.partial", ".report-*", ".replay-*", f"{store.CHECKPOINTS}/*/{checkpoint.PARTIAL}*")
LEFTOVERS += tuple(f"{folder}/*/*/{checkpoint.PARTIAL}*" for folder in seals.FOLDERS)


class OwnedError(ValueError):
    """Another process owns the folder; the text says which, and what can be done."""


class LostError(Exception):
    """The folder or its lock is gone, or another process took it over, while it was owned; the text says so."""


def _here() -> dict[str, Any]:
    """This host and process, as other processes can tell them apart."""
    place = ""
    for name in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):  # containers share a host's name
        with suppress(OSError):
            place += os.readlink(name) if name.endswith("pid") else Path(name).read_text().strip()
    return {"host": socket.gethostname(), "place": place, "pid": os.getpid()}


class Owner:
    """Owns a folder from the moment it is made until `release`.

    Args:
      directory: an existing folder.
      break_stale: take over from another host at once, whose owner is known to be gone.

    Raises:
      OwnedError: somebody else owns it.
      Unwritable: the lock cannot be written.
    """

    def __init__(self, directory: Path, *, break_stale: bool = False):
        self.directory, self.path = directory, directory / LOCK
        self._lost = ""
        self._ended = threading.Event()
        try:
            self._file = self._acquire(break_stale)
        except OwnedError:
            raise
        except OSError as error:
            raise store.Unwritable(f"{directory} cannot be written: {store.reason(error)}") from None
        self._thread = threading.Thread(target=self._beat, name="lock", daemon=True)
        self._thread.start()

    def _acquire(self, break_stale: bool) -> int:
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._take(file)
                if not _same(file, self.path):  # its owner removed it between our opening and locking it
                    continue
                told = _read(file)
                if not break_stale and self._alive(told):
                    raise OwnedError(_sentence(self.directory, told, foreign=True))
                os.ftruncate(file, 0)
                os.pwrite(file, json.dumps(_here()).encode(), 0)
                held, file = file, -1
                return held
            finally:
                if file >= 0:
                    os.close(file)

    def _take(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OwnedError(_sentence(self.directory, _read(file), foreign=False)) from None
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            told, here = _read(file), _here()  # then a process of this host is asked whether it lives
            if told.get("place") == here["place"] and told.get("pid") != here["pid"] and _lives(told.get("pid")):
                raise OwnedError(_sentence(self.directory, told, foreign=False)) from None

    def _alive(self, told: dict[str, Any]) -> bool:
        """Whether the lock's last words are of an owner elsewhere that may still be there."""
        place = told.get("place")
        if not isinstance(place, str) or place == _here()["place"]:  # of this host nobody holds it, or we could not
            return False
        probe = self.directory / f".{LOCK}.{os.getpid()}.partial"
        try:
            probe.touch()
            return probe.stat().st_mtime - self.path.stat().st_mtime < STALE
        finally:
            probe.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            try:
                if not _same(self._file, self.path) or _read(self._file).get("pid") != os.getpid():
                    self._lost = f"{self.directory} was removed, or another process took it over"
                    return
                os.utime(self.path)
            except OSError:
                self._lost = f"{self.directory} is not there any more"
                return

    def check(self) -> None:
        """Nothing, as long as the folder is ours.

        Raises:
          LostError: it is not any more; whatever would be written now would damage somebody's results.
        """
        if self._lost:
            raise LostError(self._lost)

    def release(self) -> None:
        """Let go; the second time nothing happens."""
        if self._ended.is_set():
            return
        self._ended.set()
        with suppress(OSError):
            if _same(self._file, self.path):
                self.path.unlink()
        with suppress(OSError):
            os.close(self._file)

    def __enter__(self) -> "Owner":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Bystander:
    """Stands for an `Owner` in the processes of a program over several hosts that own nothing: the first one does."""

    def check(self) -> None:
        """The first process looks."""

    def release(self) -> None:
        """There is nothing to let go."""

    def __enter__(self) -> "Bystander":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def in_use(directory: Path) -> bool:
    """Whether a folder looks owned, to somebody who does not want it: `Owner` alone knows.

    Of an owner elsewhere the time of its last sign of life is held against our clock.
    """
    path = directory / LOCK
    try:
        told, age = json.loads(path.read_bytes()), time.time() - path.stat().st_mtime
    except (OSError, ValueError):
        return False
    if not isinstance(told, dict):
        return False
    return _lives(told.get("pid")) if told.get("place") == _here()["place"] else age < STALE


def _same(file: int, path: Path) -> bool:
    """Whether the open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _read(file: int) -> dict[str, Any]:
    """What the lock tells; nothing where an owner is just writing it."""
    try:
        told = json.loads(os.pread(file, 4096, 0))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _lives(pid: Any) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _sentence(directory: Path, told: dict[str, Any], foreign: bool) -> str:
    who = f"process {told['pid']} on {told.get('host')}" if "pid" in told else "another process"
    text = f"{directory} is in use by {who}; wait for it, end it, or choose another folder"
    if foreign:
        text += f" (it is taken for gone {STALE:g} s after its last sign of life; --break-lock if you know that it is)"
    return text


def clean(directory: Path) -> None:
    """Remove what killed processes left in a folder that is owned."""
    for pattern in LEFTOVERS:
        for path in directory.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def is_empty(directory: Path, besides: Collection[str] = ()) -> bool:
    """Whether a folder holds nothing but a lock and what killed processes left.

    Args:
      besides: names that do not count.
    """
    left = {path for pattern in LEFTOVERS for path in directory.glob(pattern)}
    return all(path in left or path.name in (LOCK, *besides) for path in directory.iterdir())
