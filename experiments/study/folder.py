"""The folder of a study: claimed before training, opened afterwards by everything that reads what it holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aesjax.lab import store
from experiments.study.build import check
from experiments.study.config import StudyConfig, config_from_json

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Claim", "StudyFolder", "claim", "open_study"]

Run = tuple[str, str, int]  # method, pattern, seed


class Claim(NamedTuple):
    """A checked configuration and the folder that is its own."""

    config: StudyConfig
    directory: Path
    resume: bool


class StudyFolder(NamedTuple):
    """A study that has been trained, wholly or in part."""

    directory: Path
    config: StudyConfig
    manifest: Mapping[str, Any] | None  # None: training has not ended

    @property
    def ended(self) -> Mapping[str, Any]:
        """The manifest of a study whose training has ended."""
        if self.manifest is None:
            raise ValueError(f"the study in {self.directory} has not ended: there is no {store.MANIFEST}")
        return self.manifest

    def runs(self, status: str) -> set[Run]:
        """The runs of an ended study with this status, ``finished`` or ``diverged``."""
        entries = () if self.manifest is None else self.manifest["runs"]
        return {(r["method"], r["pattern"], r["seed"]) for r in entries if r["status"] == status}

    def rows(self, name: str) -> "pl.DataFrame":
        """One of the study's Parquet files.

        Raises:
          ValueError: it is missing or damaged.
        """
        return store.read_rows(self.directory / name)


def open_study(directory: Path, *, ended: bool = False) -> StudyFolder:
    """The study in ``directory``: the one way to open what training left.

    Args:
      ended: only a study whose training has ended will do.

    Raises:
      ValueError: there is none, it is damaged, of another version, or has not ended; one sentence that names it.
    """
    path, manifest = directory / store.CONFIG, directory / store.MANIFEST
    if not path.exists():
        raise ValueError(f"{directory} holds no study: there is no {store.CONFIG}")
    if ended and not manifest.exists():
        raise ValueError(f"the study in {directory} is not finished: there is no {store.MANIFEST}; --resume its run")
    config = _config(path)
    if not manifest.exists():
        return StudyFolder(directory, config, None)
    study = StudyFolder(directory, config, store.read_json(manifest))
    try:
        study.runs("finished")
    except (TypeError, KeyError) as error:
        raise ValueError(f"{manifest} is damaged: {error!r}") from None
    return study


def _config(path: Path) -> StudyConfig:
    data = store.read_json(path)
    try:
        return config_from_json(data)
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from None


def claim(config: StudyConfig, directory: Path, *, resume: bool) -> Claim:
    """Claim ``directory`` for a study, or recognise it as this study's own.

    Raises:
      ValueError: the folder holds something else, another configuration, or cannot be written.
    """
    check(config)
    path = directory / store.CONFIG
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--out {directory} is a file; give a folder")
    occupied = directory.is_dir() and any(directory.iterdir())
    if occupied and not resume:
        hint = "add --resume to continue it, or " if path.exists() else ""
        raise ValueError(f"--out {directory} is not empty; {hint}choose another folder")
    if resume:
        if not path.exists():
            raise ValueError(f"--resume: there is no study in {directory} ({store.CONFIG} is missing)")
        try:
            known = _config(path)
        except ValueError as error:
            raise ValueError(f"--resume: {error}") from None
        differing = store.differing_fields(known.to_json(), config.to_json())
        if differing:
            raise ValueError(
                f"--resume: the study in {directory} has another configuration ({'; '.join(differing)}); "
                "repeat its options or choose another folder"
            )
        return Claim(config, directory, resume=True)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        store.write_json(path, config.to_json())
    except OSError as error:
        raise ValueError(f"--out {directory} cannot be written: {error.strerror or error}") from None
    return Claim(config, directory, resume=False)
