"""Draws a `Plot` as PNG and SVG, and one column of a study's curves for a notebook."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.measure.curves import nan_mean
from experiments.measure.profiles import Profile
from experiments.measure.study import RecordedStudy, originals
from experiments.report.figures import read, spans_decades
from experiments.report.plots import DASHES, Axis, Look, Panel, Plot, looks, time_axis

if TYPE_CHECKING:
    import polars as pl


class Picture(NamedTuple):
    """A drawn figure."""

    png: bytes
    svg: bytes
    width: int  # intended width and height, CSS pixels
    height: int

    @property
    def uri(self) -> str:
        """The PNG as a data URI, to embed in a page."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


def draw(plot: Plot, dpi: int = 140) -> Picture:
    """Draw a grid of panels with one legend; columns share their vertical axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

    columns, heights, legend = max(1, len(plot.columns)), [row.height for row in plot.rows], _legend(plot)
    width = {1: 9.6, 2: 11.0}.get(columns, 3.4 * columns + 0.6)
    across = max(1, min(len(legend), int(width / (0.6 + 0.075 * max(map(len, legend), default=1)))))
    below = 0.75 + 0.18 * (-(-len(legend) // across) - 1) if legend else 0.55
    height = sum(heights) + 0.3 + below
    canvas = Canvas(figsize=(width, height))  # fixed margins: a layout engine takes half of the drawing time
    shape = len(plot.rows), columns
    axes = canvas.subplots(*shape, sharex=True, sharey="row", squeeze=False, height_ratios=heights)
    sides = {"left": 0.75 / width, "right": 1 - 0.15 / width, "bottom": below / height, "top": 1 - 0.3 / height}
    canvas.subplots_adjust(**sides, wspace=0.08, hspace=0.12)
    for panel in plot.panels:
        _panel(axes[panel.row, panel.column], panel, plot)
    for axis, title in zip(axes[0], plot.columns, strict=False):
        axis.set_title(title, fontsize=10, fontweight="bold", loc="left")
    for row, line in zip(plot.rows, axes, strict=True):
        line[0].set_ylabel(row.label, fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel(plot.axis.label, fontsize=8)
    if legend:
        handles = [Line2D([], [], **stroke(look, 2.0)) for look in legend.values()]
        style = {"loc": "lower center", "ncols": across, "fontsize": 8, "frameon": False, "handlelength": 3.0}
        canvas.legend(handles, list(legend), **style)
    return canvas_to_files(canvas, dpi)


def canvas_to_files(canvas, dpi: int) -> Picture:
    """PNG with 256 colours, a third of the size of full colour, and SVG with selectable text."""
    import matplotlib
    from PIL import Image

    rendered, packed, vector = io.BytesIO(), io.BytesIO(), io.BytesIO()
    canvas.savefig(rendered, format="png", dpi=dpi, pil_kwargs={"compress_level": 0})
    full = Image.open(rendered).convert("RGB")
    full.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(packed, format="png")
    # A fixed salt and no date, so that equal studies give equal bytes.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "aesjax"}):
        canvas.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
    width, height = (round(96 * inches) for inches in canvas.get_size_inches())
    return Picture(packed.getvalue(), vector.getvalue(), width, height)


def stroke(look: Look, width: float | None = None) -> dict:
    """Colour, dash and width of a line as matplotlib arguments."""
    dash = DASHES[look.dash]
    return {"color": look.colour, "ls": (0, dash) if dash else "-", "lw": width or look.width}


def _legend(plot: Plot) -> dict[str, Look]:
    """One entry per line style, named without the carrier if carriers share it."""
    if len(plot.columns) < 2:
        return dict(plot.looks)
    return {look.shared or name: look for name, look in plot.looks.items()}


def _panel(axis, panel: Panel, plot: Plot) -> None:
    dress(axis, plot.axis)
    row = plot.rows[panel.row]
    for line in panel.lines:
        look = plot.looks[line.name]
        if line.y is None:
            for values in line.seeds.values():
                axis.plot(line.x, values, **stroke(look, 0.8), alpha=0.6, ds=("default", "steps-post")[row.stepped])
            continue
        if look.strong and line.low is not None and line.high is not None:
            axis.fill_between(line.x, line.low, line.high, color=look.colour, alpha=0.13, lw=0)
        axis.plot(line.x, line.y, **stroke(look), alpha=1.0 if look.strong else 0.5)
        at = list(line.regained)
        axis.plot(line.x[at], line.y[at], "o", ms=4.5, mfc="white", mec=look.colour, zorder=3)
    if row.log:  # plain numbers at 1, 2 and 5 of each decade
        from matplotlib.ticker import LogLocator, NullFormatter

        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())


def dress(axis, shared: Axis) -> None:
    """Change points (dashed: the drift jumps, dotted: it does not), grid, and the horizontal axis."""
    for change in shared.marks:
        axis.axvline(change, color="#444444", lw=0.9, zorder=1.5, ls="--" if shared.jumps else ":", alpha=0.7)
    axis.set_xlim(shared.low, shared.high)
    frame(axis)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)
    axis.locator_params(axis="x", nbins=5, prune="upper")  # a label at T would touch the next panel's 0
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}M" if shared.high > 2e6 else f"{x / 1e3:g}k")


def frame(axis) -> None:
    """A light grid, and no frame above and at the right."""
    axis.grid(True, color="#e6e6e6", lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def sketch(study: RecordedStudy, rows: "pl.DataFrame", column: str, pattern: str, methods: Sequence[str]) -> Any:
    """A matplotlib Figure of one column of the curves under one pattern: mean over seeds and range per method.

    Args:
      rows: curves of one task under the pattern.
    """
    from matplotlib.figure import Figure

    task, look = rows["task"][0], looks(study.carriers())
    axis = time_axis(study, task, pattern)
    figure = Figure(figsize=(8, 4), layout="constrained")
    canvas = figure.subplots()
    dress(canvas, axis)
    for method in methods:
        series = read(rows, method, column)
        values = series.counted
        if len(values):
            low, high = np.fmin.reduce(values), np.fmax.reduce(values)  # of the finite values
            canvas.plot(series.steps, nan_mean(values, axis=0), label=method, **stroke(look[method]))
            canvas.fill_between(series.steps, low, high, color=look[method].colour, alpha=0.15, lw=0)
    canvas.set_xlabel(axis.label)
    canvas.set_ylabel(column.replace("_", " "))
    canvas.set_title(f"{task}, {pattern}, {len(rows['seed'].unique())} seeds: mean and range", fontsize=10, loc="left")
    figure.legend(loc="outside lower center", ncols=min(len(methods), 4), fontsize=8, frameon=False)
    return figure


def sketch_sweep(
    study: RecordedStudy, config: Mapping[str, Any], rows: "pl.DataFrame", against: str, metric: str
) -> Any:
    """A matplotlib Figure of a metric against a swept number, with its 95 % interval; a panel per pattern.

    Args:
      config: of the study.
      rows: aggregates of methods, with a column of the number; a method without the number is a horizontal line.
    """
    import polars as pl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    numbers = rows[against].drop_nulls().to_numpy()
    names = _without(study, config, against, float(numbers[0])) if len(numbers) else {}
    name = pl.col("method").replace(names)
    rows = rows.with_columns(pl.col("value", "low", "high").fill_null(float("nan")), line=name).sort(against)
    patterns, lines = (list(dict.fromkeys(rows[column])) for column in ("pattern", "line"))
    carriers = {line: study.carrier(method) for line, method in sorted(rows.select("line", "method").iter_rows())}
    look = looks(carriers)
    figure = Figure(figsize=(max(6.0, 3.6 * len(patterns)), 4), layout="constrained")
    for canvas, pattern in zip(figure.subplots(1, len(patterns), sharey=True, squeeze=False)[0], patterns, strict=True):
        for line in sorted(lines):
            points = rows.filter(pattern=pattern, line=line)
            x, y, low, high = (points[column].to_numpy() for column in (against, "value", "low", "high"))
            if np.isnan(x).all():
                x, y, low, high = numbers[[0, -1]], *(values[[0, 0]] for values in (y, low, high))
            canvas.plot(x, y, marker="o" if len(points) > 1 else "", ms=3.5, label=line, **stroke(look[line]))
            canvas.fill_between(x, low, high, color=look[line].colour, alpha=0.15, lw=0)
        if spans_decades(numbers) and numbers.min() > 0:
            canvas.set_xscale("log")
            canvas.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            canvas.xaxis.set_minor_formatter(NullFormatter())
        frame(canvas)
        canvas.set_xlabel(against)
        canvas.set_title(pattern, fontsize=10, loc="left")
    figure.axes[0].set_ylabel(metric.replace("_", " "))
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


def sketch_profiles(study: RecordedStudy, found: Mapping[str, Profile]) -> Any:
    """A matplotlib Figure of performance profiles with their bands, one line per method."""
    from matplotlib.figure import Figure

    look = looks(study.carriers())
    figure = Figure(figsize=(8, 4), layout="constrained")
    canvas = figure.subplots()
    for method, profile in found.items():
        canvas.plot(profile.thresholds, profile.share, label=method, **stroke(look[method]))
        canvas.fill_between(profile.thresholds, profile.low, profile.high, color=look[method].colour, alpha=0.13, lw=0)
    canvas.set_xlim(profile.thresholds[0], profile.thresholds[-1])
    canvas.set_ylim(-0.02, 1.02)
    frame(canvas)
    canvas.set_xlabel("normalised return: 0 the random policy, 1 the best method's mean")
    canvas.set_ylabel("share of runs above it")
    figure.legend(loc="outside lower center", ncols=min(len(found), 4), fontsize=8, frameon=False)
    return figure


def _without(study: RecordedStudy, config: Mapping[str, Any], against: str, value: float) -> dict[str, str]:
    """Methods that read a swept number -> their name in the study without this axis; ``value`` is any such number."""
    from experiments.study.config import config_from_json
    from experiments.study.program import plain, rows_of

    names = {}
    for data in originals(config):
        whole = config_from_json(data)
        fewer = replace(whole, sweep={name: values for name, values in whole.sweep.items() if name != against})
        lines: dict[Any, str] = {}
        for row in rows_of(fewer):
            if against in row.method.reads:
                lines.setdefault(plain(whole, row.method).varied({against: value}, whole.proxy), row.name)
        for method, definition in study.definitions.items():
            if against in definition.reads:
                names[method] = lines.get(definition.varied({against: value}, whole.proxy), names.get(method, method))
    return names
