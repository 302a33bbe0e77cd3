"""Merging of finished studies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.study import store
from experiments.study.folder import writing
from experiments.study.store import open_results, write_manifest

if TYPE_CHECKING:
    import polars as pl


_RUN = ("task", "method", "pattern", "seed")


def merge_studies(directories: Sequence[Path], out: Path) -> Path:
    """Write the merged configuration, manifest and curves of ``directories`` into the new or empty ``out``."""
    store.check_new(out, "--out")
    config, manifest, rows = join_studies(directories)
    with writing(out):
        store.write_json(out / store.CONFIG, config)
        store.write_rows(out / store.CURVES, rows)
        write_manifest(out, manifest)
    return out


def join_studies(directories: Sequence[Path]) -> tuple[dict[str, Any], dict[str, Any], "pl.DataFrame"]:
    """Merge the configurations, manifests and curves of finished studies.

    The merged configuration has the steps of each task and the original configurations under ``merged``. Patterns are
    in order of first appearance. A run with equal numbers in several studies, such as a common baseline, is used once;
    different numbers raise a ValueError.
    """
    studies = [open_results(folder) for folder in directories]
    configs, manifests = [study.config for study in studies], [study.manifest for study in studies]
    steps: dict[str, Any] = {}
    for folder, config in zip(directories, configs, strict=True):
        for name in ("segments", "observe"):
            if config.get(name) != configs[0].get(name):
                raise ValueError(f"{folder} has {name} {config.get(name)}, {directories[0]} {configs[0].get(name)}")
        own = config["steps"] if isinstance(config["steps"], dict) else {config["task"]: config["steps"]}
        for task, horizon in own.items():
            if steps.setdefault(task, horizon) != horizon:
                raise ValueError(f"{folder} trained {task} for {horizon} steps, another study for {steps[task]}")
    config = {k: v for k, v in configs[0].items() if all(other.get(k) == v for other in configs)}
    config |= {"task": ",".join(steps), "steps": steps, "merged": configs}
    manifest = {k: v for k, v in manifests[0].items() if all(other.get(k) == v for other in manifests)}
    for name in ("floors", "oracle", "inert"):
        manifest[name] = {}
        for task, known in (item for other in manifests for item in other.get(name, {}).items()):
            if known not in ({}, None):
                manifest[name][task] = _joined(manifest[name].get(task), known)
    if patterns := _patterns(directories, manifests):
        manifest["patterns"] = patterns
    runs: dict[tuple, Any] = {}
    for run in (run for each in manifests for run in each.get("runs", [])):
        runs.setdefault(tuple(run.get(name) for name in _RUN), run)
    wall = sum(each.get("wall_seconds", 0.0) for each in manifests)
    manifest |= {"runs": list(runs.values()), "wall_seconds": wall}
    return config, manifest, _rows([study.rows(store.CURVES) for study in studies])


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


def _joined(first: Any, second: Any) -> Any:
    """Merge two maps recursively, such as the optimum by pattern and seed. For other values the second wins."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return second
    return first | {name: _joined(first.get(name), value) for name, value in second.items()}


def _patterns(directories: Sequence[Path], manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Descriptions of the patterns of all studies; only their summaries may differ."""
    merged: dict[str, Any] = {}
    for folder, manifest in zip(directories, manifests, strict=True):
        for name, entry in (manifest.get("patterns") or {}).items():
            first = merged.setdefault(name, entry)
            if {**first, "summary": ""} != {**entry, "summary": ""}:
                raise ValueError(f"{folder} describes the pattern '{name}' as {entry}, another study as {first}")
    return merged
