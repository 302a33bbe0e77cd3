"""The folder of a study and its lock, so that one process at a time writes into it."""

import dataclasses
import os
import shutil
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from experiments.study import store
from experiments.study.codec import Objects
from experiments.study.config import StudyConfig, check_unchanged, read_config
from experiments.study.process import check_numerics, numerics

LOCK = ".lock"
_SECONDS = 0.5  # seconds for a process that releases or tests the lock
#: Leftovers of killed processes; other files in a folder are never removed.
_LEFTOVERS = (".*.partial", ".report-*", f"{store.CHECKPOINTS}/*/{store.PARTIAL}*")
_LEFTOVERS += tuple(f"{folder}/*/*/{store.PARTIAL}*" for folder in store.FOLDERS)


class Owner:
    """Lock of a folder until `release`; the system also releases it when the process ends.

    Args:
      directory: an existing folder.

    Raises:
      ValueError: another process holds it; the message names the process.
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
            # Its holder may not have written its number yet, or have removed it.
            who = self.path.read_text(errors="replace")[:200] if self.path.exists() else ""
            who = who or "another process"
            raise ValueError(f"{directory} is in use by {who}; wait for it, end it, or choose another folder") from None
        except OSError as error:
            raise store.Unwritable(f"{directory} cannot be written: {store.reason(error)}") from None
        complete(directory)  # an interrupted join

    def check(self) -> None:
        """Raise Unwritable if the folder or its lock is gone; writing could damage another process's results."""
        if not self.path.exists() or self.path.stat().st_ino != self._file:
            raise store.Unwritable(f"{self.directory} was removed, or another process took it over")

    def release(self) -> None:
        """Release the lock and remove its file; a second call is a no-op."""
        if self._lock.is_locked:
            with suppress(OSError):
                self.check()
                self.path.unlink()
            self._lock.release()

    def __enter__(self) -> "Owner":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def clean(directory: Path) -> None:
    """Remove the leftovers of killed processes from a folder whose lock is held."""
    for path in (path for pattern in _LEFTOVERS for path in directory.glob(pattern)):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def is_empty(directory: Path, besides: Collection[str] = ()) -> bool:
    """Return whether a folder holds only a lock, leftovers of killed processes and the names ``besides``."""
    left = {path for pattern in _LEFTOVERS for path in directory.glob(pattern)}
    return all(path in left or path.name in (LOCK, *besides) for path in directory.iterdir())


