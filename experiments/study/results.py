"""The one door to the folder of a finished study: checksums checked, shapes checked, then opened.

Everything that reads results (`report`, `replay`, `calibrate`, `video`, controls, warm starts) comes through
`open_results`, so that a damaged file gets the same sentence everywhere and never a traceback.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.study import checksums, store

if TYPE_CHECKING:
    import polars as pl


Run = tuple[str, str, int]  # method, pattern, seed
MOST_SEGMENTS = 10_000
_LABELS = ("task", "method", "pattern", "seed")
_TEXT = ("family", "task", "method", "pattern", "carrier", "schedule", "variant")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    store.CURVES: ("family", *_LABELS, "step", "return_mean"),
    store.STREAMS: (*_LABELS, "carrier"),
}


class Results(NamedTuple):
    """A finished study whose manifest matches its checksum."""

    directory: Path
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]

    def check(self, name: str) -> bytes:
        """Return the bytes of one of the result files.

        Raises:
          ValueError: it is missing, or does not match the manifest.
        """
        path = self.directory / name
        if not path.is_file():
            raise ValueError(f"{path} does not exist; is this the folder of a finished study?")
        data = store.read_bytes(path)
        if self.manifest[checksums.FILES].get(name) != store.sha256_of(data):
            raise ValueError(f"{path} was changed or damaged: it does not match its checksum in {store.MANIFEST}")
        return data

    def rows(self, name: str) -> "pl.DataFrame":
        """`store.CURVES` or `store.STREAMS`, whose runs are those of the manifest.

        Raises:
          ValueError: it is missing, damaged, or of another study.
        """
        path = self.directory / name
        rows = store.rows_from(path, self.check(name))
        _check_rows(path, rows, _COLUMNS[name])
        if rows.is_empty():
            raise ValueError(f"{path} holds no rows")
        self._check_runs(path, rows)
        return rows

    def _check_runs(self, path: Path, rows: "pl.DataFrame") -> None:
        """Refuse rows that are not those of the manifest's runs, or contradict the configuration."""
        listed = [(*(run[name] for name in _LABELS), run["status"]) for run in self.manifest.get("runs", ())]
        known, there = {run[:-1] for run in listed}, set(rows.select(_LABELS).unique().iter_rows())
        keys = rows.select(name for name in (*_LABELS, "step") if name in rows.columns)
        for runs, fault in (
            (there - known if listed else (), f"holds a run that is not in {store.MANIFEST}"),
            ({run[:-1] for run in listed if run[-1] == "finished"} - there, "lacks a run that has finished"),
            ([run[:4] for run in keys.filter(keys.is_duplicated()).iter_rows()], "holds a run twice"),
            (known if len(known) < len(listed) else (), f"has a {store.MANIFEST} that lists a run twice"),
        ):
            if runs:
                task, method, pattern, seed = min(runs)
                raise ValueError(f"{path} {fault}: {method} on '{task}', {pattern}, seed {seed}")
        recorded = {"seeds": set(rows["seed"]), "patterns": set(rows["pattern"])}
        wrong = [name for name, values in recorded.items() if values - set(self.config.get(name, values))]
        for task, own in rows.group_by("task") if "step" in rows.columns else ():
            steps, points = self.config["steps"], own["step"].unique().sort()
            horizon = steps.get(task[0]) if isinstance(steps, dict) else steps
            wrong += ["steps"] if (points[0], points[-1]) != (0, horizon) else []
            wrong += ["evaluations"] if self.config.get("evaluations", len(points) - 1) != len(points) - 1 else []
        if wrong:
            raise ValueError(f"{path} contradicts '{wrong[0]}' of {store.CONFIG}")

    def runs(self, status: str) -> set[Run]:
        """The runs with this status, ``finished`` or ``diverged``."""
        return {(r["method"], r["pattern"], r["seed"]) for r in self.manifest.get("runs", ()) if r["status"] == status}


def open_results(directory: Path) -> Results:
    """The finished study in ``directory`` (ValueError where there is none, it has not ended, or it is damaged)."""
    config, manifest = directory / store.CONFIG, directory / store.MANIFEST
    if not config.exists():
        raise ValueError(f"{directory} holds no study: there is no {store.CONFIG}")
    if not manifest.exists():
        raise ValueError(f"the study in {directory} is not finished: there is no {store.MANIFEST}; --resume its run")
    store.check_links(directory)
    stored = store.json_from(manifest, checksums.check_sum(manifest, directory / checksums.SUM))
    _check_manifest(manifest, stored)
    results = Results(directory, {}, stored)
    data = store.json_from(config, results.check(store.CONFIG))
    _check_config(config, data)
    return results._replace(config=data)


