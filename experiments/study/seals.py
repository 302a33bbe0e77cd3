"""Sealed results: the SHA-256 of every result file stands in the manifest, and the manifest's own in a file beside it.

One flipped bit anywhere is then noticed by whatever reads the folder. What is made from the results (reports, replays,
videos, calibrations) is not sealed, for it can be made again; checkpoints have a seal of their own each.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.study import store

SUM = "manifest.sha256"  # in the format of sha256sum, which can check it, too
FILES = "files"  # of the manifest: path in the folder -> SHA-256
_SINGLE = (store.CONFIG, store.CURVES, store.STREAMS)
FOLDERS = (store.AGENTS, store.REPLAYS, store.MOMENTS)  # whatever lies in them


def result_files(directory: Path) -> list[str]:
    """What a seal covers besides the manifest: paths in the folder, with slashes."""
    found = [name for name in _SINGLE if (directory / name).is_file()]
    for folder in FOLDERS:
        inside = sorted(path for path in (directory / folder).rglob("*") if path.is_file())
        found += [path.relative_to(directory).as_posix() for path in inside]
    return found


def seal(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest with the SHA-256 of every result file that lies in ``directory``, and its own beside it."""
    whole = {**manifest, FILES: {name: store.sha256(directory / name) for name in result_files(directory)}}
    text = json.dumps(whole, indent=1) + "\n"
    # Its own comes first: wherever there is a manifest there is also what it has to agree with.
    write_sum(directory / SUM, store.MANIFEST, text.encode())
    store.write_text(directory / store.MANIFEST, text)


def write_sum(path: Path, name: str, data: bytes) -> None:
    """Write the SHA-256 of a file's bytes, as ``sha256sum name`` prints it."""
    store.write_text(path, f"{store.sha256_of(data)}  {name}\n")


def check_sum(path: Path, sum_path: Path, again: str) -> bytes:
    """The bytes of ``path``, which must be those that ``sum_path`` tells.

    Args:
      again: what a person who changed it on purpose can do.

    Raises:
      ValueError: one of the two is missing or they disagree; one sentence.
    """
    data = store.read_bytes(path)
    try:
        told = sum_path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} is not sealed: there is no {sum_path.name} beside it; {again}") from None
    except OSError as error:
        raise ValueError(f"{sum_path} cannot be read: {error.strerror or error}") from None
    if told != f"{store.sha256_of(data)}  {path.name}\n".encode():
        raise ValueError(f"{path} was changed or damaged: it is not what {sum_path.name} tells; {again}")
    return data


def faults(directory: Path, manifest: Mapping[str, Any]) -> list[str]:
    """One phrase for every result file that is not what the manifest tells."""
    told = manifest[FILES]
    there = set(result_files(directory))
    found = []
    for name in sorted(there | set(told)):
        if name not in there:
            found.append(f"{name} is missing")
        elif name not in told:
            found.append(f"{name} is not one of the study's files")
        elif store.sha256(directory / name) != told[name]:
            found.append(f"{name} was changed or damaged")
    return found
