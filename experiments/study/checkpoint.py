"""Checkpoints of a sweep: the whole state of a wave and the rows so far, written whole or not at all.

Each checkpoint is a folder with the state (orbax), the rows (Parquet) and a seal: the SHA-256 of every file, what the
checkpoint says of itself, and the SHA-256 of all that. It is moved to its final name in one rename. A reader trusts a
checkpoint only if everything in it agrees with the seal, with the folder's name and with the study that asks.
"""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from experiments.study import store
from experiments.study.states import read_state, without_late_writes, write_state

if TYPE_CHECKING:
    import polars as pl


_SEAL = "seal.json"
_KEEP = 2


class CheckpointError(ValueError):
    """There are checkpoints, but none can be used; the text says why."""


class Saved(NamedTuple):
    """Contents of a checkpoint."""

    wave: int  # wave under way
    chunk: int  # chunks of that wave already in `state` and `rows`
    state: Any  # pytree of NumPy arrays with a leading run axis
    rows: "pl.DataFrame"  # all rows up to here, finished waves included
    notes: list[str]  # checkpoints that were passed over, and why
    devices: int | None = None  # that it was trained on; None: not recorded


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _SEAL)
    return {str(path.relative_to(folder)): store.sha256(path) for path in files}


def _digest(seal: dict[str, Any]) -> str:
    """The SHA-256 of everything else that a seal says."""
    rest = {name: value for name, value in seal.items() if name != "digest"}
    return store.sha256_of(json.dumps(rest, sort_keys=True).encode())


def _name(wave: int, chunk: int) -> str:
    return f"{wave:03d}{chunk:07d}"


