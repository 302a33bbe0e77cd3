"""The plots of a study, per task and pattern: learning curves, the drift with the weight and proxy that respond to it,
and all of them around a change."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.measure.curves import nan_mean
from experiments.measure.study import STEADY, RecordedStudy, carrier_of
from experiments.report.cells import number, spaced
from experiments.report.looks import Look, looks
from experiments.report.plots import Axis, Line, Panel, Plot, Row, file_stem, spans_decades, time_axis
from experiments.report.series import Series, band, line_of, read, thinned

if TYPE_CHECKING:
    import polars as pl


_OPTIMUM, _DRIFT = "optimum", "drift"
_SIGNALS = (("entropy_weight", "entropy weight"), ("proxy_smooth", "drift proxy"))
_PROBLEMS = {"diverged": "diverged", "incomplete": "stopped early", "missing": "is missing"}
_BEFORE = 0.35  # of a segment that is shown before its change
_LEVEL = 5  # evaluations before a change that give the level, as in robust recovery
_RESPONSES = (  # column, label, how it is compared with its level before a change
    ("return_mean", "return − before", "difference"),
    ("entropy_weight", "weight / before", "ratio"),
    ("proxy_smooth", "proxy / before", "ratio"),
)


class _Part(NamedTuple):
    """The runs of one task and pattern."""

    study: RecordedStudy
    rows: "pl.DataFrame"
    task: str
    pattern: str
    looks: Mapping[str, Look]  # of every method
    missing: tuple[str, ...]  # runs that count in no mean, one phrase per method

    @property
    def horizon(self) -> float:
        """T, environment steps."""
        return self.study.horizons[self.task]

    @property
    def carriers(self) -> dict[str, list[str]]:
        """Carrier -> its methods, in order of appearance; a column of panels each."""
        groups: dict[str, list[str]] = {}
        for method in self.rows["method"].unique(maintain_order=True):
            groups.setdefault(carrier_of(method), []).append(method)
        return groups

    @property
    def channels(self) -> list[str]:
        """Columns of the drifting parameters."""
        return [name for name in self.rows.columns if name.startswith("drift_") and name[6:].isdigit()]

    def values(self, column: str) -> np.ndarray:
        """All values of a column; empty if there is none."""
        rows = self.rows
        return rows[column].cast(float).fill_null(np.nan).to_numpy() if column in rows.columns else np.zeros(0)

    @property
    def time(self) -> Axis:
        """The axis of training."""
        return time_axis(self.horizon, self.study.segments, self.pattern, self.study.patterns[self.pattern])

    def plot(
        self, kind: str, words: tuple[str, str, str], axis: Axis, rows: Sequence[Row], panels: Sequence[Panel],
        others: Mapping[str, Look],
    ) -> Plot:  # fmt: skip
        """A plot with a column per carrier.

        Args:
          words: title, caption, description.
          others: looks of the lines that are no method's.
        """
        names = dict.fromkeys(line.name for panel in panels for line in panel.lines)
        return Plot(
            file_stem(kind, self.task, self.pattern),
            kind,
            self.task,
            self.pattern,
            *words,
            axis,
            tuple(rows),
            tuple(self.carriers),
            tuple(panels),
            {name: self.looks.get(name) or others[name] for name in names},
            self.missing,
        )


def plots_of(
    study: RecordedStudy, curves: "pl.DataFrame", manifest: Mapping[str, Any], strong: Collection[str] = ()
) -> list[Plot]:
    """All plots of a study: those of one task and pattern follow one another.

    Args:
      manifest: ``oracle``, the optimal return over training by task, pattern and seed; it may be absent.
      strong: emphasised methods, as in `looks`.
    """
    look, plots = looks(study.methods(), strong), []
    for task in dict.fromkeys(key.task for key in study.runs):
        rows = curves.filter(task=task)
        seen = set(rows["pattern"])
        for pattern in (name for name in study.patterns if name in seen):
            missing = _missing(study, task, pattern)
            part = _Part(study, rows.filter(pattern=pattern), task, pattern, look, missing)
            optimum = (manifest.get("oracle") or {}).get(task, {}).get(pattern, {})
            plots += [_curves(part, {int(seed): np.array(values) for seed, values in optimum.items()}), _signals(part)]
            if pattern != STEADY and (plot := _changes(part)) is not None:
                plots.append(plot)
    return plots


def _missing(study: RecordedStudy, task: str, pattern: str) -> tuple[str, ...]:
    found: dict[str, list[str]] = {}
    for key, run in study.runs.items():
        if (key.task, key.pattern) == (task, pattern) and run.problem:
            problem = _PROBLEMS.get(run.problem, run.problem)
            if len(run.steps):
                problem += f" at step {spaced(int(run.steps[-1]))}"
            found.setdefault(key.method, []).append(f"seed {key.seed} {problem}")
    total = {m: sum(k[1:4] == (task, m, pattern) for k in study.runs) for m in found}
    return tuple(f"{m}: {total[m] - len(w)} of {total[m]} runs count; {', '.join(w)}" for m, w in found.items())


def _curves(part: _Part, optimum: Mapping[int, np.ndarray]) -> Plot:
    panels, ends = [], []
    for column, methods in enumerate(part.carriers.values()):
        lines = [line for m in methods if (line := line_of(m, read(part.rows, m, "return_mean"))) is not None]
        panels.append(Panel(0, column, (*_best(part, optimum), *lines)))
    for line in (line for panel in panels for line in panel.lines):
        if line.y is not None:  # where it ends: the mean of its last tenth
            late = line.y[line.x >= 0.9 * part.horizon]
            late = late[np.isfinite(late)]
            ends.append(f"{line.name} {number(float(np.mean(late)), 1) if late.size else 'has no value there'}")
    caption = "Evaluation return, mean over seeds with a 95 % bootstrap band"
    caption += "; dotted grey: the optimum, averaged over the same seeds" if optimum else ""
    alt = f"Evaluation return under {part.pattern} drift on {part.task}, mean over seeds. "
    alt += f"Over the last tenth of training: {', '.join(ends)}."
    others = {_OPTIMUM: Look(-2, 2, 1.2)}
    return part.plot("curves", ("Return", caption, alt), part.time, [Row("return", 3.2)], panels, others)


def _best(part: _Part, optimum: Mapping[int, np.ndarray]) -> list[Line]:
    """The optimum as a line, over the seeds of the part; evenly spaced values of a seed span all of training."""
    own = {seed: values for seed, values in optimum.items() if seed in set(part.rows["seed"])}
    if not own:
        return []
    x = np.linspace(0.0, part.horizon, max(map(len, own.values())))
    seeds = {seed: np.interp(x, np.linspace(0.0, part.horizon, len(v)), v) for seed, v in own.items()}
    return [thinned(Line(_OPTIMUM, x, np.mean(list(seeds.values()), axis=0), seeds=seeds))]


def _signals(part: _Part) -> Plot:
    titles = {name: f"channel {int(name[6:]) + 1}" for name in part.channels} or {"drift_value": _DRIFT}
    values = {column: part.values(column) for column, _ in _SIGNALS}
    # A method without a proxy logs zeros, and before the first update nothing.
    logged = {c: np.any(np.isfinite(v) & ((v != 0) | (c == "entropy_weight"))) for c, v in values.items()}
    shown = [(column, label) for column, label in _SIGNALS if logged[column]]
    rows = [Row("true drift", 1.1), *(Row(label, log=spans_decades(values[column])) for column, label in shown)]
    panels = []
    for column, methods in enumerate(part.carriers.values()):
        panels.append(Panel(0, column, tuple(_drifts(part, methods, titles))))
        for row, (name, _) in enumerate(shown, 1):
            lines = [x for m in methods if (x := line_of(m, read(part.rows, m, name), banded=False)) is not None]
            if name == "proxy_smooth":
                lines = [x for x in lines if x.y is None or np.any(np.nan_to_num(x.y))]
            panels.append(Panel(row, column, tuple(lines)))
    words = (
        "Drift and what answers it",
        "True drift in the task's own units (a line per channel and seed), entropy weight and smoothed proxy, means "
        "over seeds",
        f"True drift, entropy weight and drift proxy under {part.pattern} drift on {part.task}, by method.",
    )
    strokes = {title: Look(-2, i % 5, 1.0) for i, title in enumerate(titles.values())}
    return part.plot("signals", words, part.time, rows, panels, strokes)


def _drifts(part: _Part, methods: Sequence[str], titles: Mapping[str, str]) -> list[Line]:
    """A line per channel; all methods of a seed face the same drift, so the one with most seeds shows it."""
    method = max(methods, key=lambda m: part.rows.filter(method=m)["seed"].n_unique())
    channels = {title: read(part.rows, method, column) for column, title in titles.items()}
    seeds = {title: series.by_seed for title, series in channels.items()}
    return [thinned(Line(t, series.steps, None, seeds=seeds[t])) for t, series in channels.items() if seeds[t]]


def _changes(part: _Part) -> Plot | None:
    """Return, entropy weight, proxy and drift averaged over all changes; None if no evaluation lies around a change."""
    horizon, changes = part.horizon, part.study.changes(part.task)
    steps = np.unique(part.rows["step"].to_numpy()).astype(np.float64)
    if len(changes) == 0 or len(steps) < 3:
        return None
    segment, every = horizon / part.study.segments, float(np.median(np.diff(steps)))
    offsets = np.arange(-np.floor(_BEFORE * segment / every), np.ceil(segment / every)) * every
    if len(offsets) < 2:
        return None
    panels, rows = [], []
    for name, label, how in _RESPONSES:
        found = [
            [x for m in methods if (x := _adaptation(m, read(part.rows, m, name), changes, offsets, how, horizon))]
            for methods in part.carriers.values()
        ]
        if any(found):
            panels += [Panel(len(rows), column, tuple(lines)) for column, lines in enumerate(found)]
            rows.append(Row(label, 1.9 if how == "difference" else 1.5))
    if not rows:
        return None
    for column, methods in enumerate(part.carriers.values()):
        panels.append(Panel(len(rows), column, tuple(_moved(part, methods[0], changes, offsets))))
    shown, jumps = offsets / horizon, part.study.patterns[part.pattern].jumps
    axis = Axis("time since the change, % of training", shown[0], shown[-1], "percent", np.zeros(1), jumps)
    text = (
        "Around a change",
        f"All {len(changes)} changes on top of each other, mean over changes and seeds, 95 % band: the return "
        f"above the mean of the {_LEVEL} evaluations before the change, weight and proxy as multiples of theirs, "
        "and how far the drift has moved",
        f"Return, entropy weight, proxy and drift around a change of {part.pattern} drift on {part.task}, by method.",
    )
    return part.plot("events", text, axis, [*rows, Row("drift − before", 1.1)], panels, {_DRIFT: Look(-2)})


def aligned(steps: np.ndarray, values: np.ndarray, changes: np.ndarray, offsets: np.ndarray, how: str) -> np.ndarray:
    """(n, k): mean over the changes (K,) of values (n, m), NaN where a run has none, at offsets (k,) from the change.

    Args:
      how: "difference" from, or "ratio" to, the mean of the last `_LEVEL` evaluations before the change.
    """
    found = np.full((len(changes), len(values), len(offsets)), np.nan)
    for i, change in enumerate(changes):
        past = np.flatnonzero(steps < change)[-_LEVEL:]
        level = nan_mean(values[:, past], axis=-1)[:, None]
        for n, run in enumerate(values):
            there = np.isfinite(run)
            if np.any(there):
                found[i, n] = np.interp(change + offsets, steps[there], run[there], left=np.nan, right=np.nan)
        if how == "ratio":
            found[i] /= np.where(level > 0, level, np.nan)
        else:
            found[i] -= level
    return nan_mean(found, axis=0)


def _adaptation(method: str, series: Series, changes, offsets, how: str, horizon: float) -> Line | None:
    counted = series.counted
    values = aligned(series.steps, counted.values, changes, offsets, how)
    if not np.any(np.isfinite(values)):
        return None
    mean, low, high = band(values) if len(values) > 1 else (nan_mean(values, axis=0), None, None)
    return Line(method, offsets / horizon, mean, low, high, dict(zip(map(int, counted.seeds), values, strict=True)))


def _moved(part: _Part, method: str, changes: np.ndarray, offsets: np.ndarray) -> list[Line]:
    """How far the drift is from where it was just before the change, in task units over all channels."""
    series = [read(part.rows, method, name) for name in part.channels]
    if not series:
        return []
    paths, steps = np.stack([s.values for s in series], axis=-1), series[0].steps  # (n, m, D)
    moved = np.full((len(changes), len(paths), len(offsets)), np.nan)
    for i, change in enumerate(changes):
        before = np.searchsorted(steps, change, side="left") - 1
        if before >= 0:
            at = np.clip(np.searchsorted(steps, change + offsets + 1e-6, side="right") - 1, 0, len(steps) - 1)
            moved[i] = np.linalg.norm(paths[:, at] - paths[:, [before]], axis=-1)
    own = series[0]._replace(values=nan_mean(moved, axis=0))
    line = Line(_DRIFT, offsets / part.horizon, nan_mean(own.values, axis=0), seeds=own.by_seed)
    return [line] if line.seeds else []
