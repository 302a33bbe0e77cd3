"""Plots of whole distributions: performance profiles over runs, and survival curves of recovery."""

from collections.abc import Mapping

import numpy as np

from experiments.measure import stats
from experiments.measure.recovery import recovery_robust
from experiments.measure.runs import run_metrics
from experiments.measure.study import RecordedStudy, carrier_of
from experiments.report.cells import number
from experiments.report.looks import Look
from experiments.report.plots import Axis, Line, Panel, Plot, Row, file_stem

_TAUS = 81
_REPLICATES = 200


def _grid(study: RecordedStudy, task: str) -> dict[str, list[str]]:
    """Carrier -> methods of a task."""
    groups: dict[str, list[str]] = {}
    for method in dict.fromkeys(k.method for k in study.runs if k.task == task):
        groups.setdefault(carrier_of(method), []).append(method)
    return groups


def profile_plot(study: RecordedStudy, task: str, look: Mapping[str, Look]) -> Plot | None:
    """Share of runs whose score exceeds a threshold, per pattern; None without a finished run.

    The score is safe nAUC, or the mean return over training where there is none.
    """
    keys = [key for key, run in study.runs.items() if key.task == task and run.curve is not None]
    metrics = {key: run_metrics(study, key) for key in keys}
    name = "nauc_task_safe" if any(np.isfinite(m["nauc_task_safe"].value) for m in metrics.values()) else "mean_return"
    scores = {key: m[name].value for key, m in metrics.items() if np.isfinite(m[name].value)}
    if not scores:
        return None
    every = np.array(list(scores.values()))
    margin = 0.03 * (np.ptp(every) or 1.0)
    taus = np.linspace(every.min() - margin, every.max() + margin, _TAUS)
    groups, patterns = _grid(study, task), [p for p in study.patterns if any(k.pattern == p for k in scores)]
    panels, said = [], []
    for row, pattern in enumerate(patterns):
        medians = []
        for column, methods in enumerate(groups.values()):
            lines = []
            for method in methods:
                own = np.array([v for k, v in scores.items() if (k.method, k.pattern) == (method, pattern)])[None]
                if own.size:
                    rng = np.random.default_rng(0)
                    value, low, high = stats.performance_profile_band(rng, own, list(taus), replicates=_REPLICATES)
                    lines.append(Line(method, taus, value, low, high))
                    medians.append(f"{method} {number(float(np.median(own)), 2)}")
            panels.append(Panel(row, column, tuple(lines)))
        said.append(f"{pattern}: {', '.join(medians)}")
    label = "safe nAUC" if name == "nauc_task_safe" else "mean return over training"
    return Plot(
        file_stem("profile", task),
        "profile",
        task,
        "",
        "Performance profiles",
        "Share of the runs that score more than τ, with a 95 % bootstrap band; with n runs it falls in n steps, so "
        f"every run can be read off. Score: {label}; further right is better",
        f"Performance profiles on {task}. Median {label} by pattern: {'; '.join(said)}.",
        Axis(f"τ, {label}", float(taus[0]), float(taus[-1])),
        tuple(Row("runs above τ", 1.35, title=pattern, steps=True) for pattern in patterns),
        tuple(groups),
        tuple(panels),
        {m: look[m] for methods in groups.values() for m in methods},
    )


def survival_plot(study: RecordedStudy, task: str, look: Mapping[str, Look]) -> Plot | None:
    """Share of the changes not yet recovered from, by the time since the change; None where recovery has no meaning.

    Recovery is the robust one; runs of all seeds and all changes of a run together.
    """
    floor, changes, horizon = study.floors.get(task), study.changes(task), study.horizons[task]
    patterns = [p for p, facts in study.patterns.items() if facts.recovery]
    if floor is None or not patterns or not len(changes):
        return None
    groups, times = _grid(study, task), np.linspace(0.0, horizon / study.segments, _TAUS)
    panels, said = [], []
    for row, pattern in enumerate(patterns):
        for column, methods in enumerate(groups.values()):
            lines = []
            for method in methods:
                events = [
                    recovery_robust(run.curve, changes, floor)
                    for key, run in study.runs.items()
                    if (key.task, key.method, key.pattern) == (task, method, pattern) and run.curve is not None
                ]
                if line := _survival(method, events, times, horizon):
                    lines.append(line)
                    left = line.y[np.isfinite(line.y)] if line.y is not None else np.zeros(0)
                    if left.size:
                        said.append(f"{method} on {pattern} {number(100 * float(left[-1]), 0)} %")
            panels.append(Panel(row, column, tuple(lines)))
    if not any(panel.lines for panel in panels):
        return None
    return Plot(
        file_stem("survival", task),
        "survival",
        task,
        "",
        "Changes not yet recovered from",
        "Share of the changes that a method has not yet recovered from (robust recovery, Kaplan-Meier over seeds and "
        "changes, 95 % bootstrap band over seeds); lower is better, and what is left at the right end never recovered",
        f"Recovery on {task}. Share of changes never recovered from: {', '.join(said)}.",
        Axis("time since the change, % of training", 0.0, float(times[-1]) / horizon, "percent"),
        tuple(Row("not recovered", 1.6, title=pattern, steps=True) for pattern in patterns),
        tuple(groups),
        tuple(panels),
        {m: look[m] for methods in groups.values() for m in methods},
    )


def _survival(method: str, events: list, times: np.ndarray, horizon: float) -> Line | None:
    """Kaplan-Meier over the applicable changes of all runs, with runs resampled as wholes for the band."""
    events = [e for e in events if np.any(e.applicable)]
    if not events:
        return None
    waits = np.stack([np.where(e.applicable, e.duration, np.nan) for e in events])  # (n, K)
    hits = np.stack([e.recovered for e in events])
    value = stats.survival_curve(waits, hits, times)
    if len(events) < 2:
        return Line(method, times / horizon, value)
    picks = np.random.default_rng(0).integers(len(events), size=(_REPLICATES, len(events)))
    drawn = np.stack([stats.survival_curve(waits[pick], hits[pick], times) for pick in picks])
    known = np.all(np.isfinite(drawn), axis=0) & np.isfinite(value)
    low, high = (np.where(known, edge, np.nan) for edge in np.percentile(np.nan_to_num(drawn), [2.5, 97.5], axis=0))
    return Line(method, times / horizon, value, low, high)
