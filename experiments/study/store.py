"""The files of a study: configuration, manifest and curves, each replaced in one rename or not at all."""

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from aesjax.compiling import safe_options

if TYPE_CHECKING:
    import polars as pl


CONFIG, MANIFEST, CURVES, CHECKPOINTS = "config.json", "manifest.json", "curves.parquet", "checkpoints"
STREAMS, MESSAGES = "streams.parquet", "messages.txt"
PLAN, PARTS, SLURM = "plan.json", "parts", "slurm"  # of a study in parts: file, and folders
AGENTS, SNAPSHOTS = "agents", "snapshots"  # folders: agents at the end, and policies at changes
STDOUT = ("-", "/dev/stdout")  # names of standard output
PARTIAL = "partial-"  # prefix of a checkpoint that is being written
_PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "distrax",
    "orbax-checkpoint",
    "numpy",
    "polars",
    "mujoco",
    "mujoco-mjx",
    "warp-lang",
)


class Unwritable(OSError):
    """A file of a study cannot be written (disk full, read-only, folder gone); the text is one sentence."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file beside ``path`` to write to, which takes its place in one rename when the block ends without an error.

    A device or a pipe is written to itself.

    Raises:
      Unwritable: it cannot be written; nothing is left and what was there before is unchanged.
    """
    device = path.exists() and not path.is_file() and not path.is_dir()
    partial = path if device else path.with_name(f".{path.name}.partial")
    try:
        yield partial
        if not device:
            sync(partial)
            os.replace(partial, path)
    except BaseException as error:
        with suppress(OSError):
            if not device:
                partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise Unwritable(f"{path} cannot be written: {reason(error)}") from None
        raise


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk, so that a rename never outlives what it names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason(error: BaseException) -> str:
    """Why a file cannot be read or written, in the system's words."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return words.splitlines()[0] if words else type(error).__name__


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 atomically."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes atomically."""
    with replacing(path) as partial:
        partial.write_bytes(data)


def write_json(path: Path, data: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def write_output(path: Path, text: str) -> None:
    """Write UTF-8 where a person asked for it: atomically into a file, or to standard output."""
    if str(path) in STDOUT:
        sys.stdout.write(text)
    else:
        write_text(path, text)


def check_new(folder: Path, option: str) -> None:
    """Refuse a place for results, named by ``option``, that is a file or a folder that is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{option} {folder} is not an empty folder; choose another one")


def read_bytes(path: Path) -> bytes:
    """The bytes of a file (ValueError where it is missing or cannot be read)."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {reason(error)}") from None


def read_json(path: Path) -> Any:
    """The JSON in a file (ValueError where it is missing or no JSON)."""
    return json_from(path, read_bytes(path))


def json_from(path: Path, data: bytes) -> Any:
    """The JSON in the bytes of ``path``, which is only named (ValueError where they are none)."""
    try:
        return json.loads(data.decode())
    except ValueError as error:  # of the encoding, or of JSON
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None


def read_rows(path: Path) -> "pl.DataFrame":
    """The rows of a Parquet file (ValueError where it is missing or no Parquet file)."""
    return rows_from(path, read_bytes(path))


def rows_from(path: Path, data: bytes) -> "pl.DataFrame":
    """The rows in the bytes of the Parquet file ``path``, which is only named (ValueError where they are none)."""
    import polars as pl

    try:
        return pl.read_parquet(io.BytesIO(data))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {reason(error)}") from None


def write_rows(path: Path, rows: "pl.DataFrame") -> None:
    """Write rows as Parquet atomically; the same rows give the same bytes."""
    write_bytes(path, bytes_of(rows))  # a library's own errors of a full disk come in many classes


def bytes_of(rows: "pl.DataFrame") -> bytes:
    """The bytes of a Parquet file; the same rows give the same ones."""
    data = io.BytesIO()
    rows.rechunk().write_parquet(data, compression="zstd")
    return data.getvalue()


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of(data: bytes) -> str:
    """The SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def digest(paths: Iterable[Path]) -> str:
    """The SHA-256 of the files' own, in their order."""
    return hashlib.sha256("".join(map(sha256, paths)).encode()).hexdigest()


def environment() -> dict[str, Any]:
    """Conditions of the numbers besides the configuration: versions, commit, device, precision."""
    versions = {}
    for name in _PACKAGES:
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
        "num_devices": len(jax.devices()),
        "matmul_precision": str(jax.config.values["jax_default_matmul_precision"] or "default"),
        "x64": bool(jax.config.values["jax_enable_x64"]),
        "compiler_options": safe_options(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
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
    """``name: old -> new`` for every field in which two configurations differ; of methods those that differ."""
    lines = []
    for name in (name for name in {**old, **new} if old.get(name) != new.get(name)):
        ours, theirs = old.get(name), new.get(name)
        if name == "methods" and isinstance(ours, list) and isinstance(theirs, list):
            ours, theirs = [x for x in ours if x not in theirs], [x for x in theirs if x not in ours]
        lines.append(f"{name}: {shortened(ours, 150)} -> {shortened(theirs, 150)}")
    return lines


def shortened(value: Any, most: int = 60) -> str:
    """A value as JSON, cut where it is long."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = repr(type(value))
    return text if len(text) <= most else text[: most - 3] + "..."
