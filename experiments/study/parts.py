"""Parts of a study, joined into one: blocks of its runs, or a finished study and added runs."""

import itertools
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from experiments.study import checkpoint, store
from experiments.study.config import StudyConfig, config_from_json, fingerprint_of
from experiments.study.folder import complete
from experiments.study.program import rows_of
from experiments.study.store import FOLDERS, Results, open_results, write_manifest

_COMMON = ("floors", "oracle", "inert", "patterns", "simulator")  # may differ between hosts, seeds and patterns
_SUMS = ("runs", "batches", "seconds")  # of one carrier in a manifest


def add(config: StudyConfig, directory: Path, added: Path) -> Mapping[str, Any]:
    """Join the runs in ``added`` with the finished study in ``directory``; returns the manifest.

    The joined study, with ``config``, is written beside the finished one and replaces it when it is complete.

    Raises:
      ValueError: one of the studies is damaged; nothing is changed.
    """
    joined = directory / store.ADDED / store.JOINED
    shutil.rmtree(joined, ignore_errors=True)  # left by an interrupted join
    joined.mkdir()
    parts = [open_results(directory), open_results(added)]
    join_parts(joined, config.to_json(), parts, parts[1].manifest.get("command", ""))
    complete(directory)
    return store.read_manifest(directory)


def join_parts(directory: Path, config: Mapping[str, Any], parts: Sequence[Results], command: str) -> None:
    """Write the study of all ``parts``, which have different runs, into ``directory``, its manifest last.

    Agents are linked instead of copied if the file system supports links.

    Args:
      config: of the study, as JSON.
    """
    import polars as pl

    study = config_from_json(config)
    methods = [row.name for row in rows_of(study)]
    runs = list(itertools.product(methods, study.patterns, study.seeds))
    order = pl.DataFrame(runs, ["method", "pattern", "seed"], orient="row")
    for name in (store.CURVES, store.STREAMS):
        rows = pl.concat([part.rows(name) for part in parts], how="diagonal")
        rows = order.join(rows, on=order.columns, maintain_order="left_right").select(rows.columns)
        store.write_rows(directory / name, rows)
    for folder in FOLDERS:
        shutil.rmtree(directory / folder, ignore_errors=True)  # left by an interrupted join
    into, before = fingerprint_of(config), Counter[str]()  # batches of runs of each carrier
    for part in parts:
        study_of_part = fingerprint_of(part.config)
        for source in sorted(path for name in FOLDERS for path in part.directory.glob(f"{name}/*/*")):
            *_, folder, carrier, name = source.parts
            batch, dash, evaluation = name.partition("-")
            at = int(batch) + before[carrier]
            target = directory / folder / carrier / f"{at:03d}{dash}{evaluation}"
            checkpoint.adopt(source, target, study_of_part, at, into)
        before.update({carrier: facts["batches"] for carrier, facts in part.manifest["parts"].items()})
    store.write_json(directory / store.CONFIG, config)
    facts = _manifest([part.manifest for part in parts], runs)
    write_manifest(directory, facts | ({"command": command} if command else {}))


def _manifest(manifests: Sequence[Mapping[str, Any]], runs: Sequence[store.Run]) -> dict[str, Any]:
    """Joint manifest: equal fields, sums, and the ``runs`` in order."""
    first, carriers = manifests[0], {}
    common = {name: reduce(store.merged, [other[name] for other in manifests]) for name in _COMMON if name in first}
    whole = {n: v for n, v in first.items() if all(other.get(n) == v for other in manifests)} | common
    if changes := reduce(store.merged, (other.get("changes") or {} for other in manifests)):
        whole["changes"] = changes
    agents: dict[str, list] = {}
    statuses = {}
    for manifest in manifests:
        for carrier, facts in manifest["parts"].items():
            known = carriers.setdefault(carrier, {**facts, **dict.fromkeys(_SUMS, 0)})
            known.update({name: round(known[name] + facts[name], 2) for name in _SUMS})
        for carrier, trained in manifest.get("warm_start", {}).get("agents", {}).items():
            agents.setdefault(carrier, []).extend(agent for agent in trained if agent not in agents[carrier])
        statuses |= {(run["method"], run["pattern"], run["seed"]): run for run in manifest["runs"]}
    if "warm_start" in first:
        whole["warm_start"] = {**first["warm_start"], "agents": agents}
    return whole | {
        "resumed": any(manifest["resumed"] for manifest in manifests),
        "wall_seconds": round(sum(manifest["wall_seconds"] for manifest in manifests), 2),
        "parts": carriers,
        "runs": [statuses[run] for run in runs if run in statuses],
    }
