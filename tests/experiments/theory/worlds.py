"""Simulated worlds in which calibrated drift proxies are tried."""

from typing import Any

import numpy as np

from aesjax.schedules import calibration as cal

DELTA = 0.1
ROUNDS = 50  # of a run that requires simultaneous coverage
RUNS = (9, 19, 39)  # calibration runs
_FRESH = 20  # runs that a calibration is tried on
WINDOW = 5  # rounds within which a late signal may answer
EVENT = 0.2  # drift of a round from which on it is called an event

Numbers = dict[str, np.ndarray]  # name -> (..., seeds)


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


def rounds_of_a_run(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """A bound that is right for one round, applied to `ROUNDS` independent rounds together."""
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


def _at_drift(drift: np.ndarray, bound: np.ndarray) -> np.floating:
    return np.nanmean(cal.coverage(drift, bound, drift >= EVENT))
