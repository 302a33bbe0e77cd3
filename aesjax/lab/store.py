"""The files of a study: configuration, manifest and curves, each replaced in one rename or not at all."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from aesjax.types import STREAM

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "CURVES",
    "MANIFEST",
    "STREAMS",
    "differing_fields",
    "digest",
    "environment",
    "read_json",
    "read_rows",
    "sha256",
    "split_streams",
    "write_json",
    "write_rows",
    "write_text",
]

CONFIG, MANIFEST, CURVES, CHECKPOINTS = "config.json", "manifest.json", "curves.parquet", "checkpoints"
STREAMS = "streams.parquet"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "distrax", "orbax-checkpoint", "numpy", "polars", "mujoco", "mujoco-mjx")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 atomically."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def write_json(path: Path, data: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
      ValueError: the file is missing or is not JSON; one sentence that names it.
    """
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None


def read_rows(path: Path) -> "pl.DataFrame":
    """Read a Parquet file.

    Raises:
      ValueError: the file is missing or is not Parquet; one sentence that names it.
    """
    import polars as pl

    if not path.exists():
        raise ValueError(f"{path} does not exist; is this the folder of a finished study?")
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None


def write_rows(path: Path, rows: "pl.DataFrame") -> None:
    """Write rows as Parquet atomically; the same rows give the same bytes."""
    partial = path.with_name(f".{path.name}.partial")
    rows.rechunk().write_parquet(partial, compression="zstd")
    os.replace(partial, path)


def split_streams(rows: "pl.DataFrame") -> tuple["pl.DataFrame", "pl.DataFrame"]:
    """The curves without the streams, and the streams: one row per run, each stream a list over the whole run.

    A stream holds NaN where there was no update; its name loses the prefix.
    """
    import polars as pl

    names = [name for name in rows.columns if name.startswith(STREAM)]
    labels = rows.columns[: rows.columns.index("step")]
    whole = [
        pl.col(name).drop_nulls().arr.to_list().explode().alias(name.removeprefix(STREAM))  # in the order of rows
        for name in names
    ]
    return rows.drop(names), rows.group_by(labels, maintain_order=True).agg(whole)


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest(paths: Iterable[Path]) -> str:
    """The SHA-256 of the files' own, in their order."""
    return hashlib.sha256("".join(map(sha256, paths)).encode()).hexdigest()


def environment() -> dict[str, Any]:
    """What the numbers depend on besides the configuration: versions, commit, device, precision."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    devices = jax.local_devices()
    return {
        "aesjax": metadata.version("aesjax"),
        "commit": _commit(),
        "python": platform.python_version(),
        "versions": versions,
        "platform": devices[0].platform,
        "device": devices[0].device_kind,
        "num_devices": len(devices),
        "matmul_precision": str(jax.config.values["jax_default_matmul_precision"] or "default"),
        "x64": bool(jax.config.values["jax_enable_x64"]),
    }


def _commit() -> str | None:
    """Commit of the checkout this package runs from, with `+` where files differ from it."""
    root = Path(__file__).resolve().parents[2]
    try:

        def git(*words: str) -> str:
            command = ["git", "-C", str(root), *words]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def differing_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """``name: old -> new`` for every field in which two configurations differ."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return [f"{name}: {_short(old.get(name))} -> {_short(new.get(name))}" for name in names]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
