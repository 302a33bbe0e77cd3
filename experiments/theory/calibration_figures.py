"""The figures of the calibration study."""

from typing import Any

import numpy as np

from aesjax.schedules import calibration as cal
from experiments.theory.calibration_findings import Numbers, mean
from experiments.theory.calibration_worlds import DELTA, HORIZONS, RUNS, SIZES, split_expectation

INK, BLUE, RED, GREEN, GREY = "#222222", "#0072B2", "#D55E00", "#009E73", "#888888"


def draw(data: dict[str, Numbers]) -> dict[str, Any]:
    """All figures by file name."""
    return {
        "coverage_against_n": _draw_coverage(data),
        "what_coverage_hides": _draw_hidden(data),
        "run_level": _draw_runs(data),
        "price_of_a_floor": _draw_floor(data),
    }


def _bars(axes: Any, x: Any, values: np.ndarray, **style: Any) -> None:
    """Means over seeds with their intervals; values (len(x), seeds)."""
    rows = [mean(row) for row in values]
    low, high = ([abs(getattr(row, end) - row.value) for row in rows] for end in ("low", "high"))
    axes.errorbar(x, [row.value for row in rows], yerr=[low, high], capsize=2, marker="o", ms=4, **style)


def _draw_coverage(data: dict[str, Numbers]) -> Any:
    """Coverage against the number of calibration pairs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2))
    axes, p = figure.subplots(), data["pairs"]
    for name, colour in (("split", BLUE), ("reused, useless signal", GREY), ("reused, interpolated", GREEN)):
        _bars(axes, list(SIZES), p[name], color=colour, label=name)
    _bars(axes, list(SIZES), p["reused, step"], color=RED, label="reused, step (the paper's recipe)")
    axes.plot(list(SIZES), [split_expectation(n) for n in SIZES], "x", color=INK, ms=8, label="split, exactly expected")
    axes.axhline(1.0 - DELTA, color=INK, lw=0.8, ls="--")
    axes.text(9.2, 1.0 - DELTA + 0.005, "nominal", fontsize=8)
    axes.set(xscale="log", xlabel="calibration pairs N", ylabel="coverage of a fresh drift", ylim=(0.5, 1.02))
    axes.set_xticks(list(SIZES), [str(n) for n in SIZES])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def _draw_hidden(data: dict[str, Numbers]) -> Any:
    """What a coverage over all rounds and runs hides."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.4, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    names = ("overall", "at drift", "windows", "windows with drift", "lag known", "margin of events")
    labels = ("all", "drift", "windows", "windows\nwith drift", "drift,\nno lag", "drift, own\nmargin")
    values = [mean(data["rare"][name]) for name in names]
    left.bar(range(len(names)), [x.value for x in values], color=[BLUE, RED, BLUE, RED, GREEN, GREEN], width=0.6)
    for i, x in enumerate(values):
        left.text(i, x.value + 0.015, f"{x.value:.3f}", ha="center", fontsize=8)
    left.set_xticks(range(len(names)), labels, fontsize=8)
    left.set(ylabel="coverage", ylim=(0, 1.1), title="2 % of rounds drift, signal one round late")
    left.axhline(1.0 - DELTA, color=INK, lw=0.8, ls="--")
    per_run = np.ravel(data["gain"]["per run"])
    right.hist(per_run, bins=np.linspace(0, 1, 41), color=BLUE, weights=np.full(per_run.shape, 1.0 / per_run.size))
    right.axvline(1.0 - DELTA, color=INK, lw=0.8, ls="--", label="nominal")
    right.axvline(per_run.mean(), color=RED, lw=1.2, label="mean over runs")
    right.set(xlabel="coverage within one run", ylabel="share of runs", title="drift of runs differs by a gain")
    right.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def _draw_runs(data: dict[str, Numbers]) -> Any:
    """Ratios of runs, how often their order statistics dominate fresh runs, and the slack that this takes."""
    from matplotlib.figure import Figure

    r, figure = data["runs"], Figure(figsize=(11.5, 3.6), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    ratios = np.sort(np.ravel(r["ratios"]))
    first.plot(ratios, np.arange(1, ratios.size + 1) / ratios.size, color=INK, lw=1)
    for n, scale, colour in zip(RUNS, r["scale"].mean(-1), (BLUE, GREEN, RED), strict=True):
        first.axvline(scale, color=colour, lw=1, label=f"median scale from {n} runs")
    first.set(xscale="log", xlabel="ratio of a run, max of A / V", ylabel="share of runs below", ylim=(0, 1.02))
    first.legend(frameon=False, fontsize=8, loc="upper left")
    place, name = np.arange(len(RUNS)), "smallest delta: "
    exact = [cal.conformal_index(n, DELTA) / (n + 1) for n in RUNS]
    _bars(second, place - 0.08, r["dominance"], ls="none", color=BLUE, label="delta = 0.1")
    _bars(second, place + 0.08, r[name + "dominance"], ls="none", color=GREEN, label="delta = 1/(n + 1)")
    _bars(second, place, r["other schedule"], ls="none", color=RED, label="delta = 0.1, deployed elsewhere")
    second.plot(place - 0.08, exact, "_", color=INK, ms=14)
    second.plot(place + 0.08, [n / (n + 1) for n in RUNS], "_", color=INK, ms=14, label="exact")
    second.set(xlabel="calibration runs n", ylabel="fresh runs dominated", ylim=(0.4, 1.02), xlim=(-0.5, 2.5))
    _bars(third, place - 0.08, r["slack"], ls="none", color=BLUE, label="delta = 0.1")
    _bars(third, place + 0.08, r[name + "slack"], ls="none", color=GREEN, label="delta = 1/(n + 1)")
    third.set(xlabel="calibration runs n", ylabel="slack of the median run", ylim=(0, None), xlim=(-0.5, 2.5))
    for axes in (second, third):
        axes.set_xticks(place, [str(n) for n in RUNS])
        axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_floor(data: dict[str, Numbers]) -> Any:
    """Slack after one change against the horizon."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.8))
    axes = figure.subplots()
    _bars(axes, list(HORIZONS), data["floor"]["floor"], color=RED, label="signal with a noise floor")
    _bars(axes, list(HORIZONS), data["floor"]["excess"], color=BLUE, label="its excess over the floor")
    axes.set(xscale="log", yscale="log", xlabel="rounds T", ylabel="slack: accumulated bound / drift")
    axes.legend(frameon=False, fontsize=8)
    return figure
