"""The page of `aesjax calibrate`: one sentence, the factor that every run would have needed over time, the tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.report.calibration_output import HEAD, meaning, row_of, verdict_of
from experiments.report.calibration_runs import Trace
from experiments.report.cells import Cell, Table, number
from experiments.report.draw import draw
from experiments.report.looks import PALETTE, Look
from experiments.report.page import Figure, Page, groups_of, render_html, render_markdown
from experiments.report.plots import Axis, Line, Panel, Plot, Row, spans_decades

STEM = "calibration"
_RHO = "rho"
_POINTS = 200


def conclusion(record: Mapping[str, Any]) -> str:
    """One sentence on how often the bound held on runs that it was not made from."""
    promised = f"promised {100.0 * (1.0 - record['delta']):g} %"
    said = []
    for name, found in record["methods"].items():
        every = found["groups"]["all"]
        if every["bounded_runs"]:
            said.append(f"{name} on {every['dominated']} of {every['bounded_runs']} runs ({promised})")
        else:
            said.append(f"{name} cannot be judged: {found['calibration_runs']} runs to calibrate on are too few")
    return f"Conclusion: the bound on drift held for {'; '.join(said)}."


def files(record: Mapping[str, Any], traces: Mapping[str, Sequence[Trace]]) -> dict[str, bytes]:
    """The page, also as Markdown, and its figure, by file name.

    Args:
      record: what `experiments.report.calibration.run` writes as JSON.
      traces: method -> its runs.
    """
    plot = _plot(record, traces)
    picture = draw(plot)
    page = Page(
        title=f"Calibration of drift proxies: {record['task']}",
        subtitle=f"{len(traces)} methods, delta = {record['delta']:g}; every run is judged by the runs of other seeds",
        problems=record["notes"],
        status="Some runs are left out." if record["notes"] else "",
        conclusion=conclusion(record),
        looks=plot.looks,
        figures_title="The factor a run needs",
        figures_reading="Hover or use the arrow keys for values, drag to zoom, double-click to return.",
        groups=list(groups_of([Figure(plot, picture)], {})),
        tables=[_table(record)],
        texts=[("What the numbers mean", meaning(record["delta"], record["window"]))],
        footer=f"The same numbers: {STEM}.json and {STEM}.md.",
    )
    pages = {f"{STEM}.html": render_html(page).encode(), f"{STEM}.md": render_markdown(page).encode()}
    return pages | {f"{STEM}.png": picture.png, f"{STEM}.svg": picture.svg}


def _table(record: Mapping[str, Any]) -> Table:
    groups = [
        (f"{name}, proxy {found['proxy']}", [list(map(Cell, row_of(p, g))) for p, g in found["groups"].items()])
        for name, found in record["methods"].items()
    ]
    reading = "Dominated: runs on which the factor of the other seeds held from beginning to end."
    notes = [
        f"{name}: {verdict_of(found, record['delta'], record['runs_needed'])}"
        for name, found in record["methods"].items()
    ]
    return Table("calibration", "In numbers", reading, list(HEAD), groups, notes=notes)


def _plot(record: Mapping[str, Any], traces: Mapping[str, Sequence[Trace]]) -> Plot:
    """Accumulated drift over accumulated proxy of every run, and the factor that the runs give together."""
    patterns = list(dict.fromkeys(t.pattern for runs in traces.values() for t in runs))
    looks = {_RHO: Look(-1, 0, 2.0)}
    looks |= {pattern: Look(i % len(PALETTE), 1 + i % 4, 1.0) for i, pattern in enumerate(patterns)}
    x = np.linspace(0.0, 1.0, _POINTS)
    panels, rows, said = [], [], []
    for place, (name, runs) in enumerate(traces.items()):
        lines, needed = [], {}
        for pattern in patterns:
            own = {t.seed: _needed(t, x) for t in runs if t.pattern == pattern}
            needed |= {(pattern, seed): values for seed, values in own.items()}
            if own:
                lines.append(Line(pattern, x, None, seeds=own))
        rho = record["methods"][name]["rho"]
        if rho is not None:
            lines.append(Line(_RHO, x, np.full(_POINTS, rho)))
            said.append(f"{name}: rho {rho:.3g}")
        worst = [float(np.nanmax(v)) for v in needed.values() if np.any(np.isfinite(v))]
        said.append(f"{name}'s runs need {number(min(worst), 4)} to {number(max(worst), 4)}" if worst else "")
        every = np.concatenate([*needed.values(), np.zeros(0)])
        rows.append(Row("drift / proxy", 2.2, log=spans_decades(every), title=name))
        panels.append(Panel(place, 0, tuple(lines)))
    return Plot(
        STEM,
        "calibration",
        record["task"],
        "",
        "Accumulated drift over accumulated proxy",
        "Length of the environment's path so far, in channel ranges, over the proxy summed so far, a line per run; a "
        "factor dominates a run if it lies above its line from beginning to end. Black: rho, the factor of all runs",
        f"Factor between proxy and drift on {record['task']}. {'; '.join(part for part in said if part)}.",
        Axis("share of the recorded updates, %", 0.0, 1.0, "percent"),
        tuple(rows),
        ("",),
        tuple(panels),
        looks,
    )


def _needed(trace: Trace, x: np.ndarray) -> np.ndarray:
    """(k,) accumulated drift over accumulated proxy at shares ``x`` of the samples; NaN before the first proxy and
    while nothing has drifted."""
    signal, drift = np.cumsum(trace.signal), np.cumsum(trace.drift)
    at = np.minimum((x * len(signal)).astype(int), len(signal) - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = drift[at] / signal[at]
    return np.where(np.isfinite(ratio) & (ratio > 0), ratio, np.nan)
