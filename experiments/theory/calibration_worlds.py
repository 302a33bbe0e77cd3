"""The simulated worlds of `theory_calibration`: pairs, rounds, rare drift, gains of runs, states, and whole runs."""

from collections.abc import Callable
from typing import Any

import numpy as np

from aesjax.schedules import calibration as cal
from experiments.theory.findings import TheoryStudy

DELTA = 0.1
SIZES = {10: 10_000, 20: 10_000, 50: 10_000, 200: 4_000, 1000: 1_000}  # calibration pairs: repetitions over all seeds
ROUNDS = 50  # of a run that is asked for simultaneous coverage
STATES = 10
RUNS = (9, 19, 39)  # calibration runs
_FRESH = 20  # runs that a calibration is tried on
WINDOW = 5  # rounds within which a late signal may answer
HORIZONS = (100, 400, 1600, 6400)
EVENT = 0.2  # drift of a round from which on it is called an event

Numbers = dict[str, np.ndarray]  # name -> (..., seeds)


def over_seeds(
    study: TheoryStudy, total: int, measure: Callable[[np.random.Generator, int], dict[str, Any]]
) -> Numbers:
    """What ``measure(rng, repetitions)`` finds with every seed, stacked along the last axis; ``total`` repetitions."""
    count = max(2, round(total / 20 * (0.1 if study.quick else 1.0)))
    found = [measure(np.random.default_rng([seed, total]), count) for seed in range(study.seeds)]
    return {name: np.stack([one[name] for one in found], axis=-1) for name in found[0]}


def split(signal: np.ndarray, drift: np.ndarray, delta: float = DELTA) -> cal.Envelope:
    """Split conformal bound with the first half of (..., N) pairs for the fit."""
    half = signal.shape[-1] // 2
    return cal.split_conformal(signal[..., :half], drift[..., :half], signal[..., half:], drift[..., half:], delta)


def split_expectation(size: int) -> float:
    """The coverage that exchangeability gives `split`, exactly."""
    n = size - size // 2
    return min(1.0, cal.conformal_index(n, DELTA) / (n + 1))


