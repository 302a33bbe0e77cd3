"""What calibrated drift proxies cover: conformal fits with and without a split, rare drift, and the run-level scale

Usage: python experiments/theory_calibration.py --out DIR [--seeds 20] [--quick]
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tyro

from aesjax.measure.stats import Interval, t_interval
from aesjax.schedules import calibration as cal
from experiments.theory import calibration_worlds as worlds
from experiments.theory.calibration_worlds import DELTA, HORIZONS, ROUNDS, RUNS, SIZES, WINDOW, split_expectation
from experiments.theory.findings import (
    Finding,
    TheoryStudy,
    claim,
    every,
    open_folder,
    show,
    slopes,
    start_double_precision,
    write,
)

Numbers = dict[str, np.ndarray]  # name -> (..., seeds)
INK, BLUE, RED, GREEN, GREY = "#222222", "#0072B2", "#D55E00", "#009E73", "#888888"


def mean(x: np.ndarray) -> Interval:
    """95 % Student interval over seeds."""
    return t_interval(np.asarray(x, np.float64))


def listed(keys: Any, values: np.ndarray) -> str:
    """``key: interval`` for every row of (len(keys), seeds)."""
    return "; ".join(f"{key}: {show(mean(row))}" for key, row in zip(keys, values, strict=True))


def above(values: np.ndarray, bar: float) -> bool | None:
    """Is the mean of (seeds,) above the bar? None where its interval holds the bar."""
    found = mean(values)
    return True if found.low > bar else False if found.high < bar else None


def below(values: np.ndarray, bar: float) -> bool | None:
    """Is the mean of (seeds,) below the bar?"""
    return above(-np.asarray(values), -bar)


def agrees(values: np.ndarray, expected: Sequence[float]) -> bool:
    """Is every row of (K, seeds) what is expected of it, up to twice its 95 % interval (there are several rows)?"""
    rows = [mean(row) for row in values]
    return all(abs(x.value - y) <= x.high - x.low + 1e-9 for x, y in zip(rows, expected, strict=True))


def findings_of(data: dict[str, Numbers]) -> list[Finding]:
    """Every prediction beside what was found."""
    p, a, b, c, d, r, f = (data[name] for name in ("pairs", "rounds", "rare", "gain", "states", "runs", "floor"))
    out: list[Finding] = []

    def add(prediction: str, holds: bool | None, measured: str) -> None:
        out.append(claim(f"5.5-{len(out) + 1}", prediction, holds, measured))

    for name, said in (("step", ".545, .667, .781, .856, .887"), ("interpolated", ".738, .776, .814, .865 (N <= 200)")):
        values = p[f"reused, {name}"]
        add(
            f"Fit and margin from the same N pairs ({name}): coverage below .9 at every N, about {said}",
            every(*(below(row, 1.0 - DELTA) for row in values)),
            listed(SIZES, values),
        )
    expected = [split_expectation(n) for n in SIZES]
    text = ", ".join(f"{x:.3f}" for x in expected)
    add(f"With a split the coverage is index/(n + 1): {text}", agrees(p["split"], expected), listed(SIZES, p["split"]))
    loss = 1.0 - DELTA - p["reused, useless signal"]
    add(
        "A signal that says nothing about drift loses only .010 to .025 by reuse",
        every(*(above(row, 0.010) for row in loss), *(below(row, 0.025) for row in loss)),
        "loss " + listed(SIZES, loss),
    )
    add(
        f"A bound right for a round in .9 of cases is right for all {ROUNDS} in about .9^{ROUNDS} = .005",
        every(agrees(a["each"][None], [1.0 - DELTA]), below(a["all"], 0.05)),
        f"one round {show(mean(a['each']))}; all {show(mean(a['all']))}; accumulated, all prefixes "
        f"{show(mean(a['prefix']))}; sum of excesses {show(mean(a['excess']))}",
    )
    add(
        "Scaled to policies by 1/(mu (1 - gamma)) = 500, drifts of up to .05 give the trivial bound 2 nearly always",
        above(a["trivial"], 0.95),
        f"share of rounds {show(mean(a['trivial']))}",
    )
    add(
        "Drift in 2 % of rounds and a signal one round late: coverage above .89 overall, none at drift",
        every(above(b["overall"], 0.89), below(b["at drift"], 0.02)),
        f"overall {show(mean(b['overall']))}; at drift {show(mean(b['at drift']))}",
    )
    add(
        f"Aligning restores coverage at drift: windows of {WINDOW} rounds, or the lag taken out",
        every(above(b["windows with drift"], 0.8), above(b["lag known"], 0.8)),
        f"windows with drift {show(mean(b['windows with drift']))} (all {show(mean(b['windows']))}); without the lag "
        f"{show(mean(b['lag known']))}: quiet rounds set the margin",
    )
    add(
        "A margin from drift events alone covers .9 of them, late signal or not, but at a large slack",
        every(above(b["margin of events"], 0.88), above(b["its slack"], 10.0)),
        f"coverage at drift {show(mean(b['margin of events']))}, slack {show(mean(b['its slack']))}",
    )
    per_run = c["per run"]
    reach = (per_run >= 0.85).mean(0)
    add(
        "Runs that differ by a gain (log-sd .5): pooled coverage near .9 (said .897), yet many miss .85 (said .29)",
        every(above(per_run.mean(0), 0.85), below(reach, 0.85)),
        f"pooled {show(mean(per_run.mean(0)))}; missing .85: {show(mean(1.0 - reach))}",
    )
    add(
        "A bound on the largest drift over states does not bound the sum over states; a factor S does",
        every(below(d["sum"], 0.5), above(d["sum, with the factor"], 0.9)),
        "; ".join(f"{name} {show(mean(values))}" for name, values in d.items()),
    )
    index = [cal.conformal_index(n, DELTA) / (n + 1) for n in RUNS]
    add(
        "Run-level scale, delta .1: prefix dominance in index/(n + 1) = .9 of fresh runs",
        agrees(r["dominance"], index),
        listed(RUNS, r["dominance"]),
    )
    name = "smallest delta: "
    add(
        "The same at the smallest delta for n runs, 1/(n + 1): .9, .95, .975, at a growing slack",
        every(
            agrees(r[name + "dominance"], [n / (n + 1) for n in RUNS]),
            above(r[name + "slack"][-1] - r[name + "slack"][0], 0.0),
        ),
        f"rate {listed(RUNS, r[name + 'dominance'])}; slack {listed(RUNS, r[name + 'slack'])}",
    )
    add(
        "Prefix dominance is not coverage at drift: at events of runs it is far below .9",
        every(*(below(row, 0.5) for row in r["at drift"])),
        f"at drift {listed(RUNS, r['at drift'])}; by the largest bound of {WINDOW} rounds "
        f"{listed(RUNS, r['at drift, window'])}; in every round of a run {listed(RUNS, r['every round'])}",
    )
    add(
        "Slack of the accumulated bound at delta .1 (median run) falls with the number of calibration runs",
        below(r["slack"][-1] - r["slack"][0], 0.0),
        listed(RUNS, r["slack"]),
    )
    add(
        "Capping every round's bound at 2 breaks prefix dominance where the signal comes before the drift",
        above(data["announced"]["uncapped"] - data["announced"]["capped"], 0.0),
        "; ".join(f"{name} {show(mean(values))}" for name, values in data["announced"].items()),
    )
    add(
        "Deployed under another schedule, under which the signal is half as strong, the rate falls below .9",
        every(*(below(row, 0.9) for row in r["other schedule"])),
        listed(RUNS, r["other schedule"]),
    )
    exponents = {name: slopes(HORIZONS, values) for name, values in f.items()}
    levels = {name: values.mean(-1).round(1).tolist() for name, values in f.items()}
    add(
        "After one change the slack of a signal with a noise floor grows like T; its excess over the floor does not",
        every(above(exponents["floor"], 0.8), below(np.abs(exponents["excess"]), 0.05)),
        "; ".join(f"{name}: exponent {show(mean(x))}, slack {levels[name]}" for name, x in exponents.items()),
    )
    e = data["smoothed"]
    add(
        "Smoothing with decay .95 leaves a twentieth of a spike, so it dominates in no run; with its debt in every one",
        bool(e["dominates"].max() == 0.0 and e["with debt"].min() == 1.0),
        "; ".join(f"{name} {show(mean(values))}" for name, values in e.items()),
    )
    return out


def measure(study: TheoryStudy) -> dict[str, Numbers]:
    """All simulations, per seed."""
    by_size = [
        worlds.over_seeds(study, total, partial(worlds.pair_coverage, size=size)) for size, total in SIZES.items()
    ]
    return {
        "pairs": {name: np.stack([one[name] for one in by_size]) for name in by_size[0]},
        "rounds": worlds.over_seeds(study, 4_000, worlds.rounds_of_a_run),
        "rare": worlds.over_seeds(study, 400, worlds.rare_drift),
        "gain": worlds.over_seeds(study, 1_600, worlds.gain_between_runs),
        "states": worlds.over_seeds(study, 2_000, worlds.states_together),
        "runs": worlds.over_seeds(study, 2_000, worlds.run_level),
        "announced": worlds.over_seeds(study, 1_000, worlds.announced_drift),
        "smoothed": worlds.over_seeds(study, 1_000, worlds.smoothed_drift),
        "floor": worlds.over_seeds(study, 400, worlds.price_of_a_floor),
    }


def bars(axes: Any, x: Any, values: np.ndarray, **style: Any) -> None:
    """Means over seeds with their intervals; values (len(x), seeds)."""
    rows = [mean(row) for row in values]
    low, high = ([abs(getattr(row, end) - row.value) for row in rows] for end in ("low", "high"))
    axes.errorbar(x, [row.value for row in rows], yerr=[low, high], capsize=2, marker="o", ms=4, **style)


def draw_coverage(data: dict[str, Numbers]) -> Any:
    """Coverage against the number of calibration pairs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2))
    axes, p = figure.subplots(), data["pairs"]
    for name, colour in (("split", BLUE), ("reused, useless signal", GREY), ("reused, interpolated", GREEN)):
        bars(axes, list(SIZES), p[name], color=colour, label=name)
    bars(axes, list(SIZES), p["reused, step"], color=RED, label="reused, step (the paper's recipe)")
    axes.plot(list(SIZES), [split_expectation(n) for n in SIZES], "x", color=INK, ms=8, label="split, exactly expected")
    axes.axhline(1.0 - DELTA, color=INK, lw=0.8, ls="--")
    axes.text(9.2, 1.0 - DELTA + 0.005, "nominal", fontsize=8)
    axes.set(xscale="log", xlabel="calibration pairs N", ylabel="coverage of a fresh drift", ylim=(0.5, 1.02))
    axes.set_xticks(list(SIZES), [str(n) for n in SIZES])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def draw_hidden(data: dict[str, Numbers]) -> Any:
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


