"""The folder of a finished study: what is read is checked against the SHA-256 of every file in the manifest.

Everything that reads results comes through `open_results`, so that a damaged file gets the same sentence everywhere.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.study import store

if TYPE_CHECKING:
    import polars as pl


FILES = "files"  # of the manifest: path in the folder -> SHA-256
_SINGLE = (store.CONFIG, store.CURVES, store.STREAMS)
FOLDERS = (store.AGENTS, store.SNAPSHOTS)  # with every file in them


def write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest with the SHA-256 of every result file in ``directory``."""
    files = [path for name in _SINGLE if (path := directory / name).is_file()]
    for folder in FOLDERS:
        files += sorted(path for path in (directory / folder).rglob("*") if path.is_file())
    sums = {path.relative_to(directory).as_posix(): store.sha256(path) for path in files}
    store.write_json(directory / store.MANIFEST, {**manifest, FILES: sums})


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a finished study (ValueError where it is damaged)."""
    manifest = store.read_json(directory / store.MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get(FILES), dict):
        raise ValueError(f"{directory / store.MANIFEST} is damaged: it lists no files with their checksums")
    return manifest


def check_folder(directory: Path, folder: Path) -> None:
    """Refuse, with a ValueError, result files in a folder of a study that are missing or do not match its manifest."""
    if not (directory / store.MANIFEST).exists():  # training has not ended
        return
    recorded = read_manifest(directory)[FILES]
    for name in (name for name in recorded if (directory / name).is_relative_to(folder)):
        check_bytes(directory, name, recorded)


def check_bytes(directory: Path, name: str, recorded: Mapping[str, str]) -> bytes:
    """Return the bytes of a result file (ValueError where it is missing or does not match its checksum)."""
    path = directory / name
    data = store.read_bytes(path)
    if recorded.get(name) != store.sha256_of(data):
        raise ValueError(f"{path} was changed or damaged: it does not match its checksum in {store.MANIFEST}")
    return data


Run = tuple[str, str, int]  # method, pattern, seed


class Results(NamedTuple):
    """A finished study."""

    directory: Path
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]

    def check(self, name: str) -> bytes:
        """Return the bytes of one of the result files (ValueError where it is missing, changed or damaged)."""
        return check_bytes(self.directory, name, self.manifest[FILES])

    def rows(self, name: str) -> "pl.DataFrame":
        """`store.CURVES` or `store.STREAMS` (ValueError where it is missing, changed or damaged)."""
        return store.rows_from(self.directory / name, self.check(name))

    def runs(self, status: str) -> set[Run]:
        """The runs with this status, ``finished`` or ``diverged``."""
        return {(r["method"], r["pattern"], r["seed"]) for r in self.manifest.get("runs", ()) if r["status"] == status}


def open_results(directory: Path) -> Results:
    """The finished study in ``directory`` (ValueError where there is none, it has not ended, or it is damaged)."""
    config = directory / store.CONFIG
    if not config.exists():
        raise ValueError(f"{directory} holds no study: there is no {store.CONFIG}")
    if not (directory / store.MANIFEST).exists():
        raise ValueError(f"the study in {directory} is not finished: there is no {store.MANIFEST}; --resume its run")
    results = Results(directory, {}, read_manifest(directory))
    return results._replace(config=store.json_from(config, results.check(store.CONFIG)))
