"""Statistics on logs of other trainers: CSV, Parquet, W&B charts, TensorBoard event files, `evaluations.npz`."""

import csv
import dataclasses
import io
import math
import re
import struct
import zipfile
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from aesjax.registry import listed, lookup
from aesjax.typed import require, several, typed
from experiments.measure.catalog import Metric
from experiments.measure.study import LOGS, STEADY, load_study
from experiments.report.write import status_of
from experiments.session.results import Results
from experiments.session.study import LogOptions
from experiments.study import store

#: Part of a log -> usual names of its column in lower case; the first that exists is read.
_NAMES = {
    "method": "method algo algorithm agent exp_name",
    "seed": "seed",
    "pattern": "pattern condition",
    "task": "task env_id env environment",
    "step": "step global_step total_timesteps time/total_timesteps timesteps _step",
    "returns": "return return_mean eval/mean_reward eval/return mean_reward episodic_return charts/episodic_return "
    "rollout/ep_rew_mean",
    "state": "",  # value of a column of changes
}
_RUN = ["task", "method", "pattern", "seed"]
_FORM = r"(?P<method>[^/]+?)(?:[-_/. ]+(?:seed|s)?|seed)[-_= ]*(?P<seed>\d+)"
_OF_FOLDER = ("evaluations.npz", "progress.csv")  # files with the name of their folder
_EVENTS = "events.out.tfevents"


def compare(logs: Any, *, metrics: Iterable[Metric] = (), **options: Any) -> Results:
    """`Results` of other trainers' logs, with the comparisons, metrics, profiles and report of a study.

    Args:
      logs: a data frame (Polars, pandas, a mapping of columns) with a row per run and evaluation, or files: CSV, also
        of a W&B chart, Parquet, TensorBoard event files, ``evaluations.npz`` of SB3. Nothing in them is executed.
      metrics: custom metrics.
      options: fields of `experiments.session.study.LogOptions`.

    Raises:
      ValueError, UnknownNameError, ModuleNotFoundError: a row, column or file that cannot be read, or no pairs of runs.
    """
    chosen = LogOptions(**options)
    types = {field.name: field.type for field in dataclasses.fields(LogOptions)}
    chosen = LogOptions(**{name: typed(types[name], value, name) for name, value in vars(chosen).items()})
    sources = logs if isinstance(logs, list | tuple) else [logs]
    rows = pl.concat([_canonical(*_opened(log), chosen) for log in sources]).with_row_index("at")
    rows = rows.sort(pl.col("at").min().over(_RUN), "step", "at")  # runs in order of appearance
    rows = rows.with_columns(pl.col("state").forward_fill().over(_RUN)).drop_nulls("return_mean")
    if chosen.every is not None:
        require(chosen.every > 0, "every", "a positive number of steps", chosen.every)
        step = ((pl.col("step") / chosen.every).floor() * chosen.every).alias("step")
        means = pl.col("return_mean").mean(), pl.col("state").first()
        rows = rows.group_by(*_RUN, step, maintain_order=True).agg(*means)
        rows = rows.filter(pl.col("step") <= pl.col("step").max().over("task", "method").min().over("task"))
    for run in rows.filter(pl.struct(*_RUN, "step").is_duplicated()).rows(named=True)[:1]:
        text = "{method}, seed {seed}, has two returns at step {step:g}; give the option every, or the run once"
        raise ValueError(text.format(**run))
    methods = rows["method"].unique(maintain_order=True)
    if len(methods) < 2:
        raise ValueError(f"a comparison needs two methods; the logs have {listed(methods) or 'no returns'}")
    baseline = lookup("method of these logs", {name: name for name in methods}, chosen.baseline or methods[0])
    horizons: dict[Any, Any] = dict(rows.group_by("task", maintain_order=True).agg(pl.col("step").max()).iter_rows())
    require(chosen.floor is None or math.isfinite(chosen.floor), "floor", "a finite return", chosen.floor)
    require(chosen.floor is None or len(horizons) == 1, "floor", "given for logs of one task", chosen.floor)
    changes = _changes(rows, chosen.changes, horizons)
    drifting = {pattern for patterns in changes.values() for pattern in patterns}
    runs = rows.select("task", "pattern", "seed").unique(maintain_order=True).join(methods.to_frame(), how="cross")
    manifest = {
        "runs": runs.with_columns(status=pl.lit("finished")).to_dicts(),  # one without rows is missing
        "patterns": {name: dict.fromkeys(("jumps", "recovery"), name in drifting) for name in rows["pattern"].unique()},
        "changes": changes,
        "floors": dict.fromkeys(horizons, chosen.floor),
    }
    steps = horizons if len(horizons) > 1 else int(max(horizons.values()))
    config = {"task": ",".join(horizons), "steps": steps, "segments": 1, LOGS: {"baseline": baseline}}
    rows = rows.select(pl.lit(LOGS).alias("family"), *_RUN, "step", "return_mean")
    study = load_study(rows, config, manifest)
    valid = {key for key, run in study.runs.items() if run.curve is not None}
    for method in methods:
        if not any(key._replace(method=method) in valid for key in valid if key.method == baseline):
            reason = next(iter(status_of(study, manifest)[1]), "")
            text = f"no runs of '{method}' and '{baseline}' can be paired by seed ({reason})"
            raise ValueError(f"{text}; where steps differ, give the option every")
    frames = {store.CURVES: rows, store.STREAMS: pl.DataFrame()}
    return Results(store.Results(Path(), config, manifest, frames), metrics=metrics)


