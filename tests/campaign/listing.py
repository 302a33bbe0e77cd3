"""A folder as names and digests, so that two of its states can be compared."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

Listing = Mapping[str, str]


def listing(folder: Path) -> Listing:
    """Path below ``folder`` -> SHA-256 of a file, ``folder`` for a folder, target of a link. Empty where it is none."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_dir():
            found[name] = "folder"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "special"
    return found
