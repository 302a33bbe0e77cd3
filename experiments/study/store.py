"""The files of a study: each is replaced atomically, and verified by its SHA-256 in the manifest when read.

All readers of results use `open_results`, so that a damaged file has one error message.
"""

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.study.process import numerics

if TYPE_CHECKING:
    import polars as pl


CONFIG, MANIFEST, CURVES, CHECKPOINTS = "config.json", "manifest.json", "curves.parquet", "checkpoints"
STREAMS = "streams.parquet"
PLAN, STUDY = "plan.json", "study.toml"  # files of a study in parts
PARTS, SLURM = "parts", "slurm"  # its folders
ADDED, JOINED = "added", "joined"  # folder of runs that are added to a finished study, and of the joined study in it
AGENTS, SNAPSHOTS = "agents", "snapshots"  # folders: agents at the end, and policies at changes
STDOUT = ("-", "/dev/stdout")  # names of standard output
PARTIAL = "partial-"  # prefix of a checkpoint that is being written
_PACKAGES = "jax jaxlib flax optax distrax orbax-checkpoint numpy polars mujoco mujoco-mjx warp-lang".split()
FILES = "files"  # field of the manifest: path in the folder -> SHA-256
FOLDERS = (AGENTS, SNAPSHOTS)  # with every file in them
EXPORTED = "warm.json"  # file that identifies a folder of exported agents

Run = tuple[str, str, int]  # method, pattern, seed


class Unwritable(OSError):
    """A file of a study cannot be written (disk full, read-only, folder removed); the text is one sentence."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a new file, which replaces ``path`` in one rename when the block ends without an error.

    A device or a pipe is written directly.

    Raises:
      Unwritable: it cannot be written; no partial file remains and an old file is unchanged.
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
    """Flush a file or folder to disk, so that a rename never precedes its contents."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason(error: BaseException) -> str:
    """The system's reason why a file cannot be read or written."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return words.splitlines()[0] if words else type(error).__name__


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes atomically."""
    with replacing(path) as partial:
        partial.write_bytes(data)


