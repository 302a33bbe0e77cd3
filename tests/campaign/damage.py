"""Files of a study that can be read and say what cannot be: wrong types, wrong shapes, other people's results."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_ALL = ("report", "replay", "calibrate", "export", "run", "verify")
CURVES = ("report", "replay", "verify")  # commands that read each Parquet file
STREAMS = ("replay", "calibrate", "verify")
_DEEP = "[" * 100_000 + "]" * 100_000
_Apply = Callable[[Path], None]


class Damage(NamedTuple):
    """Something done to the folder of the study `read`, see `tests.campaign.studies`."""

    name: str
    apply: _Apply
    readers: tuple[str, ...]  # commands that should notice
    mentions: tuple[str, ...]  # of which their sentence must name one


#: JSON texts that stand where something else should; `_DEEP` is nested beyond what any reader can follow.
_POISONS: Mapping[str, str] = {
    "null": "null",
    "text": '"nope"',
    "zero": "0",
    "negative": "-1",
    "huge": "1000000000",
    "beyond all integers": "1" + 400 * "0",
    "fraction": "0.5",
    "NaN": "NaN",
    "infinity": "Infinity",
    "true": "true",
    "empty list": "[]",
    "list of lists": '[["sac"]]',
    "empty object": "{}",
    "object": '{"sac": {"nope": [1]}}',
    "a hundred thousand deep": _DEEP,
}
CONFIG: Sequence[str] = (
    *("task", "carriers", "schedules", "patterns", "seeds", "steps", "evaluations", "episodes", "segments"),
    *("replay_capacity", "warmup", "proxy", "settings", "sweep", "options", "format"),
    *("settings.sac", "settings.sac.num_envs", "settings.sac.config", "settings.sac.hyper", "settings.sac.base"),
)
MANIFEST: Sequence[str] = (
    *("parts", "floors", "oracle", "patterns", "runs", "parts.sac", "parts.sac.updates", "versions", "inert"),
    *("parts.sac.updates_per_stream_sample", "parts.sac.wave_width", "patterns.steady", "oracle.toy", "floors.toy"),
    *("runs.0", "runs.0.method", "runs.0.seed", "runs.0.status", "runs.0.pattern"),
)
#: Where a poison is what might have been there.
_FITTING = {
    ("sweep", "empty object"),
    ("options", "empty object"),
    ("settings.sac.hyper", "empty object"),
    ("settings.sac.config", "empty object"),
    ("inert", "empty object"),
    ("warmup", "zero"),
    ("settings.sac.base", "fraction"),
}
_WHOLE_TEXTS: Mapping[str, bytes] = {
    "nothing": b"",
    "a bracket": b"{",
    "null": b"null",
    "a list": b"[1, 2]",
    "a number": b"1",
    "zeros": b"\0" * 100,
    "no UTF-8": b"\xff\xfe{\0}\0",
    "UTF-8 with a mark": b"\xef\xbb\xbf{}",
    "an empty object": b"{}",
    "its beginning": b'{"task": "toy", "preset": "quick", "carr',
    "a hundred thousand deep": _DEEP.encode(),
    "a hundred thousand objects deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
}


def damages() -> list[Damage]:
    """All of them, in an order that never changes."""
    return [*_of_json("config.json", CONFIG, _ALL), *_of_json("manifest.json", MANIFEST, _ALL[:4]), *_of_rows()]


def _of_json(name: str, fields: Sequence[str], readers: tuple[str, ...]) -> Iterator[Damage]:
    for told, content in _WHOLE_TEXTS.items():
        yield Damage(f"{name}: {told}", _replaced(name, content), readers, (name, "study"))
    for field in fields:
        leaf = field.rpartition(".")[2]
        for told, poison in _POISONS.items():
            if (field, told) not in _FITTING:
                yield Damage(f"{name}: {field} is {told}", _poisoned(name, field, poison), readers, (name, leaf))
        yield Damage(f"{name}: no {field}", _poisoned(name, field, None), readers, (name, leaf))
    yield Damage(f"{name}: an unknown field", _poisoned(name, "nope", "1"), readers, (name, "nope"))
    yield from _of_place(name, readers)


def _of_place(name: str, readers: tuple[str, ...]) -> Iterator[Damage]:
    """No file where a file should be."""

    def missing(study: Path) -> None:
        (study / name).unlink()

    def folder(study: Path) -> None:
        (study / name).unlink()
        (study / name).mkdir()

    def linked(target: str) -> _Apply:
        def apply(study: Path) -> None:
            (study / name).unlink()
            (study / name).symlink_to(study / target)

        return apply

    for told, apply in {"missing": missing, "a folder": folder}.items():
        yield Damage(f"{name}: {told}", apply, readers, (name, "study"))
    for told, target in {"a broken link": "nowhere", "a link to itself": name}.items():
        yield Damage(f"{name}: {told}", linked(target), readers, (name, "study"))


def _of_rows() -> Iterator[Damage]:
    import polars as pl

    for name, readers in (("curves.parquet", CURVES), ("streams.parquet", STREAMS)):
        for told, content in {
            "nothing": b"",
            "text": b"not parquet",
            "a shell": b"PAR1" + b"\0" * 64 + b"PAR1",
        }.items():
            yield Damage(f"{name}: {told}", _replaced(name, content), readers, (name, "study"))
        for told, change in _changes(name).items():
            yield Damage(f"{name}: {told}", _rewritten(name, change), readers, (name, "study"))
        yield from _of_place(name, readers)
    for column in ("method", "carrier", "pattern", "seed", "task", "step", "return_mean", "schedule", "entropy_weight"):
        drop = _rewritten("curves.parquet", lambda rows, column=column: rows.drop(column))
        number = _rewritten("curves.parquet", lambda rows, column=column: rows.with_columns(pl.lit(None).alias(column)))
        text = _rewritten("curves.parquet", lambda rows, column=column: rows.with_columns(pl.lit("nope").alias(column)))
        for told, apply in {"no column": drop, "nothing in": number, "text in": text}.items():
            yield Damage(f"curves.parquet: {told} {column}", apply, CURVES, ("curves.parquet", column))

    def swapped(study: Path) -> None:
        (study / "curves.parquet").rename(study / "kept")
        (study / "streams.parquet").rename(study / "curves.parquet")
        (study / "kept").rename(study / "streams.parquet")

    def merged(study: Path) -> None:
        shutil.copy(study / "report" / "metrics.parquet", study / "curves.parquet")

    yield Damage("curves and streams swapped", swapped, CURVES, ("curves.parquet", "streams.parquet"))
    yield Damage("metrics in the place of curves", merged, CURVES, ("curves.parquet",))


def _changes(name: str) -> dict[str, Callable[[Any], Any]]:
    """Parquet that is none of this study's; what each does to the rows."""
    import polars as pl

    label = pl.col("method")
    measured = "return_mean" if name == "curves.parquet" else "td_quantile/update"
    lists = name == "streams.parquet"
    return {
        "no rows": lambda rows: rows.head(0),
        "no columns": lambda rows: rows.select([]),
        "one row": lambda rows: rows.head(1),
        "rows twice": lambda rows: pl.concat([rows, rows]),
        "of another method": lambda rows: rows.with_columns(label + "+nope"),
        "of another pattern": lambda rows: rows.with_columns(pattern=pl.lit("linear")),
        "of another carrier": lambda rows: rows.with_columns(carrier=pl.lit("ppo")),
        "of other seeds": lambda rows: rows.with_columns(pl.col("seed") + 100),
        "of another task": lambda rows: rows.with_columns(task=pl.lit("hopper")),
        "seeds as text": lambda rows: rows.with_columns(pl.col("seed").cast(pl.String)),
        "measured: text": lambda rows: rows.with_columns(pl.lit("x").alias(measured)),
        "measured: lists of text": lambda rows: rows.with_columns(pl.lit(["x"]).alias(measured)),
        "measured: nothing": lambda rows: rows.with_columns(pl.lit(None).alias(measured)),
        "measured: shorter": lambda rows: (
            rows.with_columns(pl.col(measured).list.head(3)) if lists else rows.head(rows.height // 2)
        ),
        "measured: ragged": lambda rows: (
            rows.with_columns(pl.col(measured).list.head(pl.int_range(pl.len()) + 5)) if lists else rows[::3]
        ),
        "measured: elsewhere": lambda rows: rows.rename({measured: "nope"}),
    }


def _replaced(name: str, content: bytes) -> _Apply:
    def apply(study: Path) -> None:
        (study / name).write_bytes(content)

    return apply


def _poisoned(name: str, field: str, poison: str | None) -> _Apply:
    """One field of a JSON file replaced by a text, or removed."""

    def apply(study: Path) -> None:
        data = json.loads((study / name).read_text())
        *parents, leaf = field.split(".")
        inner = data
        for parent in parents:
            inner = inner[int(parent)] if isinstance(inner, list) else inner[parent]
        key: Any = int(leaf) if isinstance(inner, list) else leaf
        if poison is None:
            inner.pop(key, None) if isinstance(inner, dict) else inner.pop(key)
        else:
            inner[key] = "POISON"
        (study / name).write_text(json.dumps(data, indent=1).replace('"POISON"', poison or ""))

    return apply


def _rewritten(name: str, change: Callable[[Any], Any]) -> _Apply:
    def apply(study: Path) -> None:
        import polars as pl

        change(pl.read_parquet(study / name)).write_parquet(study / name)

    return apply
