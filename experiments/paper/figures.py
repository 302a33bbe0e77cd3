"""Pictures of a record: outcomes of all settings, return against weight, response of the weight to changes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from experiments.measure.comparisons import DECIDED, EQUAL, EQUIVALENT, Contrast
from experiments.measure.stats import Interval, t_interval
from experiments.measure.study import STEADY
from experiments.paper.record import RUN, method_of
from experiments.paper.tables import (
    BASELINE,
    CONTRASTS,
    LEVEL,
    PUBLISHED,
    RECENT,
    TIMING,
    TUNED,
    Setting,
    cells_of,
    kappa_of,
    longest,
    plays,
)
from experiments.report.draw import canvas_to_files, frame
from experiments.report.plots import BASELINE as BASELINE_INK
from experiments.report.plots import PALETTE, REFERENCE_INK
from experiments.report.verdicts import SIGNS
from experiments.study import store
from experiments.study.text import number

#: Patterns of the heat maps from left to right; others follow.
_COLUMNS = (STEADY, "abrupt", "linear", "periodic", "mixed", "sawtooth")
_SAME = {"mixed_release": "mixed"}  # on the authors' toy task
_FULL = 0.2  # share of the gain at which the colour is full
_WIDTH = 4.0  # inches, so that a telephone shows the text without enlarging
#: Methods of the front picture, by their row in the tables: legend, colour, mark.
_FRONT = {
    BASELINE: ("SAC's own tuning", BASELINE_INK, "*"),
    PUBLISHED: ("AES, published", PALETTE[1], "s"),
    LEVEL: ("constant of equal mean", PALETTE[0], "D"),
    TUNED: ("AES, kappa tuned", PALETTE[3], "^"),
    RECENT: ("constant with newer data", PALETTE[2], "o"),
}
#: Contrasts of AES in the two heat maps, by their row in the tables: with other weights, and with its own.
OPPONENTS, CONTROLS = (BASELINE, PUBLISHED, TUNED), (LEVEL, TIMING)
_CURVES = (BASELINE, PUBLISHED, LEVEL, RECENT)
_DIFFERENCES = (BASELINE, PUBLISHED, TUNED, RECENT)


def _canvas(height: float, rows: int = 1, columns: int = 1, width: float = _WIDTH, **options: Any):
    """A figure, its size in inches, and its axes row by row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width, height), layout="constrained")
    return canvas, canvas.subplots(rows, columns, squeeze=False, **options).ravel()


class Row(NamedTuple):
    """A task and carrier in one contrast of the overview."""

    label: str
    cells: Mapping[str, Contrast]  # by pattern
    pinned: set[str]  # patterns under which the schedule is pinned


def overview_rows(found: Sequence[Setting], opponents: Collection[str]) -> dict[str, list[Row]]:
    """Rows of a heat map under every contrast of AES with ``opponents``; settings at their longest horizon.

    A setting of an agent without a clear gain is left out, unless it is decided.
    """
    rows: dict[str, list[Row]] = {}
    for words, (row, part) in CONTRASTS.items():
        if row not in opponents:
            continue
        for setting in sorted(longest(found), key=lambda setting: (setting.is_robot, setting.task)):
            method = setting.methods.get(row if part == "tuned" else PUBLISHED)
            cells = {_SAME.get(name, name): each for name, each in cells_of(setting, row, part).items()}
            pinned = {_SAME.get(pattern, pattern) for name, pattern in setting.pinned if name == method}
            if any(each.outcome in DECIDED or np.isfinite(each.gain) for each in cells.values()):
                label = f"{setting.task.removeprefix('isaac_')} {setting.methods[BASELINE]}"
                label = f"Isaac {label}" if setting.task.startswith("isaac_") else label
                rows.setdefault(words, []).append(Row(label, cells, pinned))
    return rows


