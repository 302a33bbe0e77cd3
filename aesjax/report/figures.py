"""The figures of a report: learning curves, and the entropy weight and proxy under the true drift."""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aesjax.measure.curves import change_steps, nan_mean
from aesjax.measure.patterns import STEADY, describe_runs
from aesjax.measure.stats import draw_resamples
from aesjax.report.png import pack_png

if TYPE_CHECKING:
    import polars as pl

__all__ = ["BASELINE", "PALETTE", "Figure", "Marks", "colours", "draw_figures", "dress", "spans_decades"]

# Okabe and Ito's palette, distinguishable with the common colour-vision deficiencies; baselines are black.
PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8C6D1F",
    "#7B4FB0",
    "#B03060",
    "#5B7F3A",
)
BASELINE = "#222222"
LINES = ("-", "--", "-.", ":")
REPLICATES = 500


@dataclass(frozen=True)
class Figure:
    """One PNG with its file name and caption."""

    name: str
    kind: str  # "curves" or "signals"
    task: str
    pattern: str
    caption: str
    png: bytes
    width: int  # CSS pixels at which it is meant to be shown

    @property
    def uri(self) -> str:
        """The PNG as a data URI, so that a page can hold it."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


class Marks(NamedTuple):
    """What the time axis of a panel shows."""

    changes: np.ndarray  # (K,) environment steps at which the drift enters its next segment
    jumps: bool  # whether the drift jumps there
    horizon: float  # T, environment steps


def colours(methods: Sequence[str]) -> dict[str, str]:
    """A colour per method: by what follows the carrier, so that AES looks the same on SAC and on PPO."""
    kinds = list(dict.fromkeys(_kind(m) for m in methods if _kind(m)))
    chosen = {kind: PALETTE[i % len(PALETTE)] for i, kind in enumerate(kinds)}
    return {m: chosen[_kind(m)] if _kind(m) else BASELINE for m in methods}


def _dashes(methods: Sequence[str]) -> dict[str, str]:
    """A line style per method, which tells apart the kinds that share a colour because there are more than ten."""
    kinds = list(dict.fromkeys(_kind(m) for m in methods if _kind(m)))
    return {m: LINES[kinds.index(_kind(m)) // len(PALETTE) % len(LINES)] if _kind(m) else "-" for m in methods}


def _carrier(method: str) -> str:
    return re.split(r"[+\[]", method, maxsplit=1)[0]


def _kind(method: str) -> str:
    return method[len(_carrier(method)) :]


def draw_figures(curves: "pl.DataFrame", config: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[Figure]:
    """Two figures per task and pattern, one panel per carrier in each.

    Args:
      curves: one row per evaluation, as `aesjax.measure.study.load_study` takes them.
      config: ``steps``, the horizon or a map from task to horizon; ``segments`` defaults to 5.
      manifest: ``patterns`` as in `aesjax.measure.describe`; ``oracle``, the optimal return by pattern or by task and
        pattern, a number, a list over training, or such a list by seed; each may be absent.
    """
    import matplotlib

    matplotlib.use("Agg")
    methods = curves["method"].unique(maintain_order=True).to_list()
    palette, dashes = colours(methods), _dashes(methods)
    looks: dict[str, Any] = {m: {"color": palette[m], "ls": dashes[m]} for m in methods}
    described = describe_runs(manifest, curves["pattern"].unique(maintain_order=True))
    figures = []
    for task in curves["task"].unique(maintain_order=True).to_list():
        rows = curves.filter(task=task)
        horizon = config["steps"][task] if isinstance(config["steps"], Mapping) else config["steps"]
        changes = change_steps(float(horizon), int(config.get("segments", 5)))
        patterns = [name for name in described if name in set(rows["pattern"])]
        dpi = 140 if curves["task"].n_unique() * len(patterns) <= 6 else 80  # keeps the page below 3 MB
        for pattern in patterns:
            part = rows.filter(pattern=pattern)
            marks = Marks(changes[:0] if pattern == STEADY else changes, described[pattern].jumps, float(horizon))
            optimum = _oracle(manifest, task, pattern, part["seed"].unique().to_list())
            png = _curves(part, looks, marks, optimum, dpi)
            text = "Evaluation return, mean over seeds with a 95 % bootstrap band"
            text += "; dotted line: the optimum" if optimum is not None else ""
            figures.append(_figure("curves", task, pattern, text, png, dpi))
            png = _signals(part, looks, marks, dpi)
            text = "True drift (one line per seed), entropy weight and smoothed proxy, mean over seeds"
            figures.append(_figure("signals", task, pattern, text, png, dpi))
    return figures


def _figure(kind: str, task: str, pattern: str, caption: str, png: bytes, dpi: int) -> Figure:
    pixels = int.from_bytes(png[16:20], "big")  # the width in a PNG's header
    return Figure(_file(kind, task, pattern), kind, task, pattern, caption, png, round(pixels * 96 / dpi))


def _file(kind: str, task: str, pattern: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"{kind}_{task}_{pattern}.png")


def _oracle(manifest: Mapping[str, Any], task: str, pattern: str, seeds: Sequence[int]) -> np.ndarray | None:
    """(k,) optimal return over training, evenly spaced on [0, T], mean over these seeds where it is known by seed (it
    was not always); None if the manifest has none."""
    oracle = manifest.get("oracle") or {}
    values = oracle.get(task, oracle)
    values = values.get(pattern) if isinstance(values, Mapping) else None
    if isinstance(values, Mapping):
        own = [values[str(seed)] for seed in seeds if str(seed) in values]
        return np.mean(np.asarray(own, np.float64), axis=0) if own else None
    return None if values is None else np.atleast_1d(np.asarray(values, np.float64))


def _series(rows: "pl.DataFrame", method: str, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps (m,) and values (n, m) of the valid seeds; NaN where a seed has no finite row.

    Seeds that diverged or stopped early are left out, as in every mean of the report, unless there are no others.
    """
    part = rows.filter(method=method)
    steps = np.unique(part["step"].to_numpy())
    seeds = np.unique(part["seed"].to_numpy())
    at = np.searchsorted(seeds, part["seed"].to_numpy()), np.searchsorted(steps, part["step"].to_numpy())

    def table(name: str) -> np.ndarray:
        values = np.full((len(seeds), len(steps)), np.nan)
        if name in part.columns:
            values[at] = part[name].cast(float).fill_null(np.nan).to_numpy()
        return np.where(np.isfinite(values), values, np.nan)

    valid = np.all(np.isfinite(table("return_mean")), axis=-1)
    return steps, table(column)[valid] if np.any(valid) else table(column)


