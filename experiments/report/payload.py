"""The data of a page's live charts as JSON that can stand inside a script element."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.report.looks import DASHES, Look
from experiments.report.plots import Line, Plot

_DIGITS = 4  # significant ones; a chart is some 300 pixels high


def payload(plots: Sequence[Plot]) -> str:
    """What `assets/page.js` reads: a plot per name; lines refer to looks and to horizontal grids by index.

    No value can end the script element or start another one.
    """
    data = {plot.name: _plot(plot) for plot in plots}
    text = json.dumps({"plots": data}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _plot(plot: Plot) -> dict[str, Any]:
    grids: dict[bytes, int] = {}
    values: list[list[float | None]] = []

    def grid(x: np.ndarray) -> int:
        key = np.asarray(x, np.float64).tobytes()
        if key not in grids:
            grids[key] = len(grids)
            values.append(_numbers(x, 7))
        return grids[key]

    panels = [
        {"row": p.row, "column": p.column, "lines": [_line(line, grid(line.x)) for line in p.lines]}
        for p in plot.panels
    ]
    axis = plot.axis
    return {
        "kind": plot.kind,
        "x": {
            "label": axis.label,
            "low": axis.low,
            "high": axis.high,
            "form": axis.form,
            "marks": _numbers(axis.marks, 9),
            "jumps": axis.jumps,
            "segments": axis.segments,
        },
        "rows": [
            {"label": r.label, "height": r.height, "log": r.log, "title": r.title, "steps": r.steps} for r in plot.rows
        ],
        "columns": list(plot.columns),
        "looks": {name: _look(look) for name, look in plot.looks.items()},
        "grids": values,
        "panels": panels,
    }


def _look(look: Look) -> dict[str, Any]:
    return {"ink": look.ink, "dash": list(DASHES[look.dash]), "width": look.width}


def _line(line: Line, grid: int) -> dict[str, Any]:
    """Absent parts are left out."""
    parts = {"y": line.y, "low": line.low, "high": line.high}
    found: dict[str, Any] = {"name": line.name, "x": grid}
    found |= {key: _numbers(values) for key, values in parts.items() if values is not None}
    if line.seeds:
        found["seeds"] = {str(seed): _numbers(values) for seed, values in line.seeds.items()}
    return found


def _numbers(values: np.ndarray, digits: int = _DIGITS) -> list[float | None]:
    """Rounded; whole numbers without a point, what is not finite as null."""
    found: list[float | None] = []
    for value in np.asarray(values, np.float64).tolist():
        if not np.isfinite(value):
            found.append(None)
            continue
        rounded = float(f"{value:.{digits}g}")
        found.append(int(rounded) if rounded == int(rounded) else rounded)
    return found
