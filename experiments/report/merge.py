"""Several studies as one, so that a family's table can be made of tasks that were trained apart."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.measure.study import PatternFacts, describe
from experiments.study import store
from experiments.study.store import open_results, write_manifest

if TYPE_CHECKING:
    import polars as pl


_RUN = ("task", "method", "pattern", "seed")


def merge_studies(directories: Sequence[Path], out: Path) -> Path:
    """Write the configuration, manifest and curves of all ``directories`` together into the new or empty ``out``."""
    store.check_new(out, "--out")
    config, manifest, rows = join_studies(directories)
    out.mkdir(parents=True, exist_ok=True)
    store.write_json(out / store.CONFIG, config)
    store.write_rows(out / store.CURVES, rows)
    write_manifest(out, manifest)
    return out


def join_studies(directories: Sequence[Path]) -> tuple[dict[str, Any], dict[str, Any], "pl.DataFrame"]:
    """The configurations, manifests and curves of finished studies as those of one.

    The configuration then holds the steps of each task and the studies' own configurations under ``merged``. Patterns
    stand in the order in which the studies name them first. A run that several studies hold with the same numbers, such
    as a baseline that each of them trained, counts once; with different numbers it is refused.
    """
    import polars as pl

    studies = [open_results(folder) for folder in directories]
    configs, manifests = [study.config for study in studies], [study.manifest for study in studies]
    steps: dict[str, Any] = {}
    for folder, config in zip(directories, configs, strict=True):
        for name in ("task", "steps", "segments"):
            if name not in config:
                raise ValueError(f"{folder / store.CONFIG} lacks '{name}'")
        if config["segments"] != configs[0]["segments"]:
            raise ValueError(f"{folder} has {config['segments']} segments, {directories[0]} {configs[0]['segments']}")
        if config.get("observe") != configs[0].get("observe"):
            raise ValueError(f"of {folder} and {directories[0]} one observes the true drift and is no method")
        own = config["steps"] if isinstance(config["steps"], dict) else {config["task"]: config["steps"]}
        for task, horizon in own.items():
            if steps.setdefault(task, horizon) != horizon:
                raise ValueError(f"{folder} trained {task} for {horizon} steps, another study for {steps[task]}")
    frames = [study.rows(store.CURVES) for study in studies]
    patterns = _patterns(directories, manifests)
    rows = pl.concat(_without_repeats(directories, frames), how="diagonal_relaxed")
    alike = {k: v for k, v in configs[0].items() if all(config.get(k) == v for config in configs)}
    kept = {k: v for k, v in manifests[0].items() if all(manifest.get(k) == v for manifest in manifests)}
    together: dict[str, Any] = {"floors": {}, "oracle": {}, "inert": {}}
    for name in together:
        for manifest in manifests:
            known = manifest.get(name, {})
            for task in (task for task in known if known[task] not in ({}, None)):
                together[name][task] = _joined(together[name].get(task), known[task])
    together |= {"patterns": patterns} if patterns else {}
    runs: dict[tuple, Any] = {}
    for run in (run for manifest in manifests for run in manifest.get("runs", [])):
        runs.setdefault(tuple(run.get(name) for name in _RUN), run)
    together["runs"] = list(runs.values())
    together["wall_seconds"] = sum(manifest.get("wall_seconds", 0.0) for manifest in manifests)
    names = {"task": ",".join(steps), "steps": steps, "segments": configs[0]["segments"], "merged": configs}
    return alike | names, kept | together, rows


def _without_repeats(directories: Sequence[Path], frames: Sequence["pl.DataFrame"]) -> list["pl.DataFrame"]:
    """The curves, of a run that several studies hold with the same numbers only the first."""
    import polars as pl

    kept: list[pl.DataFrame] = []
    for folder, frame in zip(directories, frames, strict=True):
        for before, earlier in zip(directories, kept, strict=False):
            names = [name for name in frame.columns if name in earlier.columns]
            ours, theirs = (
                a.join(b, on=_RUN, how="semi").select(names) for a, b in ((frame, earlier), (earlier, frame))
            )
            order = [*_RUN, "step"]
            for key, run in ours.sort(order).partition_by(_RUN, as_dict=True, maintain_order=True).items():
                if not run.equals(theirs.filter(**dict(zip(_RUN, key, strict=True))).sort(order)):
                    task, method, pattern, seed = key
                    raise ValueError(
                        f"{before} and {folder} both hold {method} on {task}, '{pattern}', seed {seed}, with different "
                        "numbers; train one of them without it"
                    )
            frame = frame.join(earlier.select(_RUN).unique(), on=_RUN, how="anti")
        kept.append(frame)
    return kept


def _joined(first: Any, second: Any) -> Any:
    """Two maps as one, level by level: the optimum of a task by pattern and seed. Of anything else the later counts."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return second
    return first | {name: _joined(first.get(name), value) for name, value in second.items()}


def _patterns(directories: Sequence[Path], manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The descriptions of the patterns of all studies; a summary in other words is no contradiction."""
    merged: dict[str, Any] = {}
    facts: dict[str, PatternFacts] = {}
    for folder, manifest in zip(directories, manifests, strict=True):
        known = describe(manifest)
        for name, entry in (manifest.get("patterns") or {}).items():
            first = facts.setdefault(name, known[name])
            if first._replace(summary="") != known[name]._replace(summary=""):
                theirs, ours = (f"jumps={each.jumps}, recovery={each.recovery}" for each in (known[name], first))
                raise ValueError(f"{folder} describes the pattern '{name}' as {theirs}, another study as {ours}")
            merged.setdefault(name, entry)
    return merged
