"""What `aesjax replay` shows of its weights: a table per study, a figure per carrier and pattern."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aesjax.measure.curves import change_steps, nan_mean
from aesjax.measure.patterns import PatternFacts
from aesjax.measure.weights import weight_metrics
from aesjax.report.markdown import escaped
from aesjax.report.replay_figures import draw_replay
from experiments.study.config import StudyConfig

__all__ = ["LEVER_COLUMNS", "TRAINED", "Track", "figures", "summary"]

TRAINED = "trained"
HEAD: tuple[str, ...] = (
    "pattern",
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
LEVERS_TEXT = """\
Levers of responses, where any are: the window as a share of the stored transitions, refreshes per run, the factor of
the learning rates.
"""
TEXT = """\
# Replay

The entropy weights that each schedule would have given on the recorded proxies, beside the weight of the run that
was trained. The agent of a replay does not react to the weight: this shows how a schedule responds, not what it
would have earned. Means over the runs that did not diverge; mean weight in reward per nat; shares of the updates at
a bound; rise: largest weight within 2 % of the run after a change over the one before it, minus 1 (on steady: at the
steps where other patterns change).
"""


class Track(NamedTuple):
    """The weight of one run under one schedule, trained or replayed."""

    run: Mapping[str, Any]  # its labels
    name: str  # `TRAINED`, or the replayed schedule as typed
    steps: np.ndarray  # (m,) environment steps of the evaluations
    logs: Mapping[str, np.ndarray]  # (m,) each: entropy_weight, at_min, at_max
    line: tuple[np.ndarray, np.ndarray]  # (k,) environment steps and (k,) weights, as fine as there are


Groups = dict[tuple[str, str], dict[str, dict[str, list[Track]]]]


def _groups(tracks: Sequence[Track]) -> Groups:
    """(carrier, pattern) -> method -> trained or replayed schedule -> its runs."""
    groups: Groups = {}
    for track in tracks:
        methods = groups.setdefault((track.run["carrier"], track.run["pattern"]), {})
        methods.setdefault(track.run["method"], {}).setdefault(track.name, []).append(track)
    return groups


def summary(config: StudyConfig, tracks: Sequence[Track], strides: Mapping[str, int]) -> str:
    """Markdown that reads as well on a terminal.

    Args:
      tracks: of the runs that count.
      strides: updates per recorded sample, per carrier.
    """
    changes = change_steps(float(config.steps), config.segments)
    levers = {name: fold for name, fold in LEVER_COLUMNS.items() if any(name in track.logs for track in tracks)}
    table = [(*HEAD, *(head for head, _, _ in levers.values()))]
    for (_, pattern), methods in _groups(tracks).items():
        for method, names in methods.items():
            for name, runs in names.items():
                metrics = [weight_metrics(t.steps, t.logs, changes, float(config.steps)) for t in runs]
                cells = (*_cells(metrics), *(_lever(runs, column) for column in levers))
                table.append((*map(escaped, (pattern, method, name)), str(len(runs)), *cells))
    coarse = ", ".join(f"{carrier}: {n}" for carrier, n in strides.items() if n > 1)
    note = f"The proxies are means over several updates ({coarse}), so the replayed weights are approximate.\n"
    text = TEXT + (note if coarse else "") + (LEVERS_TEXT if levers else "")
    return "\n".join([text, *_aligned(table), ""])


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


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["| " + " | ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)) + " |" for row in table]
    return [lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]]


def figures(config: StudyConfig, tracks: Sequence[Track], patterns: Mapping[str, PatternFacts]) -> dict[str, bytes]:
    """A PNG per carrier and pattern, by file name."""
    files, horizon = {}, float(config.steps)
    changes = change_steps(horizon, config.segments)
    for (carrier, pattern), methods in _groups(tracks).items():
        panels = {}
        for method, names in methods.items():
            count = len(names[TRAINED])
            title = f"{method}, {pattern}" + (f", mean of {count} runs" if count > 1 else "")
            panels[title] = {name: _mean_line(runs) for name, runs in names.items()}
        name = re.sub(r"[^\w.+=-]+", "_", f"weights_{carrier}_{pattern}")
        files[f"{name}.png"] = draw_replay(panels, TRAINED, changes, pattern, horizon, patterns[pattern])
    return files


def _mean_line(runs: Sequence[Track]) -> tuple[np.ndarray, np.ndarray]:
    return runs[0].line[0], np.mean([run.line[1] for run in runs], axis=0)
