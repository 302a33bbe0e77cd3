"""What `aesjax replay` shows of its weights: a table, a sentence, and a plot per carrier and pattern, on one page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.measure.curves import change_steps, nan_mean
from experiments.measure.patterns import STEADY, PatternFacts
from experiments.measure.weights import weight_metrics
from experiments.report.cells import Cell, Table
from experiments.report.page import Figure, Page, groups_of
from experiments.report.plots import Plot
from experiments.report.replay_figures import replay_plot
from experiments.study.config import StudyConfig

TRAINED = "trained"
_HEAD: tuple[str, ...] = (
    "streams of",
    "weight",
    "runs",
    "mean",
    "at lambda_min",
    "at lambda_max",
    "rise after a change",
)
#: Columns of a run's curves for the levers that responses turn -> head in the table, how to fold, how to print.
LEVER_COLUMNS: Mapping[str, tuple[str, Callable[..., Any], str]] = {
    "window_share": ("mean window", nan_mean, "{:.3f}"),
    "refreshes": ("refreshes", np.nansum, "{:.2g}"),
    "rate_factor": ("mean rate factor", nan_mean, "{:.3f}"),
}
_LEVERS_TEXT = """\
Levers of responses, where any are: the window as a share of the stored transitions, refreshes per run, the factor of
the learning rates.
"""
_READING = """\
The entropy weights that each schedule would have given on the recorded proxies, beside the weight of the run that
was trained. The agent of a replay does not react to the weight: this shows how a schedule responds, not what it
would have earned. Means over the runs that did not diverge; mean weight in reward per nat; shares of the updates at
a bound; rise: largest weight within 2 % of the run after a change over the one before it, minus 1 (on steady: at the
steps where other patterns change).
"""
SUMMARY, WEIGHTS, PAGE = "summary.md", "weights.parquet", "index.html"


class Track(NamedTuple):
    """The weight of one run under one schedule, trained or replayed."""

    run: Mapping[str, Any]  # its labels
    name: str  # `TRAINED`, or the replayed schedule as typed
    steps: np.ndarray  # (m,) environment steps of the evaluations
    logs: Mapping[str, np.ndarray]  # (m,) each: entropy_weight, at_min, at_max
    line: tuple[np.ndarray, np.ndarray]  # (k,) environment steps and (k,) weights, as fine as there are


_Groups = dict[tuple[str, str], dict[str, dict[str, list[Track]]]]


def _groups(tracks: Sequence[Track]) -> _Groups:
    """(carrier, pattern) -> method -> trained or replayed schedule -> its runs."""
    groups: _Groups = {}
    for track in tracks:
        methods = groups.setdefault((track.run["carrier"], track.run["pattern"]), {})
        methods.setdefault(track.run["method"], {}).setdefault(track.name, []).append(track)
    return groups


class Told(NamedTuple):
    """A replay in words."""

    table: Table
    conclusion: str  # one sentence
    notes: str


def tell(config: StudyConfig, tracks: Sequence[Track], strides: Mapping[str, int]) -> Told:
    """The weights as a table and in a sentence.

    Args:
      config: of the study.
      tracks: of the runs that count.
      strides: updates per recorded sample, per carrier.
    """
    changes = change_steps(float(config.steps), config.segments)
    levers = {name: fold for name, fold in LEVER_COLUMNS.items() if any(name in track.logs for track in tracks)}
    groups: dict[str, list[list[Cell]]] = {}
    rises: dict[str, list[float]] = {}
    for (_, pattern), methods in _groups(tracks).items():
        for method, names in methods.items():
            for name, runs in names.items():
                metrics = [weight_metrics(t.steps, t.logs, changes, float(config.steps)) for t in runs]
                cells = (*_cells(metrics), *(_lever(runs, column) for column in levers))
                groups.setdefault(pattern, []).append([Cell(x) for x in (method, name, str(len(runs)), *cells)])
                if pattern != STEADY:
                    rises.setdefault(name, []).append(float(nan_mean([m["responsiveness"].value for m in metrics])))
    coarse = ", ".join(f"{carrier}: {n}" for carrier, n in strides.items() if n > 1)
    note = f"The proxies are means over several updates ({coarse}), so the replayed weights are approximate.\n"
    head = [*_HEAD, *(head for head, _, _ in levers.values())]
    table = Table("replay", "Weights in numbers", _READING, head, list(groups.items()), labels=2)
    return Told(table, _conclusion(rises), (note if coarse else "") + (_LEVERS_TEXT if levers else ""))


def _conclusion(rises: Mapping[str, Sequence[float]]) -> str:
    """How strongly every schedule answers a change, the strongest first."""
    known = {name: float(nan_mean(values)) for name, values in rises.items()}
    known = {name: value for name, value in known.items() if np.isfinite(value)}
    if not known:
        return "Conclusion: no rise of a weight after a change could be measured."
    trained = known.pop(TRAINED, None)
    ranked = sorted(known.items(), key=lambda item: -item[1])
    said = ", ".join(f"{name} by {100.0 * value:.0f} %" for name, value in ranked)
    beside = "" if trained is None else f"; the weights that were trained with rose by {100.0 * trained:.0f} %"
    return f"Conclusion: after a change the weight rises under {said} (means over drifts and methods){beside}."


def _lever(runs: Sequence[Track], column: str) -> str:
    _, fold, form = LEVER_COLUMNS[column]
    seen = [track.logs[column] for track in runs if column in track.logs]
    value = float(np.mean([fold(values) for values in seen])) if seen else float("nan")
    return form.format(value) if np.isfinite(value) else "–"


def _cells(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    def mean(name: str, pattern: str, scale: float = 1.0) -> str:
        value = scale * float(nan_mean([m[name].value for m in metrics]))
        return pattern.format(value) if np.isfinite(value) else "–"

    shares = ("saturation_min", "saturation_max", "responsiveness")
    return [mean("mean_entropy_weight", "{:.4g}"), *(mean(name, "{:.1f} %", 100.0) for name in shares)]


def plots(config: StudyConfig, tracks: Sequence[Track], patterns: Mapping[str, PatternFacts]) -> list[Plot]:
    """A plot per carrier and pattern."""
    found, horizon = [], float(config.steps)
    changes = change_steps(horizon, config.segments)
    for (carrier, pattern), methods in _groups(tracks).items():
        panels = {}
        for method, names in methods.items():
            count = len(names[TRAINED])
            title = method + (f", mean of {count} runs" if count > 1 else "")
            panels[title] = {name: _mean_line(runs) for name, runs in names.items()}
        found.append(replay_plot(panels, TRAINED, changes, carrier, pattern, horizon, patterns[pattern]))
    return found


def page(config: StudyConfig, told: Told, figures: Sequence[Figure]) -> Page:
    """The replay as a page like a report's."""
    looks = {name: look for figure in figures for name, look in figure.plot.looks.items()}
    return Page(
        title=f"Replay of entropy schedules: {config.task}",
        subtitle=f"{len(looks) - 1} schedules on the proxies that {config.task} recorded; nothing was trained",
        conclusion=told.conclusion,
        looks=looks,
        segments=config.segments,
        figures_title="Entropy weights",
        figures_reading="Dashed lines are abrupt changes, dotted lines the segments of gradual drift.",
        groups=list(groups_of(figures, {})),
        tables=[told.table],
        limits=[_READING, *told.notes.splitlines()],
        footer=f"The same numbers: {SUMMARY}; all weights: {WEIGHTS}.",
    )


def _mean_line(runs: Sequence[Track]) -> tuple[np.ndarray, np.ndarray]:
    return runs[0].line[0], np.mean([run.line[1] for run in runs], axis=0)
