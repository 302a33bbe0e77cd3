"""What happens around a change: return, entropy weight, proxy and drift, averaged over all changes of a run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from experiments.measure.curves import nan_mean
from experiments.measure.study import RecordedStudy, carrier_of
from experiments.report.cells import number
from experiments.report.looks import Look
from experiments.report.plots import Axis, Line, Panel, Plot, Row, file_stem
from experiments.report.series import Series, band, read

if TYPE_CHECKING:
    import polars as pl


_BEFORE = 0.35  # of a segment that is shown before its change
_LEVEL = 5  # evaluations before a change that give the level, as in robust recovery
_DRIFT = "drift"


def events_plot(
    study: RecordedStudy,
    rows: "pl.DataFrame",
    task: str,
    pattern: str,
    look: Mapping[str, Look],
    missing: tuple[str, ...],
) -> Plot | None:
    """The plot of one task and pattern; None if no evaluation lies around a change.

    Args:
      study: for the change points.
      rows: of this task and pattern.
      task, pattern: their names.
      look: of every method.
      missing: what the figures of this pattern lack.
    """
    horizon, changes = study.horizons[task], study.changes(task)
    groups: dict[str, list[str]] = {}
    for method in rows["method"].unique(maintain_order=True):
        groups.setdefault(carrier_of(method), []).append(method)
    steps = np.unique(rows["step"].to_numpy()).astype(np.float64)
    if len(changes) == 0 or len(steps) < 3:
        return None
    segment, every = horizon / study.segments, float(np.median(np.diff(steps)))
    first, last = -np.floor(_BEFORE * segment / every), np.ceil(segment / every)
    offsets = np.arange(first, last) * every
    quantities = (
        ("return_mean", "return − before", "difference"),
        ("entropy_weight", "weight / before", "ratio"),
        ("proxy_smooth", "proxy / before", "ratio"),
    )
    panels, kept = [], []
    for name, label, how in quantities:
        lines = {}
        for column, methods in enumerate(groups.values()):
            lines[column] = [x for m in methods if (x := _line(m, read(rows, m, name), changes, offsets, how, horizon))]
        if any(lines.values()):
            panels += [Panel(len(kept), column, tuple(found)) for column, found in lines.items()]
            kept.append(Row(label, 1.9 if how == "difference" else 1.5))
    for column, methods in enumerate(groups.values()):
        panels.append(Panel(len(kept), column, tuple(_drift(rows, methods[0], changes, offsets, horizon))))
    kept.append(Row("drift − before", 1.1))
    names = dict.fromkeys(line.name for panel in panels for line in panel.lines)
    if not set(names) - {_DRIFT}:
        return None
    return Plot(
        file_stem("events", task, pattern),
        "events",
        task,
        pattern,
        "Around a change",
        f"All {len(changes)} changes on top of each other, mean over changes and seeds, 95 % band: the return "
        f"above the mean of the {_LEVEL} evaluations before the change, weight and proxy as multiples of theirs, "
        "and how far the drift has moved",
        f"Around a change of {pattern} drift on {task}: {_told(panels, kept)}",
        Axis(
            "time since the change, % of training",
            offsets[0] / horizon,
            offsets[-1] / horizon,
            "percent",
            np.zeros(1),
            study.patterns[pattern].jumps,
        ),
        tuple(kept),
        tuple(groups),
        tuple(panels),
        {name: look.get(name, Look(-2)) for name in names},
        missing,
    )


def aligned(steps: np.ndarray, values: np.ndarray, changes: np.ndarray, offsets: np.ndarray, how: str) -> np.ndarray:
    """Mean over the changes of a quantity as a function of the time since the change.

    Args:
      steps: (m,) environment steps.
      values: (n, m) one row per run; NaN where there is none.
      changes: (K,) environment steps.
      offsets: (k,) environment steps since a change, on the grid of the evaluations.
      how: "difference" from, or "ratio" to, the mean of the last `_LEVEL` evaluations before the change.

    Returns:
      (n, k); NaN where no change has a value.
    """
    found = np.full((len(changes), len(values), len(offsets)), np.nan)
    for i, change in enumerate(changes):
        past = np.flatnonzero(steps < change)[-_LEVEL:]
        level = nan_mean(values[:, past], axis=-1)[:, None]
        for n, run in enumerate(values):
            there = np.isfinite(run)
            if np.any(there):
                at = np.interp(change + offsets, steps[there], run[there], left=np.nan, right=np.nan)
                found[i, n] = at
        if how == "ratio":
            found[i] /= np.where(level > 0, level, np.nan)
        else:
            found[i] -= level
    return nan_mean(found, axis=0)


def _line(method: str, series: Series, changes, offsets, how: str, horizon: float) -> Line | None:
    values = aligned(series.steps, series.counted, changes, offsets, how)
    if not np.any(np.isfinite(values)):
        return None
    seeds = series.seeds[series.valid] if np.any(series.valid) else series.seeds
    low = high = None
    mean = nan_mean(values, axis=0)
    if len(values) > 1:
        mean, low, high = band(values)
    return Line(method, offsets / horizon, mean, low, high, dict(zip(map(int, seeds), values, strict=True)))


def _drift(rows: "pl.DataFrame", method: str, changes, offsets, horizon: float) -> list[Line]:
    """How far the drift is from where it was just before the change, in task units over all channels."""
    channels = [name for name in rows.columns if name.startswith("drift_") and name[6:].isdigit()]
    parts = [read(rows, method, name) for name in channels]
    if not parts:
        return []
    paths, steps = np.stack([p.values for p in parts], axis=-1), parts[0].steps  # (n, m, D)
    moved = np.full((len(changes), len(paths), len(offsets)), np.nan)
    for i, change in enumerate(changes):
        before = np.searchsorted(steps, change, side="left") - 1
        if before >= 0:
            at = np.clip(np.searchsorted(steps, change + offsets + 1e-6, side="right") - 1, 0, len(steps) - 1)
            moved[i] = np.linalg.norm(paths[:, at] - paths[:, [before]], axis=-1)
    by_seed = nan_mean(moved, axis=0)
    own = {int(s): v for s, v in zip(parts[0].seeds, by_seed, strict=True) if np.any(np.isfinite(v))}
    return [Line(_DRIFT, offsets / horizon, nan_mean(by_seed, axis=0), seeds=own)] if own else []


def _told(panels: list[Panel], rows: list[Row]) -> str:
    """The deepest fall of the return and the highest weight after the change, per method."""
    said = []
    for panel in panels:
        label = rows[panel.row].label
        for line in panel.lines:
            after = None if line.y is None else line.y[(line.x >= 0) & np.isfinite(line.y)]
            if after is None or not after.size:
                continue
            if label.startswith("return"):
                said.append(f"{line.name}'s return falls by up to {number(max(0.0, -float(np.min(after))), 1)}")
            elif label.startswith("weight"):
                said.append(f"{line.name}'s weight rises to {number(float(np.max(after)), 2)} times the one before")
    return "; ".join(said) + "."