def _opened(log: Any) -> tuple[pl.DataFrame, str]:
    """Rows of a log as text, with the columns _name (of the run) and _place, and the log's name in messages."""
    if isinstance(log, str | Path):
        path, label, events = Path(log).expanduser(), str(log), _EVENTS in Path(log).name
        read = {".npz": _npz, ".parquet": store.read_rows}.get(path.suffix, _csv)
        rows, run = (_events if events else read)(path), path.absolute()
        name = str(run.parent if events or run.name in _OF_FOLDER else run.with_suffix(""))
    else:
        rows = log if isinstance(log, pl.DataFrame) else pl.DataFrame({str(key): list(log[key]) for key in log})
        name, label = "", "the frame"
    added = {"_name": pl.lit(name), "_place": pl.format(f"{label}, row {{}}", pl.int_range(pl.len()) + 1)}
    return rows.with_columns(**{n: x for n, x in added.items() if n not in rows.columns}).cast(pl.String), label


def _csv(path: Path) -> pl.DataFrame:
    """Rows of a CSV file with a column per quantity, or per run as W&B exports a chart: "RUN - QUANTITY"."""
    rows: list[list[str | None]] = []
    try:
        reader = csv.reader(io.StringIO(store.read_bytes(path).decode("utf-8-sig"), newline=""), strict=True)
        header = next(reader, [])
        for row in filter(None, reader):
            if len(row) != len(header):
                raise ValueError(f"line {reader.line_num} has {len(row)} cells, the header {len(header)}")
            rows.append([*(cell or None for cell in row), f"{path}, line {reader.line_num}"])
        frame = pl.DataFrame(rows, dict.fromkeys([*header, "_place"], pl.String), orient="row")
    except (ValueError, csv.Error, pl.exceptions.PolarsError) as error:
        raise ValueError(f"{path} cannot be read as CSV: {error}") from None
    if not (charts := [name for name in header if " - " in name]):
        return frame
    index = [name for name in frame.columns if name not in charts]
    shown = [name for name in charts if not name.endswith(("__MIN", "__MAX"))]
    runs = frame.unpivot(shown, index=index, variable_name="_name", value_name="return")
    return runs.with_columns(pl.col("_name").str.replace(r"(?s)^(.*) - .*$", "${1}"))


def _npz(path: Path) -> pl.DataFrame:
    """Evaluations that Stable-Baselines3's `EvalCallback` stored: means over episodes."""
    try:
        with np.load(path, allow_pickle=False) as data:
            return pl.DataFrame({"step": data["timesteps"], "return": data["results"].mean(axis=1)})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        raise ValueError(f"{path} is no evaluations.npz of Stable-Baselines3: {str(error)[:100]}") from None


def _events(path: Path) -> pl.DataFrame:
    """Scalars of a TensorBoard event file, a row each; an incomplete record at its end is left out."""
    try:
        from google.protobuf.message import DecodeError

        Event = import_module("tensorboardX.proto.event_pb2").Event  # made when it is imported
    except ModuleNotFoundError:
        text = f"{path} needs tensorboardX; install it with pip install '.[tensorboard]' in a clone"
        raise ModuleNotFoundError(text) from None
    data, at, rows = store.read_bytes(path), 0, []
    while at + 12 < len(data):  # length, its checksum, event, its checksum
        end = at + 12 + struct.unpack_from("<Q", data, at)[0]
        try:
            event = Event.FromString(data[at + 12 : end]) if end <= len(data) else Event()
        except DecodeError as error:
            raise ValueError(f"{path} cannot be read as TensorBoard events: {error}") from None
        rows += [{"step": event.step, value.tag: value.simple_value} for value in event.summary.value]
        at = end + 4
    return pl.DataFrame(rows, infer_schema_length=None)


