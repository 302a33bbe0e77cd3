"""One column of the curves of one pattern, as a figure for a notebook."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.measure.study import RecordedStudy
from experiments.report.draw import dress, stroke
from experiments.report.looks import looks
from experiments.report.plots import time_axis
from experiments.report.series import read

if TYPE_CHECKING:
    import polars as pl


def sketch(study: RecordedStudy, rows: "pl.DataFrame", column: str, pattern: str, methods: Sequence[str]) -> Any:
    """A matplotlib Figure: mean over seeds and its range, one line per method; lines at the changes of the drift."""
    from matplotlib.figure import Figure

    task = rows["task"][0]
    axis = time_axis(study.horizons[task], study.segments, pattern, study.patterns[pattern])
    figure = Figure(figsize=(8, 4), layout="constrained")
    canvas = figure.subplots()
    dress(canvas, axis)
    look = looks(study.methods())
    for method in methods:
        steps, values, *_ = read(rows, method, column)
        if len(values):
            canvas.plot(steps, values.mean(0), label=method, **stroke(look[method]))
            canvas.fill_between(steps, values.min(0), values.max(0), color=look[method].colour, alpha=0.15, lw=0)
    canvas.set_xlabel(axis.label)
    canvas.set_ylabel(column.replace("_", " "))
    canvas.set_title(f"{task}, {pattern}, {len(rows['seed'].unique())} seeds: mean and range", fontsize=10, loc="left")
    figure.legend(loc="outside lower center", ncols=min(len(methods), 4), fontsize=8, frameon=False)
    return figure
