"""Checkpoints of a sweep: the complete state of a batch of runs and the rows so far, written whole or not at all.

Each checkpoint is a folder with the state (orbax), the rows (Parquet) and `about.json`: its study, how far it came, and
the SHA-256 of the other files. It gets its final name in one rename. A damaged one is skipped for the one before.
"""

import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from experiments.study import store

if TYPE_CHECKING:
    import polars as pl


_ABOUT = "about.json"
_KEEP = 2


class CheckpointError(ValueError):
    """There are checkpoints, but none can be used; the text says why."""


class Saved(NamedTuple):
    """Contents of a checkpoint."""

    batch: int  # of runs, under way
    number: int  # evaluations of that batch already in `state` and `rows`, besides the first
    state: Any  # pytree of NumPy arrays with a leading run axis
    rows: "pl.DataFrame"  # all rows up to here, finished batches included
    notes: list[str]  # checkpoints that were passed over, and why
    devices: int | None = None  # that it was trained on; None: not recorded


def _name(batch: int, number: int) -> str:
    return f"{batch:03d}{number:07d}"


def _folders(directory: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    if not directory.is_dir():
        return []
    return sorted((p for p in directory.iterdir() if p.is_dir() and p.name.isdigit()), reverse=True)


def save(
    directory: Path,
    study: str,
    batch: int,
    number: int,
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
    name = _name(batch, number)
    partial = directory / f"{store.PARTIAL}{name}"
    host = jax.tree.map(np.asarray, jax.device_get(state))
    if runs is not None:
        host = jax.tree.map(lambda leaf: leaf[:runs], host)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        _write_state(partial.absolute() / "state", host)
        store.write_rows(partial / "rows.parquet", rows)
        about = {"study": study, "batch": batch, "number": number, "rows": rows.height}
        about |= {"sha256": store.digest(_files(partial))} | ({} if devices is None else {"devices": devices})
        store.write_json(partial / _ABOUT, about)
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
        shutil.rmtree(partial, ignore_errors=True)
        raise
    for old in _folders(directory)[_KEEP:]:
        shutil.rmtree(old, ignore_errors=True)
    for leftover in directory.glob(f"{store.PARTIAL}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _write_state(path: Path, state: Any) -> None:
    """Write a pytree of arrays into the new folder ``path`` by orbax (OSError where that fails)."""
    import orbax.checkpoint as ocp

    try:
        with ocp.PyTreeCheckpointer() as writer:
            # Orbax refuses arrays of size zero; of those the leading axis is written.
            writer.save(path, jax.tree.map(lambda x: x if np.size(x) else np.zeros(x.shape[:1], x.dtype), state))
    except (ValueError, RuntimeError) as error:  # of tensorstore, at great length
        code = re.search(r"os_error_code='(\d+)'", str(error))
        raise OSError(os.strerror(int(code[1])) if code else store.reason(error)) from None


def _read_state(path: Path, like: Any) -> Any:
    """The state of ``path`` as NumPy arrays, in the structure of ``like``, a pytree of shapes."""
    import orbax.checkpoint as ocp

    arguments = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray), like)
    with ocp.PyTreeCheckpointer() as reader:
        state = reader.restore(path, item=like, restore_args=arguments)
    return jax.tree.map(lambda x, y: x if np.size(y) else np.zeros(x.shape + y.shape[1:], x.dtype), state, like)


def _about(folder: Path, study: str) -> dict[str, Any]:
    """Contents of a checkpoint's own file; ValueError where it is damaged or belongs to another study."""
    about = store.read_json(folder / _ABOUT)
    if about["study"] != study:
        raise ValueError("it belongs to a study with another configuration")
    # Orbax would restore some changed bytes without an error, and print a traceback for a missing one.
    if about["sha256"] != store.digest(_files(folder)):
        raise ValueError("one of its files is missing, truncated or changed")
    return about


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _ABOUT)


def load_newest(directory: Path, study: str, like: Any) -> Saved | None:
    """The newest checkpoint that can be read, or None where there is none at all.

    Args:
      like: pytree of shapes (`jax.eval_shape` of the stacked init); the state is restored into its structure.

    Raises:
      CheckpointError: there are checkpoints, and every one of them is damaged or foreign.
    """
    notes: list[str] = []
    for folder in _folders(directory):
        try:
            about, rows = _about(folder, study), store.read_rows(folder / "rows.parquet")
            state = _read_state(folder.absolute() / "state", like)
            return Saved(about["batch"], about["number"], state, rows, notes, about.get("devices"))
        except (ValueError, TypeError, KeyError, OSError) as error:  # orbax's are of many classes
            notes.append(f"checkpoint {folder.name} was not used: {store.reason(error)}")
    if notes:
        raise CheckpointError(f"no usable checkpoint in {directory}: " + "; ".join(notes))
    return None


def newest_height(directory: Path) -> int:
    """How many rows the newest checkpoint tells of, whether or not it can be trusted; 0 where there is none."""
    for folder in _folders(directory):
        with suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads((folder / _ABOUT).read_bytes())["rows"])
    return 0


def adopt(source: Path, target: Path, study: str, batch: int, into: str) -> None:
    """Link or copy the newest checkpoint of a ``study`` into another folder, as batch ``batch`` of the study ``into``.

    Raises:
      CheckpointError: there is none, or it is damaged or of another study.
      Unwritable: it cannot be written.
    """
    folder = next(iter(_folders(source)), None)
    if folder is None:
        raise CheckpointError(f"no usable checkpoint in {source}: there is none")
    try:
        about = _about(folder, study)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"no usable checkpoint in {source}: {store.reason(error)}") from None
    name = _name(batch, about["number"])
    partial = target / f"{store.PARTIAL}{name}"
    try:
        shutil.copytree(folder, partial, copy_function=_link, ignore=lambda _, names: {_ABOUT} & set(names))
        store.write_json(partial / _ABOUT, about | {"study": into, "batch": batch})
        os.rename(partial, target / name)
    except (OSError, shutil.Error) as error:
        raise store.Unwritable(f"{target / name} cannot be written: {store.reason(error)}") from None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
