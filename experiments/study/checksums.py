"""Checksums: the manifest holds the SHA-256 of every result file, and its own stands in a file beside it.

Every reader of a folder checks them, so that one flipped bit is noticed. Reports, replays, videos and calibrations,
which can be made again, have none; every checkpoint has its own.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.study import store

SUM = "manifest.sha256"  # in the format of sha256sum, which can check it, too
FILES = "files"  # of the manifest: path in the folder -> SHA-256
_SINGLE = (store.CONFIG, store.CURVES, store.STREAMS)
FOLDERS = (store.AGENTS, store.MOMENTS)  # with every file in them


def result_files(directory: Path) -> list[str]:
    """Files in ``directory`` that the manifest covers: paths in the folder, with slashes."""
    found = [name for name in _SINGLE if (directory / name).is_file()]
    for folder in FOLDERS:
        inside = sorted(path for path in (directory / folder).rglob("*") if path.is_file())
        found += [path.relative_to(directory).as_posix() for path in inside]
    return found


def write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest with the SHA-256 of every result file in ``directory``, and its own beside it."""
    complete = {**manifest, FILES: {name: store.sha256(directory / name) for name in result_files(directory)}}
    text = json.dumps(complete, indent=1) + "\n"
    # Its own comes first: a manifest never stands without it.
    write_sum(directory / SUM, store.MANIFEST, text.encode())
    store.write_text(directory / store.MANIFEST, text)


def write_sum(path: Path, name: str, data: bytes) -> None:
    """Write the SHA-256 of a file's bytes, as ``sha256sum name`` prints it."""
    store.write_text(path, f"{store.sha256_of(data)}  {name}\n")


def check_sum(path: Path, sum_path: Path) -> bytes:
    """Return the bytes of ``path`` (ValueError where they do not match their SHA-256 in ``sum_path``)."""
    data = store.read_bytes(path)
    try:
        recorded = store.read_bytes(sum_path)
    except ValueError:
        if sum_path.exists():
            raise
        raise ValueError(f"{path} has no checksum: there is no {sum_path.name} beside it") from None
    if recorded != f"{store.sha256_of(data)}  {path.name}\n".encode():
        raise ValueError(f"{path} was changed or damaged: it does not match its checksum in {sum_path.name}")
    return data


def faults(directory: Path, manifest: Mapping[str, Any]) -> list[str]:
    """One phrase for every result file that does not match the manifest."""
    recorded = manifest[FILES]
    there = set(result_files(directory))
    found = []
    for name in sorted(there | set(recorded)):
        if name not in there:
            found.append(f"{name} is missing")
        elif name not in recorded:
            found.append(f"{name} is not one of the study's files")
        elif store.sha256(directory / name) != recorded[name]:
            found.append(f"{name} was changed or damaged")
    return found