@contextmanager
def writing(directory: Path, option: str = "--out") -> Iterator[None]:
    """Create a new folder, or use an empty one, and lock it while results are written.

    Raises:
      ValueError: it is not empty, or another process is writing into it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with Owner(directory):
        if not is_empty(directory):
            raise ValueError(f"{option} {directory} is not an empty folder; choose another one")
        yield


class StudyFolder(NamedTuple):
    """A finished study."""

    directory: Path
    config: StudyConfig
    ended: store.Results


def open_study(directory: Path, objects: Objects = MappingProxyType({})) -> StudyFolder:
    """The finished study in ``directory``, for uses that draw its drift again.

    Args:
      objects: of `experiments.study.config.at_hand`, instead of stand-ins for its custom objects.

    Raises:
      ValueError: no study, or one that is unfinished, damaged, of another version or with other random draws.
    """
    results = store.open_results(directory)
    check_numerics(directory, results.manifest)
    return StudyFolder(directory, read_config(directory, results.config, objects), results)


class Claim(NamedTuple):
    """The locked folder of a study."""

    directory: Path
    resume: bool
    owner: Owner
    extended: StudyConfig | None = None  # if the runs are added to a finished study: the study with them


def missing(config: StudyConfig, directory: Path) -> StudyConfig | None:
    """The study of the runs that the finished study in ``directory`` lacks: seeds, patterns or methods.

    None if no run is missing, or if the folder holds no finished study, a part, or one with other options.

    Raises:
      ValueError: the added runs would not have the settings of JAX and versions of the finished ones.
    """
    if config.block or not (directory / store.MANIFEST).exists():
        return None
    finished, wanted = store.open_results(directory), config.to_json()
    stored = finished.config
    differing = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
    if len(differing) != 1 or (axis := differing[0]) not in ("seeds", "patterns", "methods"):
        return None
    pairs = zip(getattr(config, axis), wanted[axis], strict=True)
    lacking = tuple(value for value, definition in pairs if definition not in stored[axis])
    fewer = len(lacking) + len(stored[axis]) > len(wanted[axis])
    if fewer or not lacking:
        return None
    check_numerics(f"--resume: the study in {directory}", finished.manifest, numerics())
    return dataclasses.replace(config, **{axis: lacking})


def complete(directory: Path) -> None:
    """Replace the study in a locked folder by the study that was joined with added runs; without one a no-op."""
    joined = directory / store.ADDED / store.JOINED
    if (joined / store.MANIFEST).exists():
        (directory / store.MANIFEST).unlink(missing_ok=True)  # until all is replaced the study counts as unfinished
        for name in (store.CONFIG, *store.FOLDERS, store.STREAMS, store.CURVES, store.MANIFEST):
            if (joined / name).exists():
                shutil.rmtree(directory / name, ignore_errors=True)  # a file is replaced in one rename
                os.replace(joined / name, directory / name)
        for folder in (store.ADDED, store.CHECKPOINTS):
            shutil.rmtree(directory / folder, ignore_errors=True)


def claim(config: StudyConfig, directory: Path, *, resume: bool, added: StudyConfig | None = None) -> Claim:
    """Lock ``directory`` for a study, if it is free, holds this study, or a finished one to which runs are added.

    Args:
      added: the study's `missing` runs, to train only these.

    Raises:
      ValueError: it is in use, holds something else or cannot be written; nothing is changed.
    """
    (_check_begun if resume else check_free)(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {directory} cannot be written: {store.reason(error)}") from None
    owner, study, place = Owner(directory), config, directory
    try:
        check_place(config, directory, resume=resume, added=added)  # another process may have written meanwhile
        if added is not None and resume:
            study, place = added, place_of(directory, added)
            store.check_folder(directory, directory)
            place.mkdir(parents=True, exist_ok=True)
            resume = (place / store.CONFIG).exists()
        clean(place)
        if not resume:
            store.write_json(place / store.CONFIG, study.to_json())
    except BaseException:
        owner.release()
        raise
    return Claim(place, resume, owner, None if study is config else config)


def place_of(directory: Path, added: StudyConfig | None) -> Path:
    """The folder in which a study, or the runs that are ``added`` to it, is trained."""
    return directory if added is None else directory / store.ADDED / added.fingerprint()


def check_place(config: StudyConfig, directory: Path, *, resume: bool, added: StudyConfig | None = None) -> None:
    """Raise a ValueError unless a folder is free or, with ``resume``, holds this study or one that lacks ``added``."""
    if not resume:
        check_free(directory)
        return
    _check_begun(directory)
    if added is None:
        try:
            check_same(directory, store.read_json(directory / store.CONFIG), config)
        except ValueError as error:
            raise ValueError(f"--resume: {error}") from None
    elif missing(config, directory) != added:
        raise ValueError(f"--resume: another process changed the study in {directory}; run again")


def check_free(directory: Path) -> None:
    """Raise ValueError unless the folder is new, empty or holds an unstarted study, and has a name in UTF-8."""
    if any("\ud800" <= letter <= "\udfff" for letter in str(directory.absolute())):  # bytes that are not text
        raise ValueError(f"--out {str(directory)!a}: the name of a folder must be text in UTF-8; choose another one")
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--out {directory} is a file; give a folder")
    if directory.exists() and not is_empty(directory, besides=(store.CONFIG,)):
        hint = "add --resume to continue it, or " if (directory / store.CONFIG).exists() else ""
        raise ValueError(f"--out {directory} is not empty; {hint}choose another folder")


def _check_begun(directory: Path) -> None:
    """Raise for a folder without a study, or with an unfinished study in parts."""
    if (directory / store.PLAN).exists() and not (directory / store.MANIFEST).exists():
        raise ValueError(f"--resume: {directory} is a study in parts; run aesjax submit --resume --out {directory}")
    if not (directory / store.CONFIG).exists():
        raise ValueError(f"--resume: there is no study in {directory} ({store.CONFIG} is missing)")


def begun(directory: Path) -> StudyConfig:
    """The configuration of the study in ``directory``, for --resume without options.

    Raises:
      ValueError: no study, or custom objects, which only its command or script can provide.
    """
    _check_begun(directory)
    try:
        config = read_config(directory)
    except ValueError as error:
        raise ValueError(f"--resume: {error}") from None
    if config.objects:
        raise ValueError(
            f"--resume: the study uses custom objects, which are not stored: {', '.join(config.objects)}; "
            "give its complete command with --resume, or run its script again"
        )
    return config


def check_same(directory: Path, stored: Any, config: StudyConfig) -> None:
    """Raise a ValueError if the stored configuration is not ``config``."""
    ours = config.to_json()
    read_config(directory, stored)
    check_unchanged(stored, ours)
    if differing := store.differing_fields(stored, ours):
        raise ValueError(
            f"the study in {directory} has another configuration ({'; '.join(differing)}); "
            "give all of its options or none, or choose another folder"
        )
