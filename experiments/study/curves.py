"""The rows of `curves.parquet` and `streams.parquet`: their columns, from the metrics of an evaluation to the files."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aesjax.types import STREAM
from agents.common import REASONS

if TYPE_CHECKING:
    import polars as pl


# The columns every reader of curves expects, in this order; logged quantities follow.
LEADING = ("family", "task", "method", "carrier", "schedule", "variant", "pattern", "seed", "step")
LEADING += ("return_mean", "return_std", "n_episodes", "drift_value")


def frame_of(labels: Sequence[Mapping[str, Any]], metrics: Mapping[str, np.ndarray], step: int) -> "pl.DataFrame":
    """One evaluation as rows: the labels of each run, the step in environment steps, every metric."""
    import polars as pl

    count = len(labels)
    columns: dict[str, Any] = {name: [label[name] for label in labels] for name in labels[0]}
    columns["step"] = np.full(count, step, np.int64)
    for name, value in metrics.items():
        value = np.asarray(value)[:count]
        if name.startswith(STREAM):
            columns[name] = pl.Series(values=np.ascontiguousarray(value, np.float32))
            continue
        value = value.astype(np.int64) if np.issubdtype(value.dtype, np.integer) else value.astype(np.float64)
        if value.ndim == 1:
            columns[name] = value
        else:
            columns |= {f"{name}_{i}": value[:, i] for i in range(value.shape[1])}
    return pl.DataFrame(columns)


def ordered(frames: Sequence["pl.DataFrame"], labels: Sequence[Mapping[str, Any]]) -> "pl.DataFrame":
    """All rows of a sweep, ordered by run and step."""
    import polars as pl

    names = list(labels[0])
    order = pl.DataFrame({**{n: [label[n] for label in labels] for n in names}, "_run": range(len(labels))})
    rows = pl.concat(frames, how="diagonal")
    return rows.join(order, on=names, how="left").sort("_run", "step").drop("_run")


def arranged(rows: "pl.DataFrame", episodes: int) -> "pl.DataFrame":
    """The rows of `curves.parquet`: labels and drift first, then what was logged."""
    import polars as pl

    rows = rows.drop("diverged_at", "reason").with_columns(n_episodes=pl.lit(episodes))
    first = [*LEADING, *(name for name in rows.columns if name.startswith("drift_") and name not in LEADING)]
    return rows.select(*first, pl.exclude(first))


def split_streams(rows: "pl.DataFrame") -> tuple["pl.DataFrame", "pl.DataFrame"]:
    """The curves without the streams, and the streams: one row per run, each stream a list over the whole run.

    A stream holds NaN where there was no update; its name loses the prefix.
    """
    import polars as pl

    names = [name for name in rows.columns if name.startswith(STREAM)]
    labels = rows.columns[: rows.columns.index("step")]
    whole = [
        pl.col(name).drop_nulls().arr.to_list().explode().alias(name.removeprefix(STREAM))  # in the order of rows
        for name in names
    ]
    return rows.drop(names), rows.group_by(labels, maintain_order=True).agg(whole)


def statuses_of(rows: "pl.DataFrame", num_envs: int) -> list[dict[str, Any]]:
    """One entry per run: finished, or diverged with the environment step and the reason."""
    import polars as pl

    identity = ["task", "method", "pattern", "seed"]
    if "simulation_faults" not in rows.columns:  # a task without a simulator
        rows = rows.with_columns(simulation_faults=pl.lit(None, pl.Float64))
    table = rows.group_by(identity, maintain_order=True).agg(
        pl.col("simulation_faults").fill_nan(None).max(),
        pl.col("diverged_at").max(),
        pl.col("reason").max(),
        pl.col("step").filter(~pl.col("return_mean").is_finite()).min().alias("bad_return"),
    )
    statuses = []
    for entry in table.to_dicts():
        status: dict[str, Any] = {name: entry[name] for name in identity}
        at, reason, bad = entry["diverged_at"], entry["reason"], entry["bad_return"]
        if at is not None and not math.isnan(at) and at >= 0:
            why = ", ".join(text for bit, text in enumerate(REASONS) if int(reason) >> bit & 1)
            status |= {"status": "diverged", "diverged_at": int(at) * num_envs, "reason": why}
        elif bad is not None:
            status |= {"status": "diverged", "diverged_at": bad, "reason": "evaluation return not finite"}
        else:
            status |= {"status": "finished"}
        if entry["simulation_faults"]:
            status["simulation_faults"] = int(entry["simulation_faults"])
        statuses.append(status)
    return statuses
