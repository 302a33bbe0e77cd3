"""Files that a study takes from another, finished one, identified by their SHA-256.

Only names and digests are read here, before anything is configured; `experiments.study.replay` and
`experiments.study.warm` read the contents and check that they fit.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.study import store
from experiments.study.method import Method

EXPORTED = "warm.json"  # what a folder of exported agents is known by


def record_of(methods: Sequence[Method], directory: Path | None) -> dict[str, str]:
    """Folder and SHA-256 of the record that controls play; empty where there are no controls."""
    controls = [method.control for method in methods if method.control is not None]
    if not controls:
        if directory is not None:
            raise ValueError("--controls-from names a record, but no control among --schedules plays it")
        return {}
    if directory is None:
        raise ValueError(
            f"control '{controls[0].name}' plays runs of a finished study; give its folder, --controls-from"
        )
    path = directory / store.STREAMS
    if not path.is_file():
        raise ValueError(
            f"--controls-from {directory}: there is no {store.STREAMS}; is this a finished study's folder?"
        )
    return {"from": str(directory), "streams": store.sha256(path)}


def warm_start_of(directory: Path | None, carriers: Sequence[str]) -> dict[str, Any]:
    """The folder of the agents that a study begins with, and their SHA-256; empty where it begins with new ones."""
    if directory is None:
        return {}
    # `replay`: recorded results tell by it that replays began empty.
    return {"from": str(directory), "replay": False, "sha256": store.digest(agent_files(directory, carriers))}


def agent_files(directory: Path, carriers: Sequence[str]) -> list[Path]:
    """The files that pin the agents of ``carriers`` in ``directory``."""
    if (directory / EXPORTED).is_file():
        return [directory / EXPORTED]
    fixed = [directory / name for name in (store.CONFIG, store.MANIFEST, store.CURVES)]
    if missing := [path.name for path in fixed if not path.is_file()]:
        raise ValueError(
            f"--warm-start {directory}: neither a finished study ({missing[0]} is missing) nor exported agents"
        )
    found = []
    for carrier in carriers:
        files = sorted(path for path in (directory / store.AGENTS / carrier).rglob("*") if path.is_file())
        if not files:
            known = ", ".join(sorted(path.name for path in (directory / store.AGENTS).glob("*"))) or "none"
            raise ValueError(f"--warm-start {directory}: it has no agents of carrier '{carrier}'; carriers: {known}")
        found += files
    return [directory / store.CONFIG, directory / store.CURVES, *found]
