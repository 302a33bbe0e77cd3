"""The folder of a study: claimed before training, opened afterwards by everything that reads what it holds."""

import errno
import os
from pathlib import Path
from typing import Any, NamedTuple

from experiments.study import lock, store
from experiments.study.codec import check_unchanged
from experiments.study.config import StudyConfig, config_from_json
from experiments.study.lock import Owner
from experiments.study.results import Results, open_results


class Claim(NamedTuple):
    """A configuration and the folder that is its own, until its owner lets go."""

    config: StudyConfig
    directory: Path
    resume: bool
    owner: Owner


class StudyFolder(NamedTuple):
    """A study that has been trained, wholly or in part."""

    directory: Path
    config: StudyConfig
    results: Results | None  # None: training has not ended

    @property
    def ended(self) -> Results:
        """The results of a study whose training has ended."""
        if self.results is None:
            raise ValueError(f"the study in {self.directory} has not ended: there is no {store.MANIFEST}")
        return self.results


def open_study(directory: Path, *, ended: bool = False) -> StudyFolder:
    """The study in ``directory``: the one way to open what training left.

    Raises:
      ValueError: there is none, it is damaged, of another version, or, where required, has not ``ended``.
    """
    path, manifest = directory / store.CONFIG, directory / store.MANIFEST
    if not path.exists():
        raise ValueError(f"{directory} holds no study: there is no {store.CONFIG}")
    results = open_results(directory) if ended or manifest.exists() else None
    data = store.read_json(path) if results is None else results.config
    return StudyFolder(directory, _config(path, data), results)


def _config(path: Path, data: Any) -> StudyConfig:
    try:
        return config_from_json(data)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from None


def claim(config: StudyConfig, directory: Path, *, resume: bool) -> Claim:
    """Claim ``directory`` for a study, or recognise it as this study's own.

    Raises:
      ValueError: it is in use, holds something else or cannot be written; nothing in it is changed.
    """
    _check_kind(directory)
    (_check_begun if resume else _check_free)(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {directory} cannot be written: {store.reason(error)}") from None
    owner = Owner(directory)
    try:
        if resume:
            _check_own(config, directory)
        else:
            _check_free(directory)  # another process may have been here meanwhile
        lock.clean(directory)
        if not resume:
            store.write_json(directory / store.CONFIG, config.to_json())
    except BaseException:
        owner.release()
        raise
    return Claim(config, directory, resume, owner)


def _check_kind(directory: Path) -> None:
    """Refuse what is no folder."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--out {directory} is a file; give a folder")
    if directory.is_symlink() and not directory.exists():
        raise ValueError(f"--out {directory} is a link to {directory.readlink()}, which does not exist")


def check_place(directory: Path) -> None:
    """Refuse a place in which a study cannot begin, as far as looking shows."""
    _check_kind(directory)
    _check_free(directory)
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        why = os.strerror(errno.EACCES if there.is_dir() else errno.ENOTDIR)
        raise ValueError(f"--out {directory} cannot be written: {why}")


def _check_free(directory: Path) -> None:
    """Raise ValueError unless the folder is empty or holds an unstarted study."""
    path = directory / store.CONFIG
    if not directory.is_dir() or lock.is_empty(directory, besides=(store.CONFIG,)):
        return
    hint = "add --resume to continue it, or " if path.exists() else ""
    raise ValueError(f"--out {directory} is not empty; {hint}choose another folder")


def begun(directory: Path) -> StudyConfig:
    """The configuration of the study that began in ``directory``, for --resume without options.

    Raises:
      ValueError: there is none, or it uses objects from outside, which its command or script has to bring.
    """
    _check_begun(directory)
    path = directory / store.CONFIG
    try:
        config = _config(path, store.read_json(path))
    except ValueError as error:
        raise ValueError(f"--resume: {error}") from None
    if config.objects:
        raise ValueError(
            f"--resume: the study uses {', '.join(config.objects)} from outside, and reading a study imports nothing: "
            "type its complete command with --resume, or run its script again"
        )
    return config


def check_same(directory: Path, stored: Any, config: StudyConfig) -> None:
    """Refuse, with a ValueError, a stored configuration that is not ``config``."""
    ours, path = config.to_json(), directory / store.CONFIG
    _config(path, stored)
    check_unchanged(stored, ours)
    if differing := store.differing_fields(stored, ours):
        raise ValueError(
            f"the study in {directory} has another configuration ({'; '.join(differing)}); "
            "give all of its options or none, or choose another folder"
        )


def _check_begun(directory: Path) -> None:
    """Refuse a folder in which no study began, or which is made of parts."""
    if (directory / store.PLAN).exists():
        raise ValueError(f"--resume: {directory} is made of parts; go on with aesjax submit --resume --out {directory}")
    if not (directory / store.CONFIG).exists():
        raise ValueError(f"--resume: there is no study in {directory} ({store.CONFIG} is missing)")


def _check_own(config: StudyConfig, directory: Path) -> None:
    """Refuse a folder that does not hold this very study."""
    try:
        check_same(directory, store.read_json(directory / store.CONFIG), config)
    except ValueError as error:
        raise ValueError(f"--resume: {error}") from None