def write_json(path: Path, data: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def write_output(path: Path, text: str) -> None:
    """Write UTF-8 atomically into a file, or to standard output."""
    if str(path) in STDOUT:
        sys.stdout.write(text)
    else:
        write_text(path, text)


def check_new(folder: Path, option: str) -> None:
    """Raise if the folder for results, given by ``option``, is a file or is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{option} {folder} is not an empty folder; choose another one")


def read_bytes(path: Path) -> bytes:
    """Bytes of a file; ValueError if it is missing or cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {reason(error)}") from None


def read_json(path: Path, data: bytes | None = None) -> Any:
    """JSON of a file, or of its bytes ``data``; ValueError if it is missing or not JSON."""
    data = read_bytes(path) if data is None else data
    try:
        return json.loads(data.decode())
    except ValueError as error:  # invalid encoding or JSON
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None


def read_rows(path: Path, data: bytes | None = None) -> "pl.DataFrame":
    """Rows of a Parquet file, or of its bytes ``data``; ValueError if it is missing or not a Parquet file."""
    import polars as pl

    data = read_bytes(path) if data is None else data
    try:
        return pl.read_parquet(io.BytesIO(data))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {reason(error)}") from None


def write_rows(path: Path, rows: "pl.DataFrame") -> None:
    """Write rows as Parquet atomically; equal rows give equal bytes."""
    data = io.BytesIO()  # a full disk raises many classes
    rows.rechunk().write_parquet(data, compression="zstd")
    write_bytes(path, data.getvalue())


def sha256(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 of the SHA-256 sums of the files, in order."""
    return hashlib.sha256("".join(map(sha256, paths)).encode()).hexdigest()


def agent_files(directory: Path, carriers: Sequence[str]) -> list[Path]:
    """Files that identify the agents of ``carriers`` in ``directory``."""
    if (directory / EXPORTED).is_file():
        return [directory / EXPORTED]
    fixed = [directory / name for name in (CONFIG, MANIFEST, CURVES)]
    if missing := [path.name for path in fixed if not path.is_file()]:
        raise ValueError(
            f"--warm-start {directory}: neither a finished study ({missing[0]} is missing) nor exported agents"
        )
    found = []
    for carrier in carriers:
        files = sorted(path for path in (directory / AGENTS / carrier).rglob("*") if path.is_file())
        if not files:
            known = ", ".join(sorted(path.name for path in (directory / AGENTS).glob("*"))) or "none"
            raise ValueError(f"--warm-start {directory}: it has no agents of carrier '{carrier}'; carriers: {known}")
        found += files
    return [directory / CONFIG, directory / CURVES, *found]


def environment() -> dict[str, Any]:
    """Conditions of the results besides the configuration: versions, commit, device, precision."""
    import jax

    from aesjax.compiling import safe_options

    versions = {n: next((found.version for found in metadata.distributions(name=n)), None) for n in _PACKAGES}
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
        "numerics": numerics(),
        "compiler_options": safe_options(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _commit() -> str | None:
    """Commit of this package's checkout, with `+` if files differ from it."""
    root = Path(__file__).resolve().parents[2]
    try:

        def git(*words: str) -> str:
            command = ["git", "-C", str(root), *words]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def merged(first: Any, second: Any) -> Any:
    """Merge two maps recursively, such as the optimum by pattern and seed. For other values the second wins."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return second
    return first | {name: merged(first.get(name), value) for name, value in second.items()}


def differing_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """``name: old -> new`` for every field in which two configurations differ; of methods only different ones."""
    lines = []
    for name in (name for name in {**old, **new} if old.get(name) != new.get(name)):
        ours, theirs = old.get(name), new.get(name)
        if name == "methods" and isinstance(ours, list) and isinstance(theirs, list):
            ours, theirs = [x for x in ours if x not in theirs], [x for x in theirs if x not in ours]
        lines.append(f"{name}: {json.dumps(ours)[:150]} -> {json.dumps(theirs)[:150]}")
    return lines


def write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest with the SHA-256 of every result file in ``directory``."""
    files = [path for name in (CONFIG, CURVES, STREAMS) if (path := directory / name).is_file()]
    for folder in FOLDERS:
        files += sorted(path for path in (directory / folder).rglob("*") if path.is_file())
    sums = {path.relative_to(directory).as_posix(): sha256(path) for path in files}
    write_json(directory / MANIFEST, {**manifest, FILES: sums})


def read_manifest(directory: Path) -> dict[str, Any]:
    """Manifest of a finished study; ValueError if it is damaged."""
    manifest = read_json(directory / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get(FILES), dict):
        raise ValueError(f"{directory / MANIFEST} is damaged: it lists no files with their checksums")
    return manifest


class Results(NamedTuple):
    """A finished study."""

    directory: Path
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    frames: Mapping[str, Any] = {}  # of joined studies: file name -> its rows

    def check(self, name: str) -> bytes:
        """Return the bytes of a result file; ValueError if it is missing, changed or damaged."""
        path = self.directory / name
        data = read_bytes(path)
        if self.manifest[FILES].get(name) != hashlib.sha256(data).hexdigest():
            raise ValueError(f"{path} was changed or damaged: it does not match its checksum in {MANIFEST}")
        return data

    def rows(self, name: str) -> "pl.DataFrame":
        """Rows of `CURVES` or `STREAMS`; ValueError if the file is missing, changed or damaged."""
        return self.frames[name] if self.frames else read_rows(self.directory / name, self.check(name))

    def runs(self, status: str) -> set[Run]:
        """Runs with this status, ``finished`` or ``diverged``."""
        return {(r["method"], r["pattern"], r["seed"]) for r in self.manifest.get("runs", ()) if r["status"] == status}


def check_folder(directory: Path, folder: Path) -> None:
    """Raise a ValueError if a result file of a study is missing or does not match its manifest."""
    if (directory / MANIFEST).exists():  # training has ended
        results = Results(directory, {}, read_manifest(directory))
        for name in (name for name in results.manifest[FILES] if (directory / name).is_relative_to(folder)):
            results.check(name)


def open_results(directory: Path) -> Results:
    """The finished study in ``directory``; ValueError if it is missing, unfinished or damaged."""
    config = directory / CONFIG
    if not config.exists():
        raise ValueError(f"{directory} holds no study: {CONFIG} is missing")
    if not (directory / MANIFEST).exists():
        raise ValueError(f"the study in {directory} is not finished: {MANIFEST} is missing; continue it with --resume")
    results = Results(directory, {}, read_manifest(directory))
    return results._replace(config=read_json(config, results.check(CONFIG)))
