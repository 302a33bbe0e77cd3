"""The figure of a replay: per method of the study, the weight it trained with and those other schedules would give."""

import io
from collections.abc import Mapping

import numpy as np

from aesjax.measure.patterns import STEADY, PatternFacts, describe_runs
from aesjax.report.figures import BASELINE, PALETTE, Marks, dress, spans_decades
from aesjax.report.png import pack_png

__all__ = ["draw_replay"]

Line = tuple[np.ndarray, np.ndarray]  # (m,) environment steps, (m,) entropy weight in reward per nat
DASHES = (
    "-",
    (0, (5, 2)),
    (0, (4, 2, 1, 2)),
    (0, (2, 2)),
    (0, (8, 3)),
    (0, (1, 1.5)),
)  # of lines that coincide, all show
POINTS = 2000  # of a line at most; the figure is some 1300 pixels wide


def draw_replay(
    panels: Mapping[str, Mapping[str, Line]],
    trained: str,
    changes: np.ndarray,
    pattern: str,
    horizon: float,
    facts: PatternFacts | None = None,
) -> bytes:
    """A PNG with one panel per method, all on the same axes.

    Args:
      panels: title of a panel -> name of a line -> the line.
      trained: the name of the line that is not a replay; drawn black and broad, so that a replay which agrees with it
        lies inside it.
      changes: (K,) change steps.
      pattern: name of the drift pattern.
      horizon: T, environment steps.
      facts: of the pattern, from ``describe(manifest)``; without them those of the built-in pattern of that name.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure as Canvas

    facts = facts or describe_runs({}, [pattern])[pattern]
    marks = Marks(changes[:0] if pattern == STEADY else changes, facts.jumps, horizon)
    looks = _looks(list(dict.fromkeys(name for lines in panels.values() for name in lines)), trained)
    columns = 1 if len(panels) <= 3 else 2
    rows = -(-len(panels) // columns)
    width, height = 9.6 if columns == 1 else 12.0, 1.95 * rows + 1.05
    canvas = Canvas(figsize=(width, height))
    axes = canvas.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    weights = np.concatenate([weight for lines in panels.values() for _, weight in lines.values()])
    wide = spans_decades(weights, factor=5.0)  # a schedule near its base beside one near its upper bound
    for axis, (title, lines) in zip(axes.T.ravel(), panels.items(), strict=False):
        dress(axis, marks)
        for name, line in lines.items():
            axis.plot(*_thinned(line), **looks[name])
        if wide:
            _log_scale(axis)
        axis.set_title(title, fontsize=9, fontweight="bold", loc="left", pad=4)
    for axis in axes.T.ravel()[len(panels) :]:
        axis.set_axis_off()
    for column in axes.T:
        shown = [axis for axis in column if axis.axison]
        shown[-1].set_xlabel("environment steps", fontsize=8)
        shown[-1].tick_params(labelbottom=True)
    canvas.supylabel("entropy weight (reward per nat)", fontsize=9, x=0.18 / width, y=0.5 + 0.24 / height)
    return _render(canvas, looks)


def _log_scale(axis) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())


def _looks(names: list[str], trained: str) -> dict[str, dict]:
    others = [name for name in names if name != trained]
    looks: dict[str, dict] = {trained: {"color": BASELINE, "ls": "-", "lw": 4.0, "alpha": 0.6, "zorder": 2}}
    for i, name in enumerate(others):
        looks[name] = {"color": PALETTE[i % len(PALETTE)], "ls": DASHES[i % len(DASHES)], "lw": 1.5, "zorder": 3}
    return looks


def _thinned(line: Line) -> Line:
    every = -(-len(line[0]) // POINTS)
    return line[0][:: max(1, every)], line[1][:: max(1, every)]


def _render(canvas, looks: Mapping[str, dict]) -> bytes:
    """Margins in inches, one legend below all panels, then the PNG."""
    from matplotlib.lines import Line2D

    width, height = canvas.get_size_inches()
    columns = max(1, min(len(looks), int(width / (0.55 + 0.075 * max(map(len, looks))))))
    extra = 0.18 * (-(-len(looks) // columns) - 1)  # inches for the legend's rows after the first
    height += extra
    canvas.set_size_inches(width, height)
    canvas.subplots_adjust(
        left=0.8 / width,
        right=1 - 0.15 / width,
        bottom=(0.78 + extra) / height,
        top=1 - 0.3 / height,
        wspace=0.06,
        hspace=0.28,
    )
    handles = [Line2D([], [], **look) for look in looks.values()]
    canvas.legend(handles, list(looks), loc="lower center", ncols=columns, fontsize=8, frameon=False, handlelength=3.2)
    rendered = io.BytesIO()
    canvas.savefig(rendered, format="png", dpi=140, metadata={"Software": None})
    return pack_png(rendered, {look["color"] for look in looks.values()})