def pairs(rng: np.random.Generator, count: int, size: int, independent: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Signals and drifts (count, size): v uniform on [0, 1], ``b = max(0, w + 0.1 noise)`` with w = v, or like v."""
    v = rng.random((count, size))
    w = rng.random((count, size)) if independent else v
    return v, np.maximum(0.0, w + 0.1 * rng.standard_normal((count, size)))


def pair_coverage(rng: np.random.Generator, count: int, size: int) -> dict[str, Any]:
    """Share of fresh pairs that keep the bound made from ``size`` pairs."""
    out, (v, b), (fresh, drift) = {}, pairs(rng, count, size), pairs(rng, count, 100)
    for name, line in (("reused, step", False), ("reused, interpolated", True)):
        bound = cal.reused_conformal(v, b, DELTA, interpolate=line)
        out[name] = cal.coverage(drift, cal.upper_bound(bound, fresh, interpolate=line)).mean()
    out["split"] = cal.coverage(drift, cal.upper_bound(split(v, b), fresh)).mean()
    (v, b), (fresh, drift) = pairs(rng, count, size, True), pairs(rng, count, 100, True)
    bound = cal.upper_bound(cal.reused_conformal(v, b, DELTA), fresh)
    return out | {"reused, useless signal": cal.coverage(drift, bound).mean()}


def rounds_of_a_run(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """A bound that is right for one round, asked of `ROUNDS` independent rounds together."""
    bound = split(*pairs(rng, count, 398))  # 199 residuals: coverage 180/200
    fresh, drift = pairs(rng, count, ROUNDS)
    upper = cal.upper_bound(bound, fresh)
    return {
        "each": cal.coverage(drift, upper).mean(),
        "all": cal.simultaneous(drift, upper).mean(),
        "prefix": cal.dominates(drift, upper).mean(),
        "excess": np.maximum(drift - upper, 0.0).sum(-1).mean(),
        "trivial": (cal.upper_bound(bound, fresh, scale=0.05 / (0.2 * 0.01), cap=2.0) >= 2.0).mean(),
    }


def rare_drift(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """2 % of the rounds drift, and the signal answers one round late."""
    event = rng.random((count, 3_000)) < 0.02
    noise = 0.01 * np.abs(rng.standard_normal((2, *event.shape)))
    drift = event * rng.uniform(0.5, 2.0, event.shape) + noise[0]
    signal = np.concatenate([noise[1][:, :1], drift[:, :-1]], axis=-1) + noise[1]

    def at_events(v: np.ndarray, b: np.ndarray, event: np.ndarray) -> tuple[Any, Any, Any]:
        bound = split(v[:, :2_000], b[:, :2_000])
        upper, b, event = cal.upper_bound(bound, v[:, 2_000:]), b[:, 2_000:], event[:, 2_000:]
        return cal.coverage(b, upper).mean(), np.nanmean(cal.coverage(b, upper, event)), bound

    overall, late, bound = at_events(signal, drift, event)
    v, b, moved = (cal.window_maximum(x, WINDOW) for x in (signal, drift, event))
    windows, windows_late, _ = at_events(v, b, moved > 0)
    _, known, _ = at_events(signal[:, 1:], drift[:, :-1], event[:, :-1])
    # The repair: a margin from the drift events alone is valid at drift events, at a price.
    kept, price = [], []
    for i in range(count):
        own = np.flatnonzero(event[i, 1_000:2_000]) + 1_000
        fit = cal.Isotonic(bound.fit.signal[i], bound.fit.level[i])
        margin = cal.conformal_quantile(drift[i, own] - cal.predict(fit, signal[i, own]), DELTA)
        upper = cal.upper_bound(cal.Envelope(fit, margin), signal[i, 2_000:])
        kept.append(cal.coverage(drift[i, 2_000:], upper, event[i, 2_000:]))
        price.append(cal.slack(drift[i, 2_000:], np.minimum(upper, 2.0)))
    return {
        "overall": overall,
        "at drift": late,
        "windows": windows,
        "windows with drift": windows_late,
        "lag known": known,
        "margin of events": np.nanmean(kept),
        "its slack": np.mean(price),
    }


def gain_between_runs(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Coverage in each of `count` fresh runs, drifts of different runs differing by a gain of log-sd 0.5."""
    v = rng.random((count, 41, 100))  # 20 runs for the fit, 20 for the margin, one fresh
    gain = np.exp(0.5 * rng.standard_normal((count, 41, 1)))
    b = np.maximum(0.0, gain * (v + 0.1 * rng.standard_normal(v.shape)))
    bound = split(v[:, :40].reshape(count, -1), b[:, :40].reshape(count, -1))
    return {"per run": cal.coverage(b[:, 40], cal.upper_bound(bound, v[:, 40]))}


def states_together(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """A bound on the largest drift of `STATES` states, asked to bound their sum."""
    v = rng.random((count, 500))
    each = 0.2 * v[..., None] * rng.random((*v.shape, STATES))
    largest, total = each.max(-1), each.sum(-1)
    upper = cal.upper_bound(split(v[:, :400], largest[:, :400]), v[:, 400:])
    return {
        "largest": cal.coverage(largest[:, 400:], upper).mean(),
        "sum": cal.coverage(total[:, 400:], upper).mean(),
        "sum, with the factor": cal.coverage(total[:, 400:], STATES * upper).mean(),
    }


def runs(rng: np.random.Generator, shape: tuple[int, ...], rounds: int) -> tuple[Any, Any]:
    """Drift and signal (*shape, rounds): events and slow drift at rates of the run's own, behind a floor of noise."""
    full = (*shape, rounds)
    rate = rng.choice([0.005, 0.02, 0.05], (*shape, 1))
    speed = rng.choice([0.0, 0.005, 0.02], (*shape, 1))
    drift = np.minimum(2.0, (rng.random(full) < rate) * rng.uniform(EVENT, 2.0, full) + speed)
    drift[..., 0] = 0.0  # the first comparator has nothing to differ from
    signal, trace = np.empty(full), np.zeros(shape)
    for t in range(rounds):
        signal[..., t] = trace  # an answer that begins one round late and halves in every round
        trace = 0.5 * (trace + drift[..., t])
    gain = np.exp(0.5 * rng.standard_normal((*shape, 1)))
    return drift, gain * (signal + 0.02 * np.exp(0.3 * rng.standard_normal(full)))


def run_level(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Scales from `RUNS` runs, tried on fresh ones; arrays over `RUNS`."""
    drift, signal = runs(rng, (count, RUNS[-1] + _FRESH), 400)
    ratio = cal.run_ratios(drift, signal)
    drift, signal = drift[:, RUNS[-1] :], signal[:, RUNS[-1] :]
    early = drift[..., : 1 - WINDOW]
    other = cal.run_ratios(drift, 0.5 * signal)  # residuals hold the entropy term: a smaller weight, a weaker signal
    out: dict[str, list[Any]] = {}
    for n in RUNS:
        for name, delta in (("", DELTA), ("smallest delta: ", 1.0 / (n + 1))):
            scale = cal.run_level_scale(ratio[:, :n], delta)[:, None]
            bound = cal.run_level_bound(scale, signal)
            found = {"dominance": cal.dominates(drift, bound), "slack": np.median(cal.slack(drift, bound))}
            if not name:
                found |= {
                    "scale": np.median(scale),
                    "every round": cal.simultaneous(drift, bound),
                    "at drift": _at_drift(drift, bound),
                    "at drift, window": _at_drift(early, cal.window_maximum(bound, WINDOW)),
                    "other schedule": other <= scale,
                }
            for measure, value in found.items():
                out.setdefault(name + measure, []).append(np.mean(value))
    return {name: np.array(values) for name, values in out.items()} | {"ratios": np.ravel(ratio[:2])}


def price_of_a_floor(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """(horizons,) slack after one change: of a signal with a floor, and of its excess over the floor and a margin."""
    count = max(count, cal.runs_needed(DELTA))
    out = {"floor": [], "excess": []}
    for rounds in HORIZONS:
        drift = np.zeros((count, rounds))
        drift[:, 10] = 1.0
        signal = 0.02 * (1.0 + 0.2 * rng.uniform(-1.0, 1.0, drift.shape))
        signal[:, 10:40] += 0.3 * 0.7 ** np.arange(30)
        for name, v in (("floor", signal), ("excess", np.maximum(signal / 0.02 / 1.25 - 1.0, 0.0))):
            scale = cal.run_level_scale(cal.run_ratios(drift, v), DELTA)
            out[name].append(cal.slack(drift, cal.run_level_bound(scale, v)).mean())
    return {name: np.array(values) for name, values in out.items()}


def announced_drift(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Changes of which the signal gives one loud alarm, while the comparator takes 20 rounds to move."""
    shape = (count, RUNS[1] + _FRESH, 200)
    alarm = rng.random(shape) < 0.02
    alarm[..., 0] = False
    alarms = np.cumsum(alarm, axis=-1, dtype=np.float64)
    over = np.concatenate([np.zeros((*shape[:2], 20)), alarms[..., :-20]], axis=-1)
    drift = np.minimum(2.0, 0.3 * (alarms - over))
    signal = np.exp(0.3 * rng.standard_normal((*shape[:2], 1))) * (alarm + 1e-3)
    scale = cal.run_level_scale(cal.run_ratios(drift, signal)[:, : RUNS[1]], DELTA)[:, None]
    drift, bound = drift[:, RUNS[1] :], cal.run_level_bound(scale, signal[:, RUNS[1] :])
    return {
        "uncapped": cal.dominates(drift, bound).mean(),
        "capped": cal.dominates(drift, np.minimum(bound, 2.0)).mean(),
    }


def smoothed_drift(rng: np.random.Generator, count: int, decay: float = 0.95) -> dict[str, Any]:
    """The true drift as its own bound, smoothed: in how many runs it still dominates, with and without its debt."""
    drift, _ = runs(rng, (count,), 400)
    smooth, value = np.empty_like(drift), np.zeros(count)
    for t in range(drift.shape[-1]):
        value = decay * value + (1.0 - decay) * drift[:, t]
        smooth[:, t] = value
    moved = np.any(drift >= EVENT, axis=-1)
    first = np.argmax(drift >= EVENT, axis=-1)[:, None]
    held = np.cumsum(smooth, axis=-1) + cal.smoothing_debt(smooth, decay)
    return {
        "left of the first event": np.mean(np.take_along_axis(smooth / np.maximum(drift, 1e-9), first, -1)[moved]),
        "dominates": cal.dominates(drift, smooth)[moved].mean(),
        "with debt": cal.simultaneous(np.cumsum(drift, axis=-1), held).mean(),
    }


def _at_drift(drift: np.ndarray, bound: np.ndarray) -> np.floating:
    return np.nanmean(cal.coverage(drift, bound, drift >= EVENT))