def overview(found: Sequence[Setting], opponents: Collection[str], path: Path) -> None:
    """Draw a heat map of all settings: difference in % of the agent's gain, decided outcomes, pinned weights."""
    from matplotlib.patches import Rectangle

    sections = overview_rows(found, opponents)
    patterns = set().union(*(row.cells for row in chain.from_iterable(sections.values())))
    columns = [*_COLUMNS, *sorted(patterns - {*_COLUMNS})]
    height = sum(len(rows) + 1.6 for rows in sections.values())
    canvas, (axis,) = _canvas(0.126 * height + 0.2)
    at, labels = 0.0, {}
    for words, rows in sections.items():
        axis.text(len(columns) - 0.5, at + 0.3, words, fontsize=7.5, fontweight="bold", va="center", ha="right")
        at += 1.2
        for row in rows:
            labels[at] = row.label
            for column, pattern in enumerate(columns):
                if (contrast := row.cells.get(pattern)) is None:
                    continue
                share = contrast.interval.value / contrast.gain
                text, decided = _cell(contrast, share), contrast.outcome in DECIDED
                axis.add_patch(Rectangle((column - 0.48, at - 0.46), 0.96, 0.92, color=_colour(share)))
                pinned = pattern in row.pinned
                ink = {"color": "#444444" if pinned else "black", "fontstyle": "italic" if pinned else "normal"}
                weight = "bold" if decided else "normal"
                axis.text(column, at, text, ha="center", va="center", fontsize=6.5, fontweight=weight, **ink)
            at += 1.0
        at += 0.4
    axis.set(xlim=(-0.5, len(columns) - 0.5), ylim=(at, -0.3))
    axis.set_yticks(list(labels), list(labels.values()), fontsize=7)
    axis.set_xticks(range(len(columns)), ["no\ndrift", *columns[1:]], fontsize=6)
    axis.tick_params(length=0, top=True, labeltop=True, labelbottom=True)
    axis.spines[:].set_visible(False)
    store.write_bytes(path, canvas_to_files(canvas, 160).png)


def _cell(contrast: Contrast, share: float) -> str:
    """A difference in % of the gain, with the sign of its outcome unless undecided."""
    sign = SIGNS[contrast.outcome] if contrast.outcome in (*DECIDED, EQUAL, EQUIVALENT) else ""
    percent = f"{100 * share:+.0f}".replace("-", "\N{MINUS SIGN}") if np.isfinite(share) else ""
    return f"{sign} {'0' if percent[1:] == '0' else percent}".strip() or "·"


