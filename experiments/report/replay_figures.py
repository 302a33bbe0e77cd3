"""The plot of a replay: per method, the weight it trained with and those that other schedules would give."""

from collections.abc import Mapping

import numpy as np

from experiments.measure.patterns import STEADY, PatternFacts, describe_runs
from experiments.report.cells import number
from experiments.report.looks import DASHES, PALETTE, Look
from experiments.report.plots import Axis, Line, Panel, Plot, Row, file_stem, spans_decades
from experiments.report.series import thinned

Weights = tuple[np.ndarray, np.ndarray]  # (m,) environment steps, (m,) entropy weight in reward per nat
_POINTS = 1000  # of a line at most; the picture is some 1300 pixels wide


def replay_plot(
    panels: Mapping[str, Mapping[str, Weights]],
    trained: str,
    changes: np.ndarray,
    carrier: str,
    pattern: str,
    horizon: float,
    facts: PatternFacts | None = None,
) -> Plot:
    """A panel per method, one above the other.

    Args:
      panels: title of a panel -> name of a line -> the line.
      trained: the name of the line that is not a replay; drawn black and broad, so that a replay which agrees with it
        lies inside it.
      changes: (K,) change steps.
      carrier, pattern: what was trained, and under which drift.
      horizon: T, environment steps.
      facts: of the pattern, from ``describe(manifest)``; without them those of the built-in pattern of that name.
    """
    facts = facts or describe_runs({}, [pattern])[pattern]
    names = dict.fromkeys(name for lines in panels.values() for name in lines)
    others = [name for name in names if name != trained]
    strokes = len(DASHES) - 1
    looks = {trained: Look(-1, 0, 3.2)}
    looks |= {name: Look(i % len(PALETTE), 1 + i % strokes, 1.5) for i, name in enumerate(others)}
    weights = np.concatenate([weight for lines in panels.values() for _, weight in lines.values()])
    wide = spans_decades(weights, factor=5.0)  # a schedule near its base beside one near its upper bound
    rows = tuple(Row("entropy weight", 1.9, log=wide, title=title) for title in panels)
    marks = changes[:0] if pattern == STEADY else changes
    drawn = tuple(
        Panel(i, 0, tuple(thinned(Line(name, x, y), _POINTS) for name, (x, y) in lines.items()))
        for i, lines in enumerate(panels.values())
    )
    return Plot(
        file_stem("weights", carrier, pattern),
        "replay",
        "",
        pattern,
        carrier,
        "Entropy weight in reward per nat, mean over runs: black as it was trained, the others as they would have been",
        f"Entropy weights of {carrier} under {pattern} drift. " + _ranges(panels),
        Axis("environment steps", 0.0, horizon, "steps", marks, facts.jumps, segments=True),
        rows,
        ("",),
        drawn,
        looks,
    )


def _ranges(panels: Mapping[str, Mapping[str, Weights]]) -> str:
    said = []
    for title, lines in panels.items():
        found = [f"{name} {number(y.min(), 3)} to {number(y.max(), 3)}" for name, (_, y) in lines.items() if y.size]
        said.append(f"{title}: {', '.join(found)}")
    return "; ".join(said) + "."
