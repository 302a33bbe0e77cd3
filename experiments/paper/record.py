"""A record: the runs of many studies in three files.

`curves.parquet` holds the evaluations and `grid.json` the configurations, versions and devices of the studies.
`runs.parquet` has one row per run, computed from both; tables, figures and the audit are made of it alone.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from experiments.measure.catalog import CATALOG, run_metrics
from experiments.measure.curves import Value
from experiments.measure.study import MERGED, RecordedRun, load_study, originals
from experiments.paper import times
from experiments.study import store
from experiments.study.codec import decode, encode
from experiments.study.config import StudyConfig, config_from_json
from experiments.study.folder import Owner
from experiments.study.method import Method
from experiments.study.store import open_results

RESULTS = Path(__file__).resolve().parents[1] / "results"
GRID = RESULTS / "grid"
STUDIES, RUNS = "grid.json", "runs.parquet"
NAN = float("nan")
#: Fields that must agree before runs of two studies are compared, besides the settings of common carriers.
_ALIKE = ("task", "preset", "steps", "horizon", "evaluations", "episodes", "segments", "onset", "changes", "drift_seed",
          "proxy", "source", "options", "observe", "history")  # fmt: skip
_SIZES = ("replay_capacity", "warmup")  # of the carriers that both have
_IN_STUDY = ("method", "pattern", "seed")
#: Columns that name a run of a record.
RUN = ("study", *_IN_STUDY)
_LABELS = ("study", "family", "task", "carrier", "method", "schedule", "variant", "pattern", "seed", "step")
_LOGS = ("return_mean", "online_return", "entropy_weight", "at_min", "at_max", "drift_value", "gradient_steps")
_ABOUT = ("aesjax", "commit", "python", "versions", "platform", "device", "num_devices", "matmul_precision", "x64",
          "xla_flags", "wall_seconds", "parts", "floors", "patterns", "command")  # fmt: skip
_METRICS = tuple(row.name for row in CATALOG.values() if row.recorded)
_LEVELS = ("weight_noise", "first_change", "before_change")
_COLUMNS = ("study", "group", "family", "task", "preset", "steps", "trained", "channels", "carrier", "method",
            "definition", "pattern", "seed", "status", "gradient_steps", "floor", "untrained", *_METRICS,
            *_LEVELS)  # fmt: skip
#: (record, study, task, carrier) -> the configuration of its runs.
Configs = Mapping[tuple[str, str, str, str], StudyConfig]


class Record(NamedTuple):
    """The contents of the three files."""

    curves: pl.DataFrame
    runs: pl.DataFrame
    studies: dict[str, Any]  # name -> configuration, versions, device, commit, seconds


class Gathered(NamedTuple):
    """The runs of records and studies, with their configurations."""

    runs: pl.DataFrame
    configs: Configs
    seconds: Mapping[tuple[str, str], float]  # (task, carrier) -> of one run and environment step, in the largest study


@cache
def method_of(definition: str) -> Method:
    """The method of a row of ``runs.parquet``; custom objects are stand-ins."""
    return decode(Method, json.loads(definition), "definition")


def methods_of(runs: pl.DataFrame) -> dict[str, Method]:
    """Name in tables -> method, of some rows."""
    names = runs.select("method", "definition").unique("method", maintain_order=True)
    return {name: method_of(definition) for name, definition in names.iter_rows()}


def valid_mean(*columns: str) -> pl.Expr:
    """Means of columns over the runs that have a value; NaN where none has."""
    return pl.col(*columns).fill_nan(None).mean().fill_null(NAN)


def read(folder: Path = GRID) -> Record:
    """The record in a folder (ValueError where a file is missing or damaged)."""
    curves, runs = (store.read_rows(folder / name) for name in (store.CURVES, RUNS))
    newer = [name for name in (*_METRICS, *_LEVELS) if name not in runs.columns]  # than the record
    runs = runs.with_columns(pl.lit(NAN).alias(name) for name in newer).select(_COLUMNS)
    runs = runs.cast({pl.Float32: pl.Float64}).with_columns(pl.col(pl.Float64).fill_null(NAN))
    return Record(curves, runs, store.read_json(folder / STUDIES))


def record(folders: Sequence[Path], out: Path = GRID) -> None:
    """Add finished studies to the record in ``out`` and score all of its runs; a study of the same name is replaced.

    Raises:
      ValueError: a folder holds no finished study, or files that do not match their checksums; another process adds
        to the record.
    """
    new = {folder.name: _study(folder) for folder in folders}
    out.mkdir(parents=True, exist_ok=True)
    with Owner(out):
        old = read(out) if (out / STUDIES).exists() else Record(pl.DataFrame(), pl.DataFrame(), {})
        frames = [old.curves.filter(~pl.col("study").is_in(list(new)))] if old.studies else []
        frames += [rows.with_columns(study=pl.lit(name)) for name, (_, rows) in new.items()]
        curves = pl.concat(frames, how="diagonal_relaxed").sort("study", maintain_order=True)
        curves = curves.select(name for name in (*_LABELS, *_LOGS) if name in curves.columns)
        curves = curves.with_columns(pl.col(name).cast(pl.Float32) for name in _LOGS if name in curves.columns)
        studies = dict(sorted((old.studies | {name: about for name, (about, _) in new.items()}).items()))
        alone = old.runs.filter(~pl.col("study").is_in(list(old.studies))) if old.studies else old.runs
        write(out, curves, studies, alone)


def write(out: Path, curves: pl.DataFrame, studies: Mapping[str, Any], alone: pl.DataFrame) -> None:
    """Write curves, studies, and the scores of their runs with those that are stored ``alone``, without curves."""
    runs = pl.concat([scores(curves, studies), alone], how="diagonal_relaxed")  # raises before a file is replaced
    store.write_rows(out / store.CURVES, curves)
    store.write_rows(out / RUNS, runs.with_columns(pl.col(pl.Float64).cast(pl.Float32)))
    store.write_json(out / STUDIES, studies)


def gather(places: Sequence[Path]) -> Gathered:
    """The runs of records and of finished studies, whose checksums are checked; studies alike share a group.

    The column ``record`` has the folder of a run's record, and is empty for studies outside of records.

    Args:
      places: folders of records or studies, or folders in which such folders lie, however deep.

    Raises:
      ValueError: there is none, or one cannot be read; one sentence that names it.
    """
    folders = list(dict.fromkeys(folder for place in places for folder in _folders(place)))
    records = [folder for folder in folders if (folder / STUDIES).exists()]
    frames: list[pl.DataFrame] = []
    studies: dict[tuple[str, str], Any] = {}  # (record, name) -> its configuration and conditions
    for folder in records:
        stored = read(folder)
        # Rows without curves, of which only scores are stored, are no evidence.
        whole = [name for name, study in stored.studies.items() if _is_evidence(study["config"])]
        rows = stored.runs.filter(pl.col("study").is_in(whole))
        frames.append(rows.with_columns(record=pl.lit(folder.as_posix())))
        studies |= {(folder.as_posix(), name): study for name, study in stored.studies.items()}
    loaded: dict[str, Any] = {}
    curves: list[pl.DataFrame] = []
    for folder in (folder for folder in folders if folder not in records):
        about, rows = _study(folder)
        if _is_evidence(about["config"]):
            loaded[folder.as_posix()] = about
            curves.append(rows.with_columns(study=pl.lit(folder.as_posix())))
    if loaded:
        frames.append(scores(pl.concat(curves, how="diagonal_relaxed"), loaded).with_columns(record=pl.lit("")))
    columns = [*_COLUMNS, "record"]
    runs = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame(schema=columns)
    studies |= {("", name): study for name, study in loaded.items()}
    rates = times.rates(studies, ("task", "carrier"))
    seconds = {(rate.task, rate.carrier): rate.seconds_per_step for rate in rates}
    return Gathered(runs, _configs(studies), seconds)


def _is_evidence(config: Mapping[str, Any]) -> bool:
    """Whether a study is neither a reference, whose agents observe the drift, nor the trials of a tuning."""
    return not config.get("observe") and not config.get("horizon")


def _configs(studies: Mapping[tuple[str, str], Any]) -> Configs:
    configs: dict[tuple[str, str, str, str], StudyConfig] = {}
    for (place, name), study in studies.items():
        for data in originals(study["config"]):
            config = config_from_json(data)
            for carrier in config.carriers:
                configs[place, name, config.task, carrier] = config
    return configs


def _folders(place: Path) -> list[Path]:
    """``place`` if it is a record or a study, else those in it, and none that lies inside another."""
    if (place / store.CONFIG).exists() or (place / STUDIES).exists():
        return [place]
    if not place.is_dir():
        raise ValueError(f"{place} is not a folder")
    found: list[Path] = []
    for path in sorted([*place.rglob(store.MANIFEST), *place.rglob(STUDIES)]):
        finished = path.name == STUDIES or (path.parent / store.CONFIG).exists()
        if finished and not any(path.is_relative_to(other) for other in found):
            found.append(path.parent)
    if not found:
        raise ValueError(
            f"{place} holds neither a record nor a finished study: there is no {STUDIES}, and no {store.MANIFEST} "
            f"beside a {store.CONFIG}"
        )
    return found


def _study(folder: Path) -> tuple[dict[str, Any], pl.DataFrame]:
    """Configuration, conditions and evaluations of a finished study; folders of others in them become names."""
    results = open_results(folder)
    config, manifest = dict(results.config), results.manifest
    for part in (part for part in ("controls", "warm_start") if config.get(part)):
        config[part] = config[part] | {"from": Path(config[part]["from"]).name}
    about = {name: manifest.get(name) for name in _ABOUT}
    about["command"] = re.sub(r"(?<= )/\S*/", "", about["command"] or "")  # without folders of this machine
    if "changes" in manifest:  # of other patterns: where segments begin
        about["changes"] = manifest["changes"]
    about["unfinished"] = [run for run in manifest.get("runs", ()) if run["status"] != "finished"]
    return {"config": config, **about}, results.rows(store.CURVES)


def scores(curves: pl.DataFrame, studies: Mapping[str, Any]) -> pl.DataFrame:
    """One row per run: what it is, its status and its metrics, by the references of its group of studies.

    A run that two studies of a group have counts once, as the first has it.

    Raises:
      ValueError: configuration, manifest and curves of a study do not fit together.
    """
    own = curves.partition_by("study", as_dict=True)
    rows = []
    for group in _groups(studies):
        try:
            rows += _scored(group, [own[(name,)] for name, _ in group], studies)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{group[0][0]}: config, manifest and curves do not fit together ({error!r})") from error
    return pl.DataFrame(rows, list(_COLUMNS), infer_schema_length=None)


_Group = list[tuple[str, Mapping[str, Any]]]  # (study, its configuration)


def _groups(studies: Mapping[str, Any]) -> list[_Group]:
    """Studies whose runs may be compared; one that holds several tasks is in several groups."""
    groups: list[_Group] = []
    for name, study in studies.items():
        for config in originals(study["config"]):
            fitting = (group for group in groups if all(fits(config, other) for _, other in group))
            if (group := next(fitting, None)) is None:
                groups.append(group := [])
            group.append((name, config))
    return groups


def fits(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether runs of two configurations may be compared."""
    common = set(ours.get("settings", {})) & set(theirs.get("settings", {}))
    names = (*_ALIKE, *(_SIZES if common else ()))
    if any(ours.get(name) != theirs.get(name) for name in names) or _began(ours, common) != _began(theirs, common):
        return False
    return all(ours["settings"][name] == theirs["settings"][name] for name in common)


