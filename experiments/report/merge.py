"""Merging of finished studies."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aesjax.typed import require
from experiments.measure.study import MERGED, originals
from experiments.study import store
from experiments.study.folder import writing
from experiments.study.store import open_results, write_manifest

if TYPE_CHECKING:
    import polars as pl


_RUN = ("task", "method", "pattern", "seed")
#: Fields of a configuration in which comparable studies of a task may differ.
_OWN = ("methods", "patterns", "seeds", "sweep", "controls", "counterfactual", "block", "preset")


def merge_studies(directories: Sequence[Path], out: Path) -> Path:
    """Write the merged configuration, manifest and curves of ``directories`` into the new or empty ``out``."""
    store.check_new(out, "--out")
    joined = join_studies([open_results(directory) for directory in directories])
    with writing(out):
        store.write_json(out / store.CONFIG, joined.config)
        store.write_rows(out / store.CURVES, joined.rows(store.CURVES))
        write_manifest(out, joined.manifest)
    return out


def join_studies(studies: Sequence[store.Results]) -> store.Results:
    """Merge the configurations, manifests and rows of finished studies.

    The merged configuration has the steps of each task and, under ``merged``, the original configurations, also those
    of studies that were merged before. Patterns are in order of first appearance. A run with equal numbers in several
    studies, such as a common baseline, is used once.

    Raises:
      ValueError: the studies cannot be compared, or have different numbers of a run.
    """
    directories = [study.directory for study in studies]
    for folder, count in Counter(directory.resolve() for directory in directories).items():
        require(count == 1, "studies", "different folders", f"{folder.name} {count} times")
    manifests = [study.manifest for study in studies]
    parts: list[tuple[Path, Mapping[str, Any]]] = []
    for study in studies:
        parts += [(study.directory, config) for config in originals(study.config)]
    for (other, known), (folder, config) in itertools.combinations(parts, 2):
        if differing := store.differing_fields(_shared(known, config), _shared(config, known)):
            raise ValueError(f"{folder} cannot be joined with {other}: {differing[0]}")
    configs = [config for _, config in parts]
    steps = {config["task"]: config["steps"] for config in configs}
    config = {k: v for k, v in configs[0].items() if all(other.get(k) == v for other in configs)}
    config |= {"task": ",".join(steps), "steps": steps, MERGED: configs}
    manifest = {k: v for k, v in manifests[0].items() if all(other.get(k) == v for other in manifests)}
    for name in ("floors", "oracle", "inert", "changes"):
        manifest[name] = {}
        for task, known in (item for other in manifests for item in other.get(name, {}).items()):
            if known not in ({}, None):
                manifest[name][task] = store.merged(manifest[name].get(task), known)
    if patterns := _patterns(directories, manifests):
        manifest["patterns"] = patterns
    runs: dict[tuple, Any] = {}
    for run in (run for each in manifests for run in each.get("runs", [])):
        runs.setdefault(tuple(run.get(name) for name in _RUN), run)
    wall = sum(each.get("wall_seconds", 0.0) for each in manifests)
    manifest |= {"runs": list(runs.values()), "wall_seconds": wall}
    rows = {store.CURVES: _rows([study.rows(store.CURVES) for study in studies])}
    return store.Results(directories[0], config, manifest, rows)


def _shared(config: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a study that must be equal in a comparable ``other`` study."""
    if config["task"] != other["task"]:
        return {name: config.get(name) for name in ("segments", "observe", "onset", "changes")}
    named = {name: {**config.get(name, {})} for name in ("settings", "outside")}  # of carriers and custom objects
    common = {n: {k: v for k, v in known.items() if k in other.get(n, {})} for n, known in named.items()}
    return {name: value for name, value in config.items() if name not in _OWN} | common


def _rows(frames: Sequence["pl.DataFrame"]) -> "pl.DataFrame":
    """Curves of all studies, each run once; ValueError if studies have different numbers of a run."""
    import polars as pl

    rows, place = pl.concat(frames, how="diagonal_relaxed"), [*_RUN, "step"]
    common = [name for name in rows.columns if all(name in frame.columns for frame in frames)]
    twice = rows.select(common).unique().filter(pl.struct(place).is_duplicated()).sort(place)
    if twice.height:
        task, method, pattern, seed = twice.select(_RUN).row(0)
        raise ValueError(
            f"studies have different numbers of {method} on {task}, '{pattern}', seed {seed}; "
            "train one of the studies without this run"
        )
    return rows.unique(place, keep="first", maintain_order=True)


def _patterns(directories: Sequence[Path], manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Descriptions of the patterns of all studies; only their summaries may differ."""
    merged: dict[str, Any] = {}
    for folder, manifest in zip(directories, manifests, strict=True):
        for name, entry in (manifest.get("patterns") or {}).items():
            first = merged.setdefault(name, entry)
            if {**first, "summary": ""} != {**entry, "summary": ""}:
                raise ValueError(f"{folder} describes the pattern '{name}' as {entry}, another study as {first}")
    return merged
