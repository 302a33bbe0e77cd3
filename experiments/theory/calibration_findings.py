"""What the simulated worlds of calibration showed, beside what was predicted."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from aesjax.schedules import calibration as cal
from experiments.measure.stats import Interval, t_interval
from experiments.theory import calibration_worlds as worlds
from experiments.theory.calibration_worlds import DELTA, HORIZONS, ROUNDS, RUNS, SIZES, WINDOW, split_expectation
from experiments.theory.findings import Finding, TheoryStudy, claim, every, show, slopes

Numbers = dict[str, np.ndarray]  # name -> (..., seeds)


def mean(x: np.ndarray) -> Interval:
    """95 % Student interval over seeds."""
    return t_interval(np.asarray(x, np.float64))


def _listed(keys: Any, values: np.ndarray) -> str:
    """``key: interval`` for every row of (len(keys), seeds)."""
    return "; ".join(f"{key}: {show(mean(row))}" for key, row in zip(keys, values, strict=True))


def _above(values: np.ndarray, bar: float) -> bool | None:
    """Is the mean of (seeds,) above the bar? None where its interval holds the bar."""
    found = mean(values)
    return True if found.low > bar else False if found.high < bar else None


def below(values: np.ndarray, bar: float) -> bool | None:
    """Is the mean of (seeds,) below the bar?"""
    return _above(-np.asarray(values), -bar)


def _agrees(values: np.ndarray, expected: Sequence[float]) -> bool:
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
            _listed(SIZES, values),
        )
    expected = [split_expectation(n) for n in SIZES]
    text = ", ".join(f"{x:.3f}" for x in expected)
    add(
        f"With a split the coverage is index/(n + 1): {text}", _agrees(p["split"], expected), _listed(SIZES, p["split"])
    )
    loss = 1.0 - DELTA - p["reused, useless signal"]
    add(
        "A signal that says nothing about drift loses only .010 to .025 by reuse",
        every(*(_above(row, 0.010) for row in loss), *(below(row, 0.025) for row in loss)),
        "loss " + _listed(SIZES, loss),
    )
    add(
        f"A bound right for a round in .9 of cases is right for all {ROUNDS} in about .9^{ROUNDS} = .005",
        every(_agrees(a["each"][None], [1.0 - DELTA]), below(a["all"], 0.05)),
        f"one round {show(mean(a['each']))}; all {show(mean(a['all']))}; accumulated, all prefixes "
        f"{show(mean(a['prefix']))}; sum of excesses {show(mean(a['excess']))}",
    )
    add(
        "Scaled to policies by 1/(mu (1 - gamma)) = 500, drifts of up to .05 give the trivial bound 2 nearly always",
        _above(a["trivial"], 0.95),
        f"share of rounds {show(mean(a['trivial']))}",
    )
    add(
        "Drift in 2 % of rounds and a signal one round late: coverage above .89 overall, none at drift",
        every(_above(b["overall"], 0.89), below(b["at drift"], 0.02)),
        f"overall {show(mean(b['overall']))}; at drift {show(mean(b['at drift']))}",
    )
    add(
        f"Aligning restores coverage at drift: windows of {WINDOW} rounds, or the lag taken out",
        every(_above(b["windows with drift"], 0.8), _above(b["lag known"], 0.8)),
        f"windows with drift {show(mean(b['windows with drift']))} (all {show(mean(b['windows']))}); without the lag "
        f"{show(mean(b['lag known']))}: quiet rounds set the margin",
    )
    add(
        "A margin from drift events alone covers .9 of them, late signal or not, but at a large slack",
        every(_above(b["margin of events"], 0.88), _above(b["its slack"], 10.0)),
        f"coverage at drift {show(mean(b['margin of events']))}, slack {show(mean(b['its slack']))}",
    )
    per_run = c["per run"]
    reach = (per_run >= 0.85).mean(0)
    add(
        "Runs that differ by a gain (log-sd .5): pooled coverage near .9 (said .897), yet many miss .85 (said .29)",
        every(_above(per_run.mean(0), 0.85), below(reach, 0.85)),
        f"pooled {show(mean(per_run.mean(0)))}; missing .85: {show(mean(1.0 - reach))}",
    )
    add(
        "A bound on the largest drift over states does not bound the sum over states; a factor S does",
        every(below(d["sum"], 0.5), _above(d["sum, with the factor"], 0.9)),
        "; ".join(f"{name} {show(mean(values))}" for name, values in d.items()),
    )
    index = [cal.conformal_index(n, DELTA) / (n + 1) for n in RUNS]
    add(
        "Run-level scale, delta .1: prefix dominance in index/(n + 1) = .9 of fresh runs",
        _agrees(r["dominance"], index),
        _listed(RUNS, r["dominance"]),
    )
    name = "smallest delta: "
    add(
        "The same at the smallest delta for n runs, 1/(n + 1): .9, .95, .975, at a growing slack",
        every(
            _agrees(r[name + "dominance"], [n / (n + 1) for n in RUNS]),
            _above(r[name + "slack"][-1] - r[name + "slack"][0], 0.0),
        ),
        f"rate {_listed(RUNS, r[name + 'dominance'])}; slack {_listed(RUNS, r[name + 'slack'])}",
    )
    add(
        "Prefix dominance is not coverage at drift: at events of runs it is far below .9",
        every(*(below(row, 0.5) for row in r["at drift"])),
        f"at drift {_listed(RUNS, r['at drift'])}; by the largest bound of {WINDOW} rounds "
        f"{_listed(RUNS, r['at drift, window'])}; in every round of a run {_listed(RUNS, r['every round'])}",
    )
    add(
        "Slack of the accumulated bound at delta .1 (median run) falls with the number of calibration runs",
        below(r["slack"][-1] - r["slack"][0], 0.0),
        _listed(RUNS, r["slack"]),
    )
    add(
        "Capping every round's bound at 2 breaks prefix dominance where the signal comes before the drift",
        _above(data["announced"]["uncapped"] - data["announced"]["capped"], 0.0),
        "; ".join(f"{name} {show(mean(values))}" for name, values in data["announced"].items()),
    )
    add(
        "Deployed under another schedule, under which the signal is half as strong, the rate falls below .9",
        every(*(below(row, 0.9) for row in r["other schedule"])),
        _listed(RUNS, r["other schedule"]),
    )
    exponents = {name: slopes(HORIZONS, values) for name, values in f.items()}
    levels = {name: values.mean(-1).round(1).tolist() for name, values in f.items()}
    add(
        "After one change the slack of a signal with a noise floor grows like T; its excess over the floor does not",
        every(_above(exponents["floor"], 0.8), below(np.abs(exponents["excess"]), 0.05)),
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