def _band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds and its pointwise bootstrap band, three arrays (m,); NaN where a seed is missing."""
    index = draw_resamples(np.random.default_rng(0), [len(values)], REPLICATES)[:, 0]
    counts = np.stack([np.sum(index == s, axis=-1) for s in range(len(values))], axis=-1)
    low, high = np.percentile(counts @ values / len(values), [2.5, 97.5], axis=0)
    return np.mean(values, axis=0), low, high


def _grid(rows: "pl.DataFrame", lines: int, heights: Sequence[float]):
    from matplotlib.figure import Figure as Canvas

    methods = rows["method"].unique(maintain_order=True).to_list()
    carriers = list(dict.fromkeys(map(_carrier, methods)))
    width = {1: 9.6, 2: 11.0}.get(len(carriers), 3.4 * len(carriers) + 0.6)
    height = sum(heights) + 1.1
    canvas = Canvas(figsize=(width, height))  # fixed margins: a layout engine takes half of the drawing time
    axes = canvas.subplots(lines, len(carriers), sharex=True, sharey="row", squeeze=False, height_ratios=list(heights))
    margins = {
        "left": 0.75 / width,
        "right": 1 - 0.15 / width,
        "bottom": 0.75 / height,
        "top": 1 - 0.3 / height,
    }
    canvas.subplots_adjust(**margins, wspace=0.08, hspace=0.12)
    for axis, carrier in zip(axes[0], carriers, strict=True):
        axis.set_title(carrier, fontsize=10, fontweight="bold", loc="left")
    return canvas, axes, {c: [m for m in methods if _carrier(m) == c] for c in carriers}


def dress(axis, marks: Marks) -> None:
    """Change points (dashed: the drift jumps, dotted: it does not), grid, steps in thousands or millions."""
    style = {"ls": "--", "alpha": 0.7} if marks.jumps else {"ls": ":", "alpha": 0.6}
    for change in marks.changes:
        axis.axvline(change, color="#444444", lw=0.9, zorder=1.5, **style)
    horizon = marks.horizon
    axis.set_xlim(0, horizon)
    axis.grid(True, color="#e6e6e6", lw=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
    axis.locator_params(axis="x", nbins=5, prune="upper")  # a label at T would touch the next panel's 0
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}M" if horizon > 2e6 else f"{x / 1e3:g}k")


def _finish(canvas, axes, looks: Mapping[str, Any], groups: Mapping[str, list[str]], dpi: int) -> bytes:
    """Labels and one legend for all panels, then the PNG."""
    from matplotlib.lines import Line2D

    for axis in axes[-1]:
        axis.set_xlabel("environment steps", fontsize=8)
    shown = dict.fromkeys(_kind(m) for methods in groups.values() for m in methods)
    names = {kind: (kind.lstrip("+") if len(groups) > 1 else next(iter(groups)) + kind) for kind in shown}
    look = {_kind(m): looks[m] for methods in groups.values() for m in methods}
    handles = [Line2D([], [], **look[kind], lw=2) for kind in shown]
    labels = [names[kind] or "baseline" for kind in shown]
    width, height = canvas.get_size_inches()
    columns = max(1, min(len(labels), int(width / (0.55 + 0.075 * max(map(len, labels))))))
    extra = 0.18 * (-(-len(labels) // columns) - 1)  # inches for the rows after the first
    canvas.set_size_inches(width, height + extra)
    canvas.subplots_adjust(bottom=(0.75 + extra) / (height + extra))
    canvas.legend(handles, labels, loc="lower center", ncols=columns, fontsize=8, frameon=False)
    rendered = io.BytesIO()
    canvas.savefig(rendered, format="png", dpi=dpi, metadata={"Software": None})
    return pack_png(rendered, {BASELINE, *(look["color"] for look in looks.values())})


def _curves(rows, looks: Mapping[str, Any], marks: Marks, optimum: np.ndarray | None, dpi: int) -> bytes:
    canvas, axes, groups = _grid(rows, 1, [2.9])
    for axis, methods in zip(axes[0], groups.values(), strict=True):
        dress(axis, marks)
        for method in methods:
            steps, values = _series(rows, method, "return_mean")
            if len(methods) <= 3 and len(values) > 1:
                axis.plot(steps, values.T, color=looks[method]["color"], lw=0.5, alpha=0.25)
            mean, low, high = _band(values)
            if len(values) > 1:
                axis.fill_between(steps, low, high, color=looks[method]["color"], alpha=0.16, lw=0)
            axis.plot(steps, mean, **looks[method], lw=1.6)
        if optimum is not None:
            where = np.linspace(0, marks.horizon, max(2, len(optimum)))
            level = optimum if len(optimum) > 1 else np.repeat(optimum, 2)
            axis.plot(where, level, color="#666666", lw=1.2, ls=":")
    axes[0, 0].set_ylabel("return", fontsize=9)
    return _finish(canvas, axes, looks, groups, dpi)


def _signals(rows, looks: Mapping[str, Any], marks: Marks, dpi: int) -> bytes:
    canvas, axes, groups = _grid(rows, 3, [1.0, 1.7, 1.7])
    wide = {column: spans_decades(_values(rows, column)) for column in ("entropy_weight", "proxy_smooth")}
    for column, methods in enumerate(groups.values()):
        for axis in axes[:, column]:
            dress(axis, marks)
        steps, drift = _series(rows, methods[0], "drift_value")
        axes[0, column].plot(steps, drift.T, color="#555555", lw=0.8, alpha=0.6)
        for line, name in ((1, "entropy_weight"), (2, "proxy_smooth")):
            axis = axes[line, column]
            for method in methods:
                steps, values = _series(rows, method, name)
                mean = nan_mean(values, axis=0)
                if np.any(np.isfinite(mean) & ((mean != 0) | (name == "entropy_weight"))):  # no proxy logs zeros
                    axis.plot(steps, mean, **looks[method], lw=1.3)
            if wide[name]:
                axis.set_yscale("log")
    for line, label in enumerate(("true drift", "entropy weight", "drift proxy")):
        axes[line, 0].set_ylabel(label, fontsize=9)
    return _finish(canvas, axes, looks, groups, dpi)


def _values(rows: "pl.DataFrame", column: str) -> np.ndarray:
    return rows[column].cast(float).fill_null(np.nan).to_numpy() if column in rows.columns else np.zeros(0)


def spans_decades(values: np.ndarray, factor: float = 20.0) -> bool:
    """Whether positive values cover more than ``factor``, so that a log axis shows more."""
    values = values[np.isfinite(values) & (values > 0)]
    if values.size < 2:
        return False
    low, high = np.percentile(values, [1, 99])
    return bool(high > factor * low)
