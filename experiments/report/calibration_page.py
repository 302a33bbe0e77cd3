"""The page of `aesjax calibrate`: one sentence, the factor that every run would have needed over time, the table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.report.calibration import COVERAGES, Trace, calibrate
from experiments.report.cells import Cell, Table, number
from experiments.report.draw import draw
from experiments.report.looks import PALETTE, Look
from experiments.report.page import Figure, Page, groups_of, render_html, render_markdown
from experiments.report.plots import Axis, Line, Panel, Plot, Row, spans_decades
from experiments.study import store

STEM = "calibration"
NUMBERS, TEXT, PAGE = (f"{STEM}.{suffix}" for suffix in ("json", "md", "html"))
_RHO = "rho"
_POINTS = 200
_HEAD = ["pattern", "runs", "dominated", "slack", "coverage", "at drift", "at jumps", "at jumps, late", "whole runs"]
_MEANING = """\
What the numbers mean. Every run is judged by a calibration on the runs of all other seeds.
- Drift is the length of the environment's path, as a share of each channel's range. It is known because
  it is programmed; the drift of the best policy is something else, and no factor between them is known.
- dominated: accumulated drift <= rho times accumulated proxy after every sample of the run. Promised for
  {share:g} % of fresh runs of the same method, schedule, task and mix of patterns, if runs are independent;
  runs of one seed share what was drawn for it. For a single pattern nothing is promised.
- slack: accumulated bound over accumulated drift at the end, median of the runs that drift. Regret pays
  its root; a proxy that is never silent makes it grow with the length of the run.
- coverage: share of evaluation intervals whose drift a split conformal bound at {share:g} % keeps. It pools
  intervals of different runs, which are dependent, so it is a measurement and not a guarantee.
- at drift, at jumps: the same, of the intervals in which the environment moves, or jumps; rare drift is
  lost in the coverage over all. late: the largest bound of {window} intervals from the jump on counts.
- whole runs: runs of which every interval is covered.
A dash where a bound would be infinite: it would hold for every run and say nothing."""


def run(directory: Path, delta: float, source: str | None, out: Path) -> str:
    """Calibrate the study in ``directory``, write `NUMBERS`, `TEXT` and `PAGE` with its figure into ``out``;
    returns the page as Markdown.

    Raises:
      ValueError: with one sentence; nothing was written.
    """
    for name in (NUMBERS, TEXT, PAGE):
        if (out / name).exists():
            raise ValueError(f"{out / name} exists; remove it or choose another folder with --out")
    record, traces = calibrate(directory, delta, source)
    figure = Figure(plot := _plot(record, traces), draw(plot))
    page = _page(record, figure)
    text = render_markdown(page)
    out.mkdir(parents=True, exist_ok=True)
    store.write_json(out / NUMBERS, record)
    store.write_text(out / PAGE, render_html(page))
    store.write_text(out / TEXT, text)
    store.write_bytes(out / f"{STEM}.png", figure.picture.png)
    store.write_bytes(out / f"{STEM}.svg", figure.picture.svg)
    return text


def _page(record: Mapping[str, Any], figure: Figure) -> Page:
    meaning = _MEANING.format(share=100.0 * (1.0 - record["delta"]), window=record["window"])
    methods = f"{len(record['methods'])} methods, delta = {record['delta']:g}"
    return Page(
        title=f"Calibration of drift proxies: {record['task']}",
        subtitle=f"{methods}; every run is judged by the runs of other seeds",
        problems=record["notes"],
        status="Some runs are left out." if record["notes"] else "",
        conclusion=_conclusion(record),
        looks=figure.plot.looks,
        figures_title="The factor a run needs",
        figures_reading="Hover or use the arrow keys for values, drag to zoom, double-click to return.",
        groups=list(groups_of([figure], {})),
        tables=[_table(record)],
        texts=[("What the numbers mean", meaning)],
        footer=f"The same numbers: {STEM}.json and {STEM}.md.",
    )


def _conclusion(record: Mapping[str, Any]) -> str:
    """One sentence on how often the bound held on runs that it was not made from."""
    promised, parts = f"promised {100.0 * (1.0 - record['delta']):g} %", []
    for name, result in record["methods"].items():
        every = result["groups"]["all"]
        if every["bounded_runs"]:
            parts.append(f"{name} on {every['dominated']} of {every['bounded_runs']} runs ({promised})")
        else:
            parts.append(f"{name} cannot be judged: {result['calibration_runs']} runs to calibrate on are too few")
    return f"Conclusion: the bound on drift held for {'; '.join(parts)}."


def _table(record: Mapping[str, Any]) -> Table:
    reading = "Dominated: runs on which the factor of the other seeds held from beginning to end."
    table = Table("calibration", "In numbers", reading, _HEAD)
    for name, result in record["methods"].items():
        rows = [list(map(Cell, _row(pattern, group))) for pattern, group in result["groups"].items()]
        table.groups.append((f"{name}, proxy {result['proxy']}", rows))
        table.notes.append(f"{name}: {_verdict(result, record['delta'], record['runs_needed'])}")
    return table


def _row(pattern: str, group: Mapping[str, Any]) -> tuple[str, ...]:
    whole, shares = group["whole_runs_covered"], [group[name] for name in COVERAGES]
    return (
        pattern,
        str(group["runs"]),
        f"{group['dominated']}/{group['bounded_runs']}" if group["bounded_runs"] else "-",
        "-" if group["slack"] is None else f"{group['slack']:.3g}",
        *("-" if share is None else f"{100.0 * share:.1f} %" for share in shares),
        "-" if whole is None else f"{whole}/{group['runs']}",
    )


def _verdict(result: Mapping[str, Any], delta: float, needed: int) -> str:
    """The run-level result of one method in sentences."""
    text = [f"{result['runs']} runs with {result['seeds']} seeds."]
    if result["calibration_runs"] < needed:
        text.append(
            f"Too few: delta = {delta:g} needs at least {needed} runs besides the one that is judged, and leaving out "
            f"its seed leaves {result['calibration_runs']}, so there is no finite factor and nothing to judge a run by."
        )
    if result["rho"] is not None:
        text.append(f"From all of them rho = {result['rho']:.4g} ranges per update and unit of the proxy.")
    elif result["runs"] < needed:
        text.append("There is no finite rho.")
    else:
        text.append("There is no finite rho: too many runs drift before their proxy is positive.")
    if result["no_signal"]:
        text.append(f"In {result['no_signal']} runs the environment drifted before the first positive proxy.")
    if rates := ", ".join(f"{name} {good}/{runs}" for name, (good, runs) in result["elsewhere"].items() if runs):
        text.append(f"Its factor on runs of other schedules, for which nothing is promised: {rates}.")
    return " ".join(text)


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
