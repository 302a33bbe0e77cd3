"""The parts of a study as one: the folder that one machine would have left."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.study import checkpoint, checksums, lock, store
from experiments.study.config import fingerprint_of
from experiments.study.lock import Owner
from experiments.study.parts import StudyPlan, read_plan
from experiments.study.results import Results, open_results

#: Fields of a part's manifest about the complete study; hosts may differ by rounding.
_COMMON = ("floors", "oracle", "inert", "patterns", "simulator")
#: Fields that are summed, concatenated or written again.
OWN = ("command", "resumed", "wall_seconds", "parts", "runs", "warm_start", checksums.FILES)


def join(directory: Path) -> tuple[StudyPlan, bool]:
    """Make one study of the parts in ``directory``; the plan, and whether that was still to be done.

    Parts stay as they are; what is large is linked, not copied, where the file system can.

    Raises:
      ValueError: a part is missing, has not ended, is damaged or belongs to another study; nothing is written.
    """
    read_plan(directory)
    with Owner(directory):
        plan = read_plan(directory)
        if (directory / store.MANIFEST).exists():
            return plan, False
        _check_ended(directory, plan)
        parts = [_opened(directory, plan, number) for number in range(1, plan.parts + 1)]
        lock.clean(directory)
        _write(directory, plan, parts)
    return plan, True


def _check_ended(directory: Path, plan: StudyPlan) -> None:
    missing = [number for number, result in enumerate(plan.results(directory), 1) if not result.exists()]
    if missing:
        named = ", ".join(map(str, missing[:20])) + (", ..." if len(missing) > 20 else "")
        raise ValueError(
            f"{directory} cannot be joined: {len(missing)} of its {plan.parts} parts have not ended ({named}); "
            f"see aesjax status {directory}"
        )


def _opened(directory: Path, plan: StudyPlan, number: int) -> Results:
    """Open a part, checked to be this part of this study with every file whole."""
    place = plan.place(directory, number)
    remedy = f"remove {place} and train it again: aesjax submit --resume --out {directory}"
    try:
        part = open_results(place)
        checksums.check_folder(place, place)
    except ValueError as error:
        raise ValueError(f"{error}; {remedy}") from None
    differing = store.differing_fields(plan.part(number), dict(part.config))
    if differing:
        raise ValueError(f"{place} is not part {number} of this study ({'; '.join(differing)})")
    expected, count = sum(map(len, plan.runs(number).values())), len(part.manifest.get("runs", ()))
    if count != expected:
        raise ValueError(f"{place} holds {count} runs; part {number} of this study has {expected}")
    return part


def _write(directory: Path, plan: StudyPlan, parts: Sequence[Results]) -> None:
    import polars as pl

    for name in (store.CURVES, store.STREAMS):
        rows = [part.rows(name) for part in parts]
        store.write_rows(directory / name, pl.concat(rows, how="diagonal"))
    for folder in checksums.FOLDERS:
        shutil.rmtree(directory / folder, ignore_errors=True)  # of a join that was ended
    waves: dict[str, int] = {}
    for number, part in enumerate(parts, 1):
        _adopt(directory, plan.config, plan.part(number), part, waves)
        for carrier, facts in part.manifest["parts"].items():
            waves[carrier] = waves.get(carrier, 0) + facts["waves"]
    store.write_json(directory / store.CONFIG, plan.config)
    command = shlex.join(["aesjax", "run", *plan.words, "--out", "DIR"])  # as on one machine
    checksums.write_manifest(directory, _manifest([part.manifest for part in parts]) | {"command": command})


def _adopt(
    directory: Path, whole: Mapping[str, Any], own: Mapping[str, Any], part: Results, before: Mapping[str, int]
) -> None:
    """Take over what a part kept of its agents, by wave, after the ``before`` waves of each carrier."""
    for source in sorted(path for name in checksums.FOLDERS for path in part.directory.glob(f"{name}/*/*")):
        *_, name, carrier, wave_text = source.parts
        wave, dash, chunk = wave_text.partition("-")
        number = int(wave) + before.get(carrier, 0)
        target = directory / name / carrier / f"{number:03d}{dash}{chunk}"
        checkpoint.adopt(source, target, fingerprint_of(own), number, fingerprint_of(whole))


def _manifest(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One for all parts: what they agree on, sums, and for each part what is not alike in all, such as its host's."""
    first = manifests[0]
    alike = {k: v for k, v in first.items() if k not in OWN and (k in _COMMON or all(m.get(k) == v for m in manifests))}
    apart = sorted({k for m in manifests for k in m} - set(alike) - set(OWN))
    agents: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for manifest in manifests:
        for carrier, facts in manifest["parts"].items():
            known = parts.setdefault(carrier, {**facts, "runs": 0, "waves": 0, "seconds": 0.0})
            for name in ("runs", "waves", "seconds"):
                known[name] = round(known[name] + facts[name], 2)
            known["wave_width"] = max(known["wave_width"], facts["wave_width"])
        agents |= manifest.get("warm_start", {}).get("agents", {})
    return (
        alike
        | {
            "resumed": any(manifest["resumed"] for manifest in manifests),
            "wall_seconds": round(sum(manifest["wall_seconds"] for manifest in manifests), 2),
            "parts": parts,
            "runs": [run for manifest in manifests for run in manifest["runs"]],
            "joined": [
                {name: manifest.get(name) for name in ("wall_seconds", *apart)} | {"runs": len(manifest["runs"])}
                for manifest in manifests
            ],
        }
        | ({"warm_start": {**first["warm_start"], "agents": agents}} if agents else {})
    )