def _began(config: Mapping[str, Any], common: Collection[str]) -> dict[str, Any]:
    """With what runs began, wherever it lies: nothing where they were untrained.

    The digest is of the agents of a study's own carriers, so without a ``common`` one it tells nothing.
    """
    apart = {"from"} if common else {"from", "sha256"}
    return {name: value for name, value in (config.get("warm_start") or {}).items() if name not in apart}


def _scored(group: _Group, curves: Sequence[pl.DataFrame], studies: Mapping[str, Any]) -> list[dict[str, Any]]:
    frames: list[pl.DataFrame] = []
    sources: dict[tuple, str] = {}  # run -> study
    unfinished: list[Mapping[str, Any]] = []
    for (name, config), all_rows in zip(group, curves, strict=True):
        rows = all_rows.filter(task=config["task"])
        for frame in frames:
            rows = rows.join(frame, on=_IN_STUDY, how="anti")
        frames.append(rows)
        broken = {tuple(r[k] for k in _IN_STUDY): r for r in studies[name]["unfinished"] if r["task"] == config["task"]}
        unfinished += [run for key, run in broken.items() if key not in sources]
        sources = {**dict.fromkeys([*rows.select(_IN_STUDY).unique().iter_rows(), *broken], name), **sources}
    of, configs = [studies[name] for name, _ in group], [config for _, config in group]
    first, task = configs[0], configs[0]["task"]
    patterns = {name: facts for each in reversed(of) for name, facts in (each["patterns"] or {}).items()}
    changes = reduce(store.merged, (each.get("changes", {}) for each in of), {})
    manifest = {"runs": unfinished, "floors": of[0]["floors"] or {}, "patterns": patterns, "changes": changes}
    rows = pl.concat(frames, how="diagonal_relaxed")
    study = load_study(rows, {**first, MERGED: configs}, manifest)
    same = {
        "group": group[0][0],
        "task": task,
        "preset": str(first.get("preset", "")),
        "steps": int(study.horizons[task]),
        "trained": bool(first.get("warm_start")),
        "channels": ",".join(map(str, (first.get("options") or {}).get("channels", ()))),
        "floor": study.floors.get(task, NAN),
    }
    definitions = {name: json.dumps(encode(method)) for name, method in study.definitions.items()}
    begin = (first.get("onset") or 1 / study.segments) * study.horizons[task]
    scored = []
    for key, run in study.runs.items():
        source, metrics = sources[key[2:]], run_metrics(study, key, CATALOG.values())
        carrier = study.definitions[key.method].carrier.name
        updates = metrics["gradient_steps"].value if "gradient_steps" in metrics else NAN
        parts = (studies[source]["parts"] or {}).get(carrier, {})
        row = {
            **same,
            "study": source,
            "family": key.family,
            "carrier": carrier,
            "method": key.method,
            "definition": definitions[key.method],
            "pattern": key.pattern,
            "seed": key.seed,
            "status": run.problem or "finished",
            "gradient_steps": parts.get("updates") if np.isnan(updates) else int(updates),
            "untrained": float(run.curve.returns[0]) if run.curve else NAN,
            "weight_noise": _noise(run, study.horizons[task]),
            "first_change": begin,
            "before_change": _before(run, begin, study.horizons[task]),
        }
        for metric in _METRICS:
            row[metric] = float(metrics.get(metric, Value(NAN)).value)
        scored.append(row)
    return scored


def _noise(run: RecordedRun, steps: float) -> float:
    """Standard deviation of the entropy weight over its mean, in the second half of a run."""
    weight = run.logs.get("entropy_weight", np.zeros(0))
    late = weight[(run.steps >= steps / 2) & np.isfinite(weight)] if len(weight) else weight
    return float(np.std(late) / np.mean(late)) if not run.problem and len(late) > 1 and np.mean(late) > 0 else NAN


def _before(run: RecordedRun, begin: float, steps: float) -> float:
    """Mean return of a run in the tenth of its ``steps`` before ``begin``, of its first change."""
    if run.curve is None:
        return NAN
    late = (run.curve.steps > begin - 0.1 * steps) & (run.curve.steps <= begin)
    return float(np.mean(run.curve.returns[late])) if late.any() else NAN