def _check_manifest(path: Path, data: Any) -> None:
    """Refuse a manifest in which a reader would stumble."""
    _require(isinstance(data, dict), path, "it", "a JSON object", data)
    files = data.get(checksums.FILES)
    fine = isinstance(files, dict) and all(isinstance(value, str) for value in files.values())
    _require(fine, path, f"'{checksums.FILES}'", "paths with their SHA-256", files)
    runs = data.get("runs", [])
    _require(isinstance(runs, list), path, "'runs'", "a list", runs)
    for run in runs:
        fine = isinstance(run, dict) and all(isinstance(run.get(name), str) for name in ("task", "method", "pattern"))
        _require(fine, path, "a run", "an object with task, method, pattern, seed and status", run)
        _require(_whole(run.get("seed")), path, "'seed' of a run", "a whole number", run.get("seed"))
        _require(isinstance(run.get("status"), str), path, "'status' of a run", "text", run.get("status"))
    for name, fits, wanted in (
        ("floors", _number, "numbers"),
        ("oracle", _is_group, "objects or lists"),
        ("inert", _is_list, "lists"),
        ("parts", _is_dict, "objects"),
        ("patterns", _is_dict, "objects"),
    ):
        entry = data.get(name, {})
        fine = isinstance(entry, dict) and all(map(fits, entry.values()))
        _require(fine, path, f"'{name}'", f"an object of {wanted}", entry)
    small = data.get("small_windows", [])
    _require(_is_list(small) and _texts(small), path, "'small_windows'", "a list of text", small)
    for carrier, part in data.get("parts", {}).items():
        for name in part.keys() & {"updates", "updates_per_stream_sample"}:  # what a replay counts with
            fine = part[name] == 0 or is_count(part[name])  # none where all steps are warm-up
            _require(fine, path, f"'parts.{carrier}.{name}'", "a whole number", part[name])


def _check_config(path: Path, data: Any) -> None:
    """Refuse a configuration in which a reader would stumble; `experiments.study.config` knows the rest of it."""
    _require(isinstance(data, dict), path, "it", "a JSON object", data)
    steps = data.get("steps")
    horizons = list(steps.values()) if isinstance(steps, dict) else [steps]
    _require(bool(horizons) and all(map(is_count, horizons)), path, "'steps'", "a positive whole number", steps)
    schedules = data.get("schedules")
    lists = list(schedules.values()) if isinstance(schedules, dict) else [schedules]
    for own in (data.get("carriers"), data.get("patterns"), data.get("seeds"), *lists):
        fine = own is None or (_is_list(own) and len(set(map(repr, own))) == len(own))
        _require(fine, path, "a list", "of different names or numbers", own)
    segments = data.get("segments")
    fine = is_count(segments) and segments <= MOST_SEGMENTS
    _require(fine, path, "'segments'", f"a whole number from 1 to {MOST_SEGMENTS}", segments)
    settings = data.get("settings", {})
    fine = _is_dict(settings) and all(map(_is_dict, settings.values()))
    _require(fine, path, "'settings'", "an object of objects", settings)
    for carrier, own in settings.items():
        for name in own.keys() & {"num_envs", "warmup"}:
            _require(is_count(own[name]), path, f"'settings.{carrier}.{name}'", "a positive whole number", own[name])
    options = data.get("options", {})
    fine = _is_dict(options) and all(_texts(value) for value in options.values() if _is_list(value))
    _require(fine, path, "'options'", "an object of values or of lists of text", options)
    warm = data.get("warm_start")
    fine = not warm or (_is_dict(warm) and isinstance(warm.get("sha256"), str))
    _require(fine, path, "'warm_start'", "an object with the SHA-256 of what was begun with", warm)
    if "evaluations" in data:  # absent where studies of several horizons were merged
        evaluations = data["evaluations"]
        _require(is_count(evaluations), path, "'evaluations'", "a positive whole number", evaluations)


def _check_rows(path: Path, rows: "pl.DataFrame", columns: tuple[str, ...]) -> None:
    """Refuse a missing column, one of another type, and gaps where every row has a value."""
    import polars as pl

    if absent := [name for name in columns if name not in rows.columns]:
        raise ValueError(f"{path} lacks the column '{absent[0]}'; is it another file of a study?")
    for name, kind in rows.schema.items():
        wanted, fine = "numbers", kind.is_integer() or kind.is_float() or kind == pl.Null
        if name in _TEXT:
            wanted, fine = "text", kind == pl.String
        elif name in ("seed", "step"):
            wanted, fine = "whole numbers", kind.is_integer()
        elif "step" not in columns:
            wanted, fine = (
                "lists of numbers, as many in every run of a carrier",
                kind in (pl.List(pl.Float32), pl.List(pl.Float64)),
            )
            sizes = pl.col(name).list.len().drop_nulls().unique().alias("sizes")
            own = rows.group_by("task", "carrier").agg(sizes)["sizes"] if fine else ()
            fine = fine and all(len(each) < 2 and 0 not in each for each in own)
        if not fine:
            raise ValueError(f"{path}: column '{name}' must hold {wanted}; it holds {kind}")
        if name in columns and rows[name].null_count():
            raise ValueError(f"{path}: column '{name}' must have a value in every row")


def _require(fine: bool, path: Path, what: str, wanted: str, value: Any) -> None:
    if not fine:
        raise ValueError(f"{path} is damaged: {what} must be {wanted}; got {store.shortened(value)}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Whether a JSON value is a positive whole number that a float holds exactly."""
    return _whole(value) and 0 < value < 2**53


def _number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _is_group(value: Any) -> bool:
    return isinstance(value, dict | list)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _texts(value: list[Any]) -> bool:
    return all(isinstance(entry, str) for entry in value)