def _colour(share: float) -> str | tuple:
    """Blue for gains, orange for losses, paler towards zero; grey without a gain to compare with."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("", ["#E08A4A", "#FFFFFF", "#5B9BD5"])
    return colours(0.5 + 0.5 * float(np.clip(share / _FULL, -1, 1))) if np.isfinite(share) else "#E4E4E4"


class Point(NamedTuple):
    """A method in the picture of return against weight."""

    method: str
    weight: float  # mean, reward per nat
    interval: Interval  # of the mean return
    seeds: int
    kind: int  # index of `_POINTS`; -1: a weight of zero, which has no place on a logarithmic axis


#: Kinds of points: legend, mark, test of the method.
_POINTS = (
    ("constants", "o", lambda method: method.follows("fixed")),
    ("aes, four kappas", "s", lambda method: method.follows("aes")),
    ("aes, mean-matched", "D", lambda method: plays(method, "constant_at_mean")),
    ("aes, time-permuted", "X", lambda method: plays(method, "permuted")),
    ("aes_r", "^", lambda method: method.follows("aes_r")),
    ("SAC's own tuning", "*", lambda method: method.follows("auto")),
)


def points(setting: Setting, pattern: str) -> Iterator[Point]:
    """The methods of a setting without adaptations."""
    for (name,), runs in setting.runs.filter(pattern=pattern).group_by("method", maintain_order=True):
        method, weight = method_of(runs["definition"][0]), float(np.mean(runs["mean_entropy_weight"].to_numpy()))
        kinds = [at for at, (_, _, test) in enumerate(_POINTS) if test(method)]
        if kinds:
            interval = t_interval(runs["mean_return"].to_numpy())
            yield Point(str(name), weight, interval, runs["seed"].n_unique(), kinds[0] if weight else -1)


def kappa(found: Sequence[Setting], path: Path, task: str = "toy", pattern: str = "abrupt") -> None:
    """Draw mean return against mean entropy weight, a panel for SAC and PPO, with 95 % t intervals over seeds."""
    canvas, axes = _canvas(5.6, 2)
    legend = {}
    settings = {each.carrier: each for each in longest(found) if each.task == task}
    for axis, carrier in zip(axes, ("sac", "ppo"), strict=True):
        for point in points(settings[carrier], pattern):
            value, low, high = point.interval
            if point.kind < 0:
                legend["constant 0"] = axis.axhline(value, color=REFERENCE_INK, lw=0.9, ls="--", zorder=1)
                continue
            (label, mark, _), colour = _POINTS[point.kind], PALETTE[point.kind]
            height = [[value - low], [high - value]]
            legend[label] = axis.errorbar(point.weight, value, height, fmt=mark, color=colour, ms=6, lw=1.0)
            if mark == "s":
                definition = settings[carrier].runs.filter(method=point.method)["definition"][0]
                below = {"xytext": (0, -10), "textcoords": "offset points", "ha": "center"}
                text = f"κ {number(kappa_of(method_of(definition)))}"
                axis.annotate(text, (point.weight, low), fontsize=8, color=colour, **below)
        axis.set_xscale("log")
        axis.margins(x=0.12, y=0.12)
        _titled(axis, f"{carrier.upper()}: mean return", "mean entropy weight, reward per nat")
    canvas.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    store.write_bytes(path, canvas_to_files(canvas, 160).png)


def _titled(axis, title: str, horizontal: str) -> None:
    axis.set_title(title, fontsize=9, fontweight="bold", loc="left")
    axis.set_xlabel(horizontal, fontsize=8)
    frame(axis)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)


def rises(curves: pl.DataFrame, horizon: float, segments: int = 5) -> np.ndarray:
    """(segments - 1,) relative rises of the entropy weight after every change, mean over seeds.

    Per seed the largest weight in the segment that begins at the change, over the weight at the change, minus 1.

    Args:
      curves: of one method under one pattern, a row per seed and evaluation.
      horizon: environment steps.
    """
    changes = np.arange(1, segments + 1) * horizon / segments
    seeds = []
    for _, run in curves.drop_nulls("entropy_weight").sort("step").group_by("seed", maintain_order=True):
        step, weight = run["step"].to_numpy(), run["entropy_weight"].to_numpy()
        seeds.append(
            [np.max(weight[(step > a) & (step <= b)]) / weight[step <= a][-1] - 1 for a, b in pairwise(changes)]
        )
    return np.mean(seeds, axis=0)


#: Lines of the response: label, task, pattern.
RESPONSES = {
    "toy, abrupt": ("toy", "abrupt"),
    "reacher, sawtooth": ("reacher", "sawtooth"),
    "reacher, no drift": ("reacher", STEADY),
}


def _of_sac(found: Sequence[Setting]) -> dict[str, Setting]:
    """Task -> SAC's setting at its longest horizon."""
    return {each.task: each for each in longest(found) if each.carrier == "sac"}


def _curves_of(setting: Setting, row: str, pattern: str, curves: pl.DataFrame) -> pl.DataFrame:
    """Curves of the method of a row of the tables under a pattern."""
    own = setting.runs.filter(method=setting.methods[row], pattern=pattern)
    return curves.join(own, on=RUN, how="semi")


def responses(found: Sequence[Setting], curves: pl.DataFrame) -> dict[str, np.ndarray]:
    """Rises of the weight of SAC with published AES after every change, by line of the picture."""
    settings, lines = _of_sac(found), {}
    for label, (task, pattern) in RESPONSES.items():
        lines[label] = rises(_curves_of(settings[task], PUBLISHED, pattern, curves), settings[task].steps)
    return lines


