"""The plots of a study: learning curves, and the drift with what answers it, per task and pattern."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.measure.patterns import STEADY
from experiments.measure.study import RecordedStudy, carrier_of
from experiments.report.cells import number
from experiments.report.events import events_plot
from experiments.report.looks import Look, looks
from experiments.report.plots import Axis, Line, Panel, Plot, Row, file_stem, spans_decades
from experiments.report.series import line_of, read, thinned

if TYPE_CHECKING:
    import polars as pl


OPTIMUM = "optimum"
_SIGNALS = (("entropy_weight", "entropy weight"), ("proxy_smooth", "drift proxy"))


def plots_of(study: RecordedStudy, curves: "pl.DataFrame", manifest: Mapping[str, Any]) -> list[Plot]:
    """All plots of a study: those of one task and pattern follow one another.

    Args:
      study: the runs, as `experiments.measure.study.load_study` sorts ``curves``.
      curves: one row per evaluation.
      manifest: ``oracle``, the optimal return by pattern or by task and pattern, a number or a list over training, or
        a map from seed to such a list; it may be absent.
    """
    look = looks(study.methods())
    plots: list[Plot] = []
    for task in dict.fromkeys(key.task for key in study.runs):
        rows = curves.filter(task=task)
        seen = set(rows["pattern"])
        for pattern in (name for name in study.patterns if name in seen):
            part = rows.filter(pattern=pattern)
            missing = _missing(study, task, pattern)
            optimum = _optimum(manifest, task, pattern)
            plots.append(_curves(study, part, task, pattern, look, optimum, missing))
            plots.append(_signals(study, part, task, pattern, look, missing))
            if pattern != STEADY and (plot := events_plot(study, part, task, pattern, look, missing)) is not None:
                plots.append(plot)
    return plots


def time_axis(study: RecordedStudy, task: str, pattern: str) -> Axis:
    """Environment steps of training with the changes of a pattern."""
    changes = study.changes(task)
    return Axis(
        "environment steps",
        0.0,
        study.horizons[task],
        "steps",
        changes[:0] if pattern == STEADY else changes,
        study.patterns[pattern].jumps,
        segments=True,
    )


def _missing(study: RecordedStudy, task: str, pattern: str) -> tuple[str, ...]:
    """What the figures of a pattern lack, one phrase per method."""
    words = {"diverged": "diverged", "incomplete": "stopped early", "missing": "is missing"}
    found: dict[str, list[str]] = {}
    for key, run in study.runs.items():
        if (key.task, key.pattern) == (task, pattern) and run.problem:
            what = words.get(run.problem, run.problem)
            if len(run.steps):
                what += f" at step {int(run.steps[-1]):,}".replace(",", " ")
            found.setdefault(key.method, []).append(f"seed {key.seed} {what}")
    total = {m: sum(k[1:4] == (task, m, pattern) for k in study.runs) for m in found}
    return tuple(f"{m}: {total[m] - len(w)} of {total[m]} runs count; {', '.join(w)}" for m, w in found.items())


def _optimum(manifest: Mapping[str, Any], task: str, pattern: str) -> dict[int | None, np.ndarray]:
    """Seed, or None for all of them, -> (k,) optimal return over training, evenly spaced on [0, T]."""
    oracle = manifest.get("oracle") or {}
    values = oracle.get(task, oracle)
    values = values.get(pattern) if isinstance(values, Mapping) else None
    if values is None:
        return {}
    if isinstance(values, Mapping):
        return {int(seed): np.atleast_1d(np.asarray(v, np.float64)) for seed, v in values.items()}
    return {None: np.atleast_1d(np.asarray(values, np.float64))}


def _columns(rows: "pl.DataFrame") -> dict[str, list[str]]:
    """Carrier -> its methods, in order of appearance."""
    groups: dict[str, list[str]] = {}
    for method in rows["method"].unique(maintain_order=True):
        groups.setdefault(carrier_of(method), []).append(method)
    return groups


def _curves(study, rows, task, pattern, look, optimum, missing) -> Plot:
    panels, groups = [], _columns(rows)
    for column, methods in enumerate(groups.values()):
        lines = [line for m in methods if (line := line_of(m, read(rows, m, "return_mean"))) is not None]
        panels.append(Panel(0, column, (*_best(optimum, study.horizons[task], rows), *lines)))
    axis = time_axis(study, task, pattern)
    caption = "Evaluation return, mean over seeds with a 95 % bootstrap band"
    caption += "; dotted grey: the optimum, averaged over the same seeds" if optimum else ""
    alt = f"Evaluation return under {pattern} drift on {task}, mean over seeds. {_ends(panels, axis.high)}"
    names = dict.fromkeys(line.name for panel in panels for line in panel.lines)
    return Plot(
        file_stem("curves", task, pattern),
        "curves",
        task,
        pattern,
        "Return",
        caption,
        alt,
        axis,
        (Row("return", 3.2),),
        tuple(groups),
        tuple(panels),
        {name: look.get(name, Look(-2, 2, 1.2)) for name in names},
        missing,
    )


def _best(optimum: Mapping[int | None, np.ndarray], horizon: float, rows: "pl.DataFrame") -> list[Line]:
    """The optimum as a line, over the seeds of these rows where it is known by seed."""
    present = set(rows["seed"])
    own = {seed: values for seed, values in optimum.items() if seed is None or seed in present}
    if not own:
        return []
    size = max(2, *(len(values) for values in own.values()))
    x = np.linspace(0.0, horizon, size)
    full = {seed: v if len(v) == size else np.full(size, v[-1]) for seed, v in own.items()}
    seeds = {seed: values for seed, values in full.items() if seed is not None}
    return [thinned(Line(OPTIMUM, x, np.mean(list(full.values()), axis=0), seeds=seeds))]


def _ends(panels: Sequence[Panel], horizon: float) -> str:
    """Where each line ends: the mean of its last tenth."""
    said = []
    for line in (line for panel in panels for line in panel.lines):
        if line.y is not None:
            late = line.y[line.x >= 0.9 * horizon]
            late = late[np.isfinite(late)]
            said.append(f"{line.name} {number(float(np.mean(late)), 1) if late.size else 'has no value there'}")
    return f"Over the last tenth of training: {', '.join(said)}."


def _signals(study, rows, task, pattern, look, missing) -> Plot:
    groups = _columns(rows)
    channels = [name for name in rows.columns if name.startswith("drift_") and name[6:].isdigit()] or ["drift_value"]
    titles = {name: f"channel {int(name[6:]) + 1}" if name != "drift_value" else "drift" for name in channels}
    kept = [c for c in _SIGNALS if _logged(rows, c[0])]
    heights = [Row("true drift", 1.1), *(Row(label, log=spans_decades(_values(rows, c))) for c, label in kept)]
    panels = []
    for column, methods in enumerate(groups.values()):
        panels.append(Panel(0, column, tuple(_drifts(rows, methods, titles))))
        for row, (name, _) in enumerate(kept, 1):
            found = [line_of(m, read(rows, m, name), banded=False) for m in methods]
            # A method without a proxy logs zeros, and before the first update nothing.
            heard = [x for x in found if x is not None and (x.y is None or np.any(np.nan_to_num(x.y)))]
            lines = heard if name == "proxy_smooth" else [x for x in found if x is not None]
            panels.append(Panel(row, column, tuple(lines)))
    weights = [
        f"{line.name} {number(float(np.nanmin(line.y)), 3)} to {number(float(np.nanmax(line.y)), 3)}"
        for panel in panels
        if panel.row and heights[panel.row].label == "entropy weight"
        for line in panel.lines
        if line.y is not None and np.any(np.isfinite(line.y))
    ]
    names = dict.fromkeys(line.name for panel in panels for line in panel.lines)
    strokes = {title: Look(-2, i % 5, 1.0) for i, title in enumerate(titles.values())}
    return Plot(
        file_stem("signals", task, pattern),
        "signals",
        task,
        pattern,
        "Drift and what answers it",
        "True drift in the task's own units (a line per channel and seed), entropy weight and smoothed proxy, means "
        "over seeds",
        f"Drift and its answer under {pattern} drift on {task}. Range of the entropy weight, mean over seeds: "
        f"{', '.join(weights) or 'not logged'}.",
        time_axis(study, task, pattern),
        tuple(heights),
        tuple(groups),
        tuple(panels),
        {name: look.get(name) or strokes[name] for name in names},
        missing,
    )


def _drifts(rows: "pl.DataFrame", methods: Sequence[str], titles: Mapping[str, str]) -> list[Line]:
    """A line per channel; all methods of a seed face the same drift, so the one with most seeds shows it."""
    method = max(methods, key=lambda m: rows.filter(method=m)["seed"].n_unique())
    found = []
    for column, title in titles.items():
        series = read(rows, method, column)
        seeds = {int(s): v for s, v in zip(series.seeds, series.values, strict=True) if np.any(np.isfinite(v))}
        if seeds:
            found.append(thinned(Line(title, series.steps, None, seeds=seeds)))
    return found


def _values(rows: "pl.DataFrame", column: str) -> np.ndarray:
    return rows[column].cast(float).fill_null(np.nan).to_numpy() if column in rows.columns else np.zeros(0)


def _logged(rows: "pl.DataFrame", column: str) -> bool:
    values = _values(rows, column)
    return bool(np.any(np.isfinite(values) & ((values != 0) | (column == "entropy_weight"))))
