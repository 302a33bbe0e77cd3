"""The data of a page's live charts as JSON that can stand inside a script element."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.report.looks import DASHES
from experiments.report.plots import Line, Plot

_DIGITS = 4  # significant ones; a chart is some 300 pixels high


def payload(plots: Sequence[Plot]) -> str:
    """The data that `assets/page.js` reads: a plot per name; lines refer to looks and to horizontal grids by index.

    No value can end the script element or start another one.
    """
    data = {plot.name: _plot(plot) for plot in plots}
    text = json.dumps({"plots": data}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _plot(plot: Plot) -> dict[str, Any]:
    grids: dict[bytes, np.ndarray] = {}

    def line_of(line: Line) -> dict[str, Any]:
        """Absent parts are left out."""
        x = np.asarray(line.x, np.float64)
        grids.setdefault(x.tobytes(), x)
        parts = {"y": line.y, "low": line.low, "high": line.high}
        found: dict[str, Any] = {"name": line.name, "x": list(grids).index(x.tobytes())}
        found |= {key: _numbers(values) for key, values in parts.items() if values is not None}
        return found | ({"seeds": {str(seed): _numbers(y) for seed, y in line.seeds.items()}} if line.seeds else {})

    panels = [{"row": p.row, "column": p.column, "lines": [line_of(line) for line in p.lines]} for p in plot.panels]
    return {
        "x": plot.axis._asdict() | {"marks": _numbers(plot.axis.marks, 9)},
        "rows": [row._asdict() for row in plot.rows],
        "columns": plot.columns,
        "looks": {name: look._asdict() | {"dash": DASHES[look.dash]} for name, look in plot.looks.items()},
        "grids": [_numbers(x, 7) for x in grids.values()],
        "panels": panels,
    }


def _numbers(values: np.ndarray, digits: int = _DIGITS) -> list[float | None]:
    """Rounded; whole numbers without a point, null for values that are not finite."""
    rounded = [float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64).tolist()]
    return [None if not np.isfinite(value) else int(value) if value == int(value) else value for value in rounded]