def response(found: Sequence[Setting], curves: pl.DataFrame, path: Path) -> None:
    """Draw how much the weight of published AES rises after each change of a run."""
    canvas, (axis,) = _canvas(2.6)
    for colour, (label, rise) in zip(PALETTE, responses(found, curves).items(), strict=False):
        axis.plot(range(1, len(rise) + 1), 100 * rise, marker="o", ms=5, lw=1.4, color=colour, label=label)
    axis.set_xticks(range(1, 5))
    _titled(axis, "rise of the entropy weight, %", "change of the drift, at 20, 40, 60 and 80 % of the run")
    axis.legend(fontsize=8, frameon=False)
    store.write_bytes(path, canvas_to_files(canvas, 160).png)


def front(found: Sequence[Setting], curves: pl.DataFrame, path: Path) -> None:
    """Draw SAC on the toy task under abrupt drift, and differences to the tuned constant on every task of SAC."""
    settings = _of_sac(found)
    canvas, (left, right) = _canvas(3.5, columns=2, width=10.0, width_ratios=(1.15, 1.0))
    toy = settings["toy"]
    for row in _CURVES:
        label, colour, _ = _FRONT[row]
        seeds = (
            _curves_of(toy, row, "abrupt", curves)
            .pivot("seed", index="step", values="return_mean")
            .sort("step")
            .drop_nulls()
        )
        steps, returns = seeds["step"].to_numpy() / 1_000, seeds.drop("step").to_numpy()
        mean = returns.mean(axis=1)
        half = np.array([t_interval(values).high for values in returns]) - mean
        left.plot(steps, mean, color=colour, lw=1.3, label=label)
        left.fill_between(steps, mean - half, mean + half, color=colour, alpha=0.1, lw=0)
    for change in np.arange(1, 5) * toy.steps / 5_000:
        left.axvline(change, color=REFERENCE_INK, lw=0.8, ls="--", zorder=0)
    _titled(left, "return of SAC on the toy task (dashed: changes)", "environment steps, thousands")
    shown = [each for each in settings.values() if each.tuned and each.gain > 0]
    shown.sort(key=lambda each: (each.is_robot, each.task))
    for at, setting in enumerate(shown):
        for place, row in enumerate(_DIFFERENCES):
            _, colour, mark = _FRONT[row]
            if (interval := pooled(setting, row)) is not None:
                value, low, high = interval
                y, span = at + 0.18 * (place - 1.5), [[value - low], [high - value]]
                right.errorbar(value, y, xerr=span, fmt=mark, color=colour, ms=4.5, lw=1.0)
    right.set_yticks(range(len(shown)), [each.task for each in shown])
    right.invert_yaxis()
    right.axvline(0.0, color=REFERENCE_INK, lw=0.9, zorder=0)
    _titled(right, "SAC under drift, minus a tuned constant", "difference in return, % of the agent's gain")
    handles = [right.errorbar([], [], fmt=mark, color=colour, label=label) for label, colour, mark in _FRONT.values()]
    canvas.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    store.write_bytes(path, canvas_to_files(canvas, 160).png)


def pooled(setting: Setting, row: str) -> Interval | None:
    """Difference of a row to the chosen constant in % of the gain: mean over drifting patterns, t interval over seeds.

    None where the setting has no such method, or the method is the constant.
    """
    method = setting.methods.get(row)
    if method is None or method == setting.constant:
        return None
    runs = setting.runs.filter(pl.col("pattern") != STEADY, pl.col("seed").is_in(list(setting.reporting)))
    means = runs.group_by("method", "seed").agg(pl.col("mean_return").mean()).pivot("method", values="mean_return")
    differences = (means[method] - means[setting.constant]).drop_nulls().to_numpy()
    return t_interval(100 * differences / setting.gain)