def _folders(directory: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    if not directory.is_dir():
        return []
    return sorted((p for p in directory.iterdir() if p.is_dir() and p.name.isdigit()), reverse=True)


def save(
    directory: Path,
    study: str,
    wave: int,
    chunk: int,
    state: Any,
    rows: "pl.DataFrame",
    runs: int | None = None,
    devices: int | None = None,
) -> None:
    """Write a checkpoint and drop all but the newest two.

    Args:
      study: fingerprint of the study's configuration.
      state: pytree of arrays with a leading run axis; fetched to the host here.
      runs: number of runs of the state that are stored; None: all.
      devices: that they train on, whose number changes last bits.

    Raises:
      Unwritable: it cannot be written; those before it are unchanged and nothing of it is left.
    """
    name = _name(wave, chunk)
    partial = directory / f"{store.PARTIAL}{name}"
    host = jax.tree.map(np.asarray, jax.device_get(state))
    if runs is not None:
        host = jax.tree.map(lambda leaf: leaf[:runs], host)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        write_state(partial.absolute() / "state", host)
        store.write_rows(partial / "rows.parquet", rows)
        seal = {"study": study, "wave": wave, "chunk": chunk, "rows": rows.height, "files": _digests(partial)}
        seal |= {} if devices is None else {"devices": devices}
        store.write_text(partial / _SEAL, json.dumps({**seal, "digest": _digest(seal)}))
        for path in (*partial.rglob("*"), partial):
            store.sync(path)
        final = directory / name
        shutil.rmtree(final, ignore_errors=True)
        os.rename(partial, final)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        words = str(error) if isinstance(error, store.Unwritable) else store.reason(error)
        raise store.Unwritable(f"checkpoint {directory / name} cannot be written: {words}") from None
    except BaseException:
        without_late_writes(partial)
        raise
    for old in _folders(directory)[_KEEP:]:
        shutil.rmtree(old, ignore_errors=True)
    for leftover in directory.glob(f"{store.PARTIAL}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _sealed(folder: Path, study: str) -> dict[str, Any] | str:
    """The seal of a checkpoint that can be trusted; of another one the reason why it cannot."""
    try:
        seal = json.loads((folder / _SEAL).read_bytes())
        files, owner, digest = seal["files"], seal["study"], seal["digest"]
        wave, chunk, height = seal["wave"], seal["chunk"], seal["rows"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "its seal is missing or unreadable"
    if digest != _digest(seal) or not isinstance(files, dict) or not all(type(n) is int for n in (wave, chunk, height)):
        return "its seal was changed or damaged"
    if folder.name != _name(wave, chunk):
        return f"its seal is that of checkpoint {_name(wave, chunk)}"
    if owner != study:
        return "it belongs to a study with another configuration"
    try:
        found = _digests(folder)
    except OSError as error:
        return f"it cannot be read: {store.reason(error)}"
    wrong = sorted(name for name in files.keys() | found.keys() if files.get(name) != found.get(name))
    return f"file {wrong[0]} is missing, truncated or changed" if wrong else seal


def check(directory: Path, study: str) -> list[str]:
    """One phrase for every checkpoint in ``directory`` that cannot be trusted (CheckpointError where none can)."""
    folders = _folders(directory)
    notes = [(folder, _sealed(folder, study)) for folder in folders]
    faults = [_passed_over(folder, note) for folder, note in notes if isinstance(note, str)]
    if len(faults) == len(folders):
        _refuse(directory, faults)
    return faults


def _refuse(directory: Path, faults: list[str]) -> None:
    """Where there were checkpoints and none of them was good."""
    if faults:
        raise CheckpointError(f"no usable checkpoint in {directory}: " + "; ".join(faults))


def _passed_over(folder: Path, fault: str) -> str:
    return f"checkpoint {folder.name} was not used: {fault}"


def load_newest(directory: Path, study: str, like: Any) -> Saved | None:
    """The newest checkpoint that can be trusted, or None where there is none at all.

    Args:
      like: pytree of shapes (`jax.eval_shape` of the stacked init); the state is restored into its structure.

    Raises:
      CheckpointError: there are checkpoints, and every one of them is damaged or foreign.
    """

    def saved(folder: Path, seal: dict[str, Any], rows: "pl.DataFrame", notes: list[str]) -> Saved:
        state = read_state(folder.absolute() / "state", like)
        return Saved(seal["wave"], seal["chunk"], state, rows, notes, seal.get("devices"))

    return _newest(directory, study, saved)


def newest_rows(directory: Path, study: str) -> "pl.DataFrame | None":
    """The rows of the checkpoint that `load_newest` would return."""
    return _newest(directory, study, lambda folder, seal, rows, notes: rows)


def _newest(directory: Path, study: str, read: Callable[[Path, dict[str, Any], "pl.DataFrame", list[str]], Any]) -> Any:
    """The newest checkpoint that can be trusted and read: ``read`` of its folder, its seal, its rows and the notes."""
    notes: list[str] = []
    for folder in _folders(directory):
        seal = _sealed(folder, study)
        if isinstance(seal, dict):
            try:
                rows = store.read_rows(folder / "rows.parquet")
                if rows.height != seal["rows"]:
                    raise ValueError(f"it holds {rows.height} rows, its seal tells of {seal['rows']}")
                return read(folder, seal, rows, notes)
            except (ValueError, TypeError, KeyError, OSError) as error:  # whole, but not what this version reads
                seal = f"it cannot be restored: {store.reason(error)}"
        notes.append(_passed_over(folder, seal))
    _refuse(directory, notes)
    return None


def newest_height(directory: Path) -> int:
    """How many rows the newest checkpoint tells of, whether or not it can be trusted; 0 where there is none."""
    for folder in _folders(directory):
        with suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads((folder / _SEAL).read_bytes())["rows"])
    return 0


def adopt(source: Path, target: Path, study: str, wave: int, into: str) -> None:
    """Link or copy the newest checkpoint of a ``study`` into another folder, as wave ``wave`` of the study ``into``.

    Raises:
      CheckpointError: there is none, or it is damaged or of another study.
      Unwritable: it cannot be written.
    """
    folder = next(iter(_folders(source)), None)
    seal = "there is none" if folder is None else _sealed(folder, study)
    if folder is None or isinstance(seal, str):
        raise CheckpointError(f"no usable checkpoint in {source}: {seal}")
    name = _name(wave, seal["chunk"])
    partial = target / f"{store.PARTIAL}{name}"
    try:
        shutil.copytree(folder, partial, copy_function=_link, ignore=lambda _, names: {_SEAL} & set(names))
        content = {key: value for key, value in seal.items() if key != "digest"} | {"study": into, "wave": wave}
        store.write_text(partial / _SEAL, json.dumps({**content, "digest": _digest(content)}))
        os.rename(partial, target / name)
    except (OSError, shutil.Error) as error:
        raise store.Unwritable(f"{target / name} cannot be written: {store.reason(error)}") from None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