def draw_runs(data: dict[str, Numbers]) -> Any:
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
    bars(second, place - 0.08, r["dominance"], ls="none", color=BLUE, label="delta = 0.1")
    bars(second, place + 0.08, r[name + "dominance"], ls="none", color=GREEN, label="delta = 1/(n + 1)")
    bars(second, place, r["other schedule"], ls="none", color=RED, label="delta = 0.1, deployed elsewhere")
    second.plot(place - 0.08, exact, "_", color=INK, ms=14)
    second.plot(place + 0.08, [n / (n + 1) for n in RUNS], "_", color=INK, ms=14, label="exact")
    second.set(xlabel="calibration runs n", ylabel="fresh runs dominated", ylim=(0.4, 1.02), xlim=(-0.5, 2.5))
    bars(third, place - 0.08, r["slack"], ls="none", color=BLUE, label="delta = 0.1")
    bars(third, place + 0.08, r[name + "slack"], ls="none", color=GREEN, label="delta = 1/(n + 1)")
    third.set(xlabel="calibration runs n", ylabel="slack of the median run", ylim=(0, None), xlim=(-0.5, 2.5))
    for axes in (second, third):
        axes.set_xticks(place, [str(n) for n in RUNS])
        axes.legend(frameon=False, fontsize=8)
    return figure


def draw_floor(data: dict[str, Numbers]) -> Any:
    """Slack after one change against the horizon."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.8))
    axes = figure.subplots()
    bars(axes, list(HORIZONS), data["floor"]["floor"], color=RED, label="signal with a noise floor")
    bars(axes, list(HORIZONS), data["floor"]["excess"], color=BLUE, label="its excess over the floor")
    axes.set(xscale="log", yscale="log", xlabel="rounds T", ylabel="slack: accumulated bound / drift")
    axes.legend(frameon=False, fontsize=8)
    return figure


def main(study: TheoryStudy) -> None:
    """Run everything and write findings and figures."""
    open_folder(study)
    start_double_precision()
    began = time.monotonic()
    data = measure(study)
    figures = {
        "coverage_against_n": draw_coverage(data),
        "what_coverage_hides": draw_hidden(data),
        "run_level": draw_runs(data),
        "price_of_a_floor": draw_floor(data),
    }
    kept = {name: {k: v for k, v in part.items() if k not in ("ratios", "per run")} for name, part in data.items()}
    write(study, "theory_calibration", findings_of(data), kept, figures, time.monotonic() - began)


if __name__ == "__main__":
    main(tyro.cli(TheoryStudy, description=__doc__))