def _canonical(rows: pl.DataFrame, label: str, options: LogOptions) -> pl.DataFrame:
    """Columns task, method, pattern, seed, step, return_mean and state; rows without a return keep their state."""
    known = {name: name for name in rows.columns if name not in ("_name", "_place")}
    folded, columns = {name.casefold(): name for name in known}, {}
    observed = {"state": options.changes if _points(options.changes) is None else None}
    for part, names in _NAMES.items():
        wanted = (vars(options) | observed)[part]
        usual = next((folded[name] for name in names.split() if name in folded), None)
        columns[part] = usual if wanted is None else lookup(f"column of {label}", known, wanted)
    if missing := [part for part in ("step", "returns") if columns[part] is None]:
        raise ValueError(f"{label} has no column of a usual name for {missing[0]}; name one of {listed(known)}")
    form = _FORM if options.names is None else re.escape(options.names).replace(r"\{\}", "[^/]*?")
    for part in _RUN:
        form = form.replace(rf"\{{{part}\}}", rf"(?P<{part}>[^/]+?)", 1)
    runs, default = {}, {"task": "unnamed task", "pattern": STEADY if options.changes is None else "drift"}
    for name in rows["_name"].unique():
        match = re.search(f"(?:^|/){form}$", name, re.IGNORECASE)
        runs[name] = default | (match.groupdict() if match else {"method": name.rpartition("/")[2] or None})
    texts = {}
    for part, column in columns.items():
        of_run = pl.col("_name").replace_strict(
            {name: run.get(part) for name, run in runs.items()}, return_dtype=pl.String
        )
        texts[part] = (of_run if column is None else pl.col(column)).str.strip_chars()
    table = rows.select("_place", **texts)
    step, seed, returns = (pl.col(part).cast(pl.Float64, strict=False) for part in ("step", "seed", "returns"))
    right = {"returns": returns.is_not_null(), "step": step.is_finite(), "seed": seed % 1 == 0}
    for part, test in (right | {name: pl.col(name).is_not_null() for name in ("method", "task", "pattern")}).items():
        wrong = table.filter(pl.col("returns").is_not_null(), ~test.fill_null(value=False))
        for place, text in wrong.select("_place", part).rows()[:1]:
            problem = f"has no {part}; name its column, or the form of names" if text is None else f"{part} is {text!r}"
            raise ValueError(f"{place}: {problem}")
    numbers = {"step": step, "seed": seed.cast(pl.Int64, strict=False), "return_mean": returns}
    return table.select("task", "method", "pattern", "state", **numbers)


def _points(changes: Any) -> list[float] | None:
    """Change points that are given as numbers; None for the name of a column."""
    if not isinstance(changes, str):
        steps = changes if several(changes) else [] if changes is None else [changes]
        return [typed(float, step, "changes") for step in steps]
    try:
        return [float(step) for step in changes.split(",")]
    except ValueError:
        return None


def _changes(rows: pl.DataFrame, changes: Any, horizons: Mapping[str, float]) -> dict[str, Any]:
    """Task -> pattern -> seed -> steps at which the drift changes; of a column the first step with the new value."""
    points, stated = _points(changes), dict[str, Any]()
    for (task, method, pattern, seed), run in rows.partition_by(_RUN, as_dict=True, maintain_order=True).items():
        states, steps = run["state"].to_list(), run["step"].to_list()
        jumps = [step for step, old, new in zip(steps[1:], states, states[1:], strict=False) if old != new]
        of_run = jumps if points is None else points if pattern != STEADY else []
        if of_run != sorted(set(of_run)) or any(not steps[0] < step < horizons[task] for step in of_run):
            between = f"steps {steps[0]:g} and {horizons[task]:g}" + f" of {task}" * (len(horizons) > 1)
            raise ValueError(f"changes must increase between {between}; got {changes}")
        if of_run and stated.setdefault(task, {}).setdefault(pattern, {}).setdefault(str(seed), of_run) != of_run:
            raise ValueError(f"{method} has other changes of '{changes}' at seed {seed} than the methods before it")
    return stated
