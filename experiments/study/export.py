"""Trained agents on their own, small enough to be kept beside the code: what `--warm-start` needs and nothing else.

A folder of them holds one NumPy archive per carrier, float32 arrays with a leading axis over agents under the paths of
the agent's state, and `warm.json`: what they were trained on and how, each one's seed and return, and the SHA-256 of
the archives. Without Adam's moments, unless asked for, and without replays.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.study import store
from experiments.study.folder import open_study
from experiments.study.sources import EXPORTED
from experiments.study.warm import FORMAT, read


def export(directories: Sequence[Path], out: Path, *, seeds: Sequence[int] | None = None, moments: bool = False) -> int:
    """Write the agents that the studies in ``directories`` ended with into ``out``; the bytes that they take.

    Args:
      directories: finished studies of one task; every carrier is taken from the first that trained it.
      out: a folder that is new or empty.
      seeds: of the agents wanted; None: all there are.
      moments: with what Adam remembers, which is twice the parameters.
    """
    store.check_new(out, "--out")
    found: dict[str, tuple[Path, Any]] = {}
    for directory in directories:
        config = open_study(directory, ended=True).config
        for carrier in config.carriers:
            found.setdefault(carrier, (directory, config))
    tasks = {directory: config.task for directory, config in found.values()}
    if len(set(tasks.values())) > 1:
        (one, first), (other, second) = list(tasks.items())[:2]
        raise ValueError(f"the studies are of different tasks: {first} in {one}, {second} in {other}")
    agents = {carrier: read(directory, carrier, seeds=seeds) for carrier, (directory, _) in found.items()}

    out.mkdir(parents=True, exist_ok=True)
    entries = {}
    for carrier, one in agents.items():
        path = out / f"{carrier}.npz"
        kept = {name: leaf for name, leaf in one.leaves.items() if moments or name not in one.moments}
        with store.replacing(path) as partial, open(partial, "wb") as file:
            np.savez_compressed(file, **kept)  # type: ignore  # names are not those of its parameters
        directory, config = found[carrier]
        entries[carrier] = {
            "file": path.name,
            "sha256": store.sha256(path),
            "nature": dict(one.nature),
            "runs": one.runs,
            "adam": moments,
            "study": config.to_json(),
            "commit": open_study(directory).ended.manifest.get("commit"),
        }
    store.write_json(out / EXPORTED, {"format": FORMAT, "carriers": entries})
    return sum(path.stat().st_size for path in out.iterdir())
