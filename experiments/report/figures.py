"""Plots of a study per task and pattern: learning curves, and drift with entropy weight and proxy."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.measure.curves import nan_mean
from experiments.measure.recovery import recovery_robust
from experiments.measure.stats import draw_resamples
from experiments.measure.study import RecordedStudy
from experiments.report.cells import number, spaced
from experiments.report.plots import Line, Look, Panel, Plot, Row, looks, time_axis

if TYPE_CHECKING:
    import polars as pl


_OPTIMUM, _DRIFT = "optimum", "drift"
_SIGNALS = (("entropy_weight", "entropy weight"), ("proxy_smooth", "drift proxy"))
_PROBLEMS = {"diverged": "diverged", "incomplete": "stopped early", "missing": "is missing"}
_REPLICATES = 500
POINTS = 240  # most points of a line; a panel is about 400 pixels wide


class Series(NamedTuple):
    """One column of the runs of one task, pattern and method.

    Seeds that diverged or stopped early are excluded from means, as in the complete report, unless there are no others.
    """

    steps: np.ndarray  # (m,) environment steps of all evaluations
    values: np.ndarray  # (n, m), NaN where a seed has no finite value
    seeds: np.ndarray  # (n,) numbers
    valid: np.ndarray  # (n,) bool, seeds with complete evaluations

    @property
    def by_seed(self) -> dict[int, np.ndarray]:
        """Seed -> (m,), of the seeds with a value."""
        return {int(s): v for s, v in zip(self.seeds, self.values, strict=True) if np.any(np.isfinite(v))}

    @property
    def counted(self) -> np.ndarray:
        """(k, m) values of the seeds in means."""
        return self.values[self.valid] if np.any(self.valid) else self.values


def read(rows: "pl.DataFrame", method: str, column: str) -> Series:
    """Series of one method from a column of ``rows`` (one task and pattern); NaN if it was not logged."""
    part = rows.filter(method=method)
    steps, seeds = (np.unique(part[name].to_numpy()) for name in ("step", "seed"))
    at = np.searchsorted(seeds, part["seed"].to_numpy()), np.searchsorted(steps, part["step"].to_numpy())

    def table(name: str) -> np.ndarray:
        values = np.full((len(seeds), len(steps)), np.nan)
        if name in part.columns:
            values[at] = part[name].cast(float).fill_null(np.nan).to_numpy()
        return np.where(np.isfinite(values), values, np.nan)

    valid = np.all(np.isfinite(table("return_mean")), axis=-1)
    return Series(steps.astype(np.float64), table(column), seeds, valid)


def line_of(method: str, series: Series, *, banded: bool = True) -> Line | None:
    """Mean of a series with its pointwise bootstrap band and every seed; None if it has no value."""
    values = series.counted
    if not np.any(np.isfinite(series.values)):
        return None
    if not banded or len(values) < 2:
        return thinned(Line(method, series.steps, nan_mean(values, axis=0), seeds=series.by_seed))
    index = draw_resamples(np.random.default_rng(0), [len(values)], _REPLICATES)[:, 0]
    counts = np.stack([np.sum(index == s, axis=-1) for s in range(len(values))], axis=-1)
    low, high = np.percentile(counts @ values / len(values), [2.5, 97.5], axis=0)
    return thinned(Line(method, series.steps, np.mean(values, axis=0), low, high, series.by_seed))


def thinned(line: Line, points: int = POINTS) -> Line:
    """Every k-th point of a line with more than ``points``, including the last."""
    every = -(-len(line.x) // points)
    if every <= 1:
        return line
    keep = np.unique(np.append(np.arange(0, len(line.x), every), len(line.x) - 1))
    cut = {part: values[keep] for part in ("x", "y", "low", "high") if (values := getattr(line, part)) is not None}
    return line._replace(**cut, seeds={seed: values[keep] for seed, values in line.seeds.items()})


class _Part(NamedTuple):
    """The runs of one task and pattern."""

    study: RecordedStudy
    rows: "pl.DataFrame"
    task: str
    pattern: str
    looks: Mapping[str, Look]  # of every method

    @property
    def carriers(self) -> dict[str, list[str]]:
        """Carrier -> its methods, in order of appearance; one column of panels per carrier."""
        groups: dict[str, list[str]] = {}
        for method in self.rows["method"].unique(maintain_order=True):
            groups.setdefault(self.study.carrier(method), []).append(method)
        return groups

    @property
    def missing(self) -> tuple[str, ...]:
        """Runs excluded from means, one phrase per method."""
        total: dict[str, int] = {}
        found: dict[str, list[str]] = {}
        for key, run in self.study.runs.items():
            if (key.task, key.pattern) == (self.task, self.pattern):
                total[key.method] = total.get(key.method, 0) + 1
                if run.problem:
                    at = f" at step {spaced(int(run.steps[-1]))}" if len(run.steps) else ""
                    problem = f"seed {key.seed} {_PROBLEMS.get(run.problem, run.problem)}{at}"
                    found.setdefault(key.method, []).append(problem)
        return tuple(f"{m}: {total[m] - len(w)} of {total[m]} runs count; {', '.join(w)}" for m, w in found.items())

    def plot(
        self, kind: str, text: tuple[str, str, str], rows: Sequence[Row], panels: Sequence[Panel],
        others: Mapping[str, Look],
    ) -> Plot:  # fmt: skip
        """A plot with a column per carrier.

        Args:
          text: title, caption, description.
          others: styles of lines other than methods.
        """
        names = dict.fromkeys(line.name for panel in panels for line in panel.lines)
        shown = {name: self.looks.get(name) or others[name] for name in names}
        axis = time_axis(self.study, self.task, self.pattern)
        columns = tuple(self.carriers)
        return Plot(
            kind, self.task, self.pattern, *text, axis, tuple(rows), columns, tuple(panels), shown, self.missing
        )


def plots_of(
    study: RecordedStudy, curves: "pl.DataFrame", manifest: Mapping[str, Any], strong: Collection[str] = ()
) -> list[Plot]:
    """All plots of a study, grouped by task and pattern.

    Args:
      manifest: may have ``oracle``, the optimal return over training by task, pattern and seed.
      strong: emphasised methods, as in `looks`.
    """
    look, plots = looks(study.carriers(), strong), []
    for task in dict.fromkeys(key.task for key in study.runs):
        rows = curves.filter(task=task)
        for pattern in (name for name in study.patterns if name in set(rows["pattern"])):
            part = _Part(study, rows.filter(pattern=pattern), task, pattern, look)
            optimum = (manifest.get("oracle") or {}).get(task, {}).get(pattern, {})
            plots += [_curves(part, {int(seed): np.array(values) for seed, values in optimum.items()}), _signals(part)]
    return [plot for plot in plots if plot.kind == "curves" or any(panel.lines for panel in plot.panels)]


def _curves(part: _Part, optimum: Mapping[int, np.ndarray]) -> Plot:
    panels, ends, horizon = [], [], part.study.horizons[part.task]
    for column, methods in enumerate(part.carriers.values()):
        lines = [line for m in methods if (line := line_of(m, read(part.rows, m, "return_mean"))) is not None]
        lines = [line._replace(regained=_regained(part, line)) for line in lines]
        panels.append(Panel(0, column, (*_best(part, horizon, optimum), *lines)))
    for line in (line for panel in panels for line in panel.lines if line.y is not None):
        late = line.y[(line.x >= 0.9 * horizon) & np.isfinite(line.y)]
        ends.append(f"{line.name} {number(float(np.mean(late)), 1) if late.size else 'has no value there'}")
    caption = "Evaluation return, mean over seeds with a 95 % bootstrap band"
    if any(line.regained for panel in panels for line in panel.lines):
        caption += "; circles: 95 % of the level before the change is regained, median over seeds"
    caption += "; dotted grey: the optimum, averaged over the same seeds" if optimum else ""
    alt = f"Evaluation return under {part.pattern} drift on {part.task}, mean over seeds. "
    alt += f"Over the last tenth of training: {', '.join(ends)}."
    return part.plot("curves", ("Return", caption, alt), [Row("return", 3.2)], panels, {_OPTIMUM: Look(-2, 2, 1.2)})


def _regained(part: _Part, line: Line) -> tuple[int, ...]:
    """Points of a line at its median robust recovery from each change; none where undefined, or if seeds differ."""
    runs = [r for key, r in part.study.runs.items() if key[1:4] == (part.task, line.name, part.pattern)]
    changes = {tuple(part.study.changes(run.key)) for run in runs}
    curves, floor = [run.curve for run in runs if run.curve is not None], part.study.floors.get(part.task)
    comparable = len(changes) == 1 and () not in changes and part.study.patterns[part.pattern].recovery
    if floor is None or not curves or not comparable:
        return ()
    (at,) = map(np.array, changes)
    found = [recovery_robust(curve, at, floor) for curve in curves]
    steps = at + np.percentile([np.where(r.recovered, r.duration, np.inf) for r in found], 50, axis=0, method="higher")
    return tuple(int(np.argmin(np.abs(line.x - step))) for step in steps if np.isfinite(step))


def _best(part: _Part, horizon: float, optimum: Mapping[int, np.ndarray]) -> list[Line]:
    """The optimum as a line, over the seeds of the part; its values are evenly spaced over training."""
    own = {seed: values for seed, values in optimum.items() if seed in set(part.rows["seed"])}
    if not own:
        return []
    x = np.linspace(0.0, horizon, max(map(len, own.values())))
    seeds = {seed: np.interp(x, np.linspace(0.0, horizon, len(v)), v) for seed, v in own.items()}
    return [thinned(Line(_OPTIMUM, x, np.mean(list(seeds.values()), axis=0), seeds=seeds))]


def _signals(part: _Part) -> Plot:
    columns = part.rows.columns
    channels = [name for name in columns if name.startswith("drift_") and name[6:].isdigit()]
    titles = {name: f"channel {int(name[6:]) + 1}" for name in channels} or {"drift_value": _DRIFT}
    held = part.study.patterns[part.pattern].recovery
    rows, shown = [Row(title, 1.1, stepped=held) for title in titles.values()], []
    for column, label in _SIGNALS:
        values = part.rows[column].cast(float).fill_null(np.nan).to_numpy() if column in columns else np.zeros(0)
        # A method without a proxy logs zeros; before the first update nothing is logged.
        if np.any(np.isfinite(values) & ((values != 0) | (column == "entropy_weight"))):
            rows.append(Row(label, log=spans_decades(values)))
            shown.append(column)
    panels = []
    for column, methods in enumerate(part.carriers.values()):
        for row, title in enumerate(titles.items()):
            panels.append(Panel(row, column, tuple(_drifts(part, methods, dict([title])))))
        for row, name in enumerate(shown, len(titles)):
            lines = [x for m in methods if (x := line_of(m, read(part.rows, m, name), banded=False)) is not None]
            if name == "proxy_smooth":
                lines = [x for x in lines if x.y is not None and np.any(np.nan_to_num(x.y))]
            panels.append(Panel(row, column, tuple(lines)))
    text = (
        "Drift, entropy weight and proxy",
        "True drift in the task's own units (a line per seed), entropy weight and smoothed proxy, means over seeds",
        f"True drift, entropy weight and drift proxy under {part.pattern} drift on {part.task}, by method.",
    )
    return part.plot("signals", text, rows, panels, {t: Look(-2, i % 5, 1.0) for i, t in enumerate(titles.values())})


def _drifts(part: _Part, methods: Sequence[str], titles: Mapping[str, str]) -> list[Line]:
    """One line per channel, from the method with most seeds, because methods share the drift of a seed."""
    method = max(methods, key=lambda m: part.rows.filter(method=m)["seed"].n_unique())
    channels = {title: read(part.rows, method, column) for column, title in titles.items()}
    return [thinned(Line(t, s.steps, None, seeds=s.by_seed)) for t, s in channels.items() if s.by_seed]


def spans_decades(values: np.ndarray, factor: float = 20.0) -> bool:
    """Whether positive values span more than ``factor``, for a log axis."""
    values = values[np.isfinite(values) & (values > 0)]
    if values.size < 2:
        return False
    low, high = np.percentile(values, [1, 99])
    return bool(high > factor * low)
