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
        known = {(run["task"], run["method"], run["pattern"], run["seed"]) for run in self.manifest.get("runs", ())}
        if known and (strange := sorted(set(rows.select(_LABELS).unique().iter_rows()) - known)):
            task, method, pattern, seed = strange[0]
            raise ValueError(
                f"{path} holds a run that is not in {store.MANIFEST}: {method} on '{task}', {pattern}, seed {seed}"
            )
        return rows

    def runs(self, status: str) -> set[Run]:
        """The runs with this status, ``finished`` or ``diverged``."""
        return {(r["method"], r["pattern"], r["seed"]) for r in self.manifest.get("runs", ()) if r["status"] == status}


def open_results(directory: Path) -> Results:
    """The finished study in ``directory``.

    Raises:
      ValueError: there is none, it has not ended, has no checksum, or is damaged; one sentence that names the file.
    """
    config, manifest = directory / store.CONFIG, directory / store.MANIFEST
    if not config.exists():
        raise ValueError(f"{directory} holds no study: there is no {store.CONFIG}")
    if not manifest.exists():
        raise ValueError(f"the study in {directory} is not finished: there is no {store.MANIFEST}; --resume its run")
    told = store.json_from(manifest, checksums.check_sum(manifest, directory / checksums.SUM))
    _check_manifest(manifest, told)
    results = Results(directory, {}, told)
    data = store.json_from(config, results.check(store.CONFIG))
    _check_config(config, data)
    return results._replace(config=data)


def _check_manifest(path: Path, data: Any) -> None:
    """Refuse a manifest in which a reader would stumble.

    Raises:
      ValueError: naming the file, the entry and what it must be.
    """
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
    for carrier, part in data.get("parts", {}).items():
        for name in part.keys() & {"updates", "updates_per_stream_sample"}:  # what a replay counts with
            fine = part[name] == 0 or is_count(part[name])  # none where all steps are warm-up
            _require(fine, path, f"'parts.{carrier}.{name}'", "a whole number", part[name])


def _check_config(path: Path, data: Any) -> None:
    """Refuse a configuration in which a reader would stumble; `experiments.study.config` knows the rest of it.

    Raises:
      ValueError: naming the file, the entry and what it must be.
    """
    _require(isinstance(data, dict), path, "it", "a JSON object", data)
    steps = data.get("steps")
    horizons = list(steps.values()) if isinstance(steps, dict) else [steps]
    _require(bool(horizons) and all(map(is_count, horizons)), path, "'steps'", "a positive whole number", steps)
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
    if absent := [name for name in columns if name not in rows.columns]:
        raise ValueError(f"{path} lacks the column '{absent[0]}'; is it another file of a study?")
    for name in columns:
        kind = rows.schema[name]
        wanted = "whole numbers" if name in ("seed", "step") else "numbers" if name == "return_mean" else "text"
        fine = {"whole numbers": kind.is_integer(), "numbers": kind.is_numeric(), "text": kind == _text()}[wanted]
        if not fine:
            raise ValueError(f"{path}: column '{name}' must hold {wanted}; it holds {kind}")


def _text() -> Any:
    import polars as pl

    return pl.String


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
