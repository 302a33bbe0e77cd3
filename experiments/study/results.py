"""The one door to the folder of a finished study: what is read is checked against the checksums of the manifest.

Everything that reads results comes through `open_results`, so that a damaged file gets the same sentence everywhere.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.study import checksums, store

if TYPE_CHECKING:
    import polars as pl


Run = tuple[str, str, int]  # method, pattern, seed


class Results(NamedTuple):
    """A finished study."""

    directory: Path
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]

    def check(self, name: str) -> bytes:
        """Return the bytes of one of the result files (ValueError where it is missing, changed or damaged)."""
        return checksums.check_bytes(self.directory, name, self.manifest[checksums.FILES])

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
    results = Results(directory, {}, checksums.read_manifest(directory))
    return results._replace(config=store.json_from(config, results.check(store.CONFIG)))
