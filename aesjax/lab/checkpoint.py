"""Checkpoints of a sweep: the whole state of a wave and the rows so far, written whole or not at all.

Each checkpoint is a folder with the state (orbax), the rows (Parquet) and a list of every file's SHA-256, moved to its
final name in one rename. A reader trusts a checkpoint only if the list is there, matches, and names the same study.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

if TYPE_CHECKING:
    import polars as pl

__all__ = ["CheckpointError", "Saved", "load_newest", "save"]

SEAL = "seal.json"
KEEP = 2


class CheckpointError(ValueError):
    """There are checkpoints, but none can be used; the text says why."""


class Saved(NamedTuple):
    """What a checkpoint holds."""

    wave: int  # wave under way
    chunk: int  # chunks of that wave already in `state` and `rows`
    state: Any  # pytree of NumPy arrays with a leading run axis
    rows: "pl.DataFrame"  # all rows up to here, finished waves included
    notes: list[str]  # checkpoints that were passed over, and why


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SEAL)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _folders(directory: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    if not directory.is_dir():
        return []
    return sorted((p for p in directory.iterdir() if p.is_dir() and p.name.isdigit()), reverse=True)


def save(directory: Path, study: str, wave: int, chunk: int, state: Any, rows: "pl.DataFrame") -> None:
    """Write a checkpoint and drop all but the newest two.

    Args:
      study: fingerprint of the study's configuration; a checkpoint of another study is refused when loading.
      state: pytree of arrays; fetched to the host here.
    """
    import orbax.checkpoint as ocp

    directory.mkdir(parents=True, exist_ok=True)
    name = f"{wave:03d}{chunk:07d}"
    partial = directory / f"partial-{name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    with ocp.PyTreeCheckpointer() as writer:
        writer.save(partial.absolute() / "state", jax.tree.map(np.asarray, jax.device_get(state)))
    rows.write_parquet(partial / "rows.parquet")
    seal = {"study": study, "wave": wave, "chunk": chunk, "files": _digests(partial)}
    (partial / SEAL).write_text(json.dumps(seal))
    final = directory / name
    shutil.rmtree(final, ignore_errors=True)
    os.rename(partial, final)
    for old in _folders(directory)[KEEP:]:
        shutil.rmtree(old, ignore_errors=True)
    for leftover in directory.glob("partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _fault(folder: Path, study: str) -> str | None:
    """Why this checkpoint cannot be trusted, or None."""
    try:
        seal = json.loads((folder / SEAL).read_text())
        files, owner = seal["files"], seal["study"]
    except (OSError, ValueError, KeyError, TypeError):
        return "its list of files is missing or unreadable"
    if owner != study:
        return "it belongs to a study with another configuration"
    found = _digests(folder)
    wrong = sorted(name for name in files.keys() | found.keys() if files.get(name) != found.get(name))
    return f"file {wrong[0]} is missing, truncated or changed" if wrong else None


def load_newest(directory: Path, study: str, like: Any) -> Saved | None:
    """The newest checkpoint that can be trusted, or None where there is none at all.

    Args:
      like: pytree of shapes (`jax.eval_shape` of the stacked init); the state is restored into its structure.

    Raises:
      CheckpointError: there are checkpoints, and every one of them is damaged or foreign.
    """
    import orbax.checkpoint as ocp
    import polars as pl

    notes = []
    for folder in _folders(directory):
        fault = _fault(folder, study)
        if fault is None:
            seal = json.loads((folder / SEAL).read_text())
            arguments = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray), like)
            with ocp.PyTreeCheckpointer() as reader:
                state = reader.restore(folder.absolute() / "state", item=like, restore_args=arguments)
            return Saved(seal["wave"], seal["chunk"], state, pl.read_parquet(folder / "rows.parquet"), notes)
        notes.append(f"checkpoint {folder.name} was not used: {fault}")
    if notes:
        raise CheckpointError(f"no usable checkpoint in {directory}: " + "; ".join(notes))
    return None
