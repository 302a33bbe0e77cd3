"""Study of calibrated drift proxies in simulated worlds: coverage with and without a split, of rounds and of runs."""

from typing import Any

import numpy as np

from aesjax.schedules import calibration as cal

DELTA = 0.1
SIZES = (10, 20, 50)  # pairs
ROUNDS = 50  # of a run that requires simultaneous coverage
RUNS = (9, 19, 39)  # calibration runs
_FRESH = 20  # new runs per calibration
EVENT = 0.2  # smallest drift of an event in a round


def split(signal: np.ndarray, drift: np.ndarray) -> cal.Envelope:
    """Split conformal bound with the first half of the pairs (N,) for the fit."""
    half = len(signal) // 2
    return cal.split_conformal(signal[:half], drift[:half], signal[half:], drift[half:], DELTA)


def reused(signal: np.ndarray, drift: np.ndarray) -> cal.Envelope:
    """The paper's recipe: fit and margin from the same pairs (N,)."""
    return cal.split_conformal(signal, drift, signal, drift, DELTA)


def pairs(rng: np.random.Generator, count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Signals and drifts (count, size): v uniform on [0, 1], ``b = max(0, v + 0.1 noise)``."""
    v = rng.random((count, size))
    return v, np.maximum(0.0, v + 0.1 * rng.standard_normal((count, size)))


def one_pair(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Coverage of one fresh drift by number of pairs, C2 and C3."""
    found: dict[str, Any] = {}
    for size in SIZES:
        v, b = pairs(rng, count, size + 1)
        for name, bound in (("reused", reused), ("split", split)):
            upper = [cal.upper_bound(bound(x[:size], y[:size]), x[size:]) for x, y in zip(v, b, strict=True)]
            found[f"{name}, N={size}"] = np.mean(b[:, size:] <= np.stack(upper))
        n = size - size // 2
        found[f"split, exact, N={size}"] = min(1.0, cal.conformal_index(n, DELTA) / (n + 1))
    return found


def rounds_of_a_run(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """C5: a bound that is right for one round, applied to `ROUNDS` independent rounds together."""
    known = pairs(rng, count, 398)  # 199 residuals: coverage 180/200
    fresh, drift = pairs(rng, count, ROUNDS)
    upper = np.stack([cal.upper_bound(split(v, b), x) for v, b, x in zip(*known, fresh, strict=True)])
    return {
        "one round": np.mean(drift <= upper),
        "all rounds": np.mean(np.all(drift <= upper, axis=-1)),
        "trivial after scaling": np.mean(0.05 / (0.2 * 0.01) * upper >= 2.0),  # by 1/(mu (1 - gamma))
    }


def simulated_runs(rng: np.random.Generator, shape: tuple[int, ...], rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Drift and signal (*shape, rounds): events and slow drift, with rates drawn per run, above a noise floor."""
    full = (*shape, rounds)
    rate, speed = rng.choice([0.005, 0.02, 0.05], (*shape, 1)), rng.choice([0.0, 0.005, 0.02], (*shape, 1))
    drift = np.minimum(2.0, (rng.random(full) < rate) * rng.uniform(EVENT, 2.0, full) + speed)
    drift[..., 0] = 0.0  # no drift before the first comparator
    signal, trace = np.empty(full), np.zeros(shape)
    for t in range(rounds):
        signal[..., t] = trace  # a response that begins one round late and halves in every round
        trace = 0.5 * (trace + drift[..., t])
    gain = np.exp(0.5 * rng.standard_normal((*shape, 1)))
    return drift, gain * (signal + 0.02 * np.exp(0.3 * rng.standard_normal(full)))


def covered(kept: np.ndarray, event: np.ndarray) -> np.ndarray:
    """(...,): share of the rounds (..., T) with an event in which the bound holds; NaN without events."""
    return np.sum(kept & event, axis=-1) / np.where(np.any(event, axis=-1), np.sum(event, axis=-1), np.nan)


def run_level(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """C6: scales from `RUNS` runs, tested on new runs and on runs of a schedule that halves the signal."""
    drift, signal = simulated_runs(rng, (count, RUNS[-1] + _FRESH), 400)
    ratio = cal.run_ratios(drift, signal)
    drift, signal = drift[:, RUNS[-1] :], signal[:, RUNS[-1] :]
    other, found = cal.run_ratios(drift, 0.5 * signal), {}  # all ratios are finite: signals are positive
    for n in RUNS:
        scale = cal.run_level_scale(ratio[:, :n], DELTA)[:, None]
        bound, event = scale[..., None] * signal, drift >= EVENT
        found |= {
            f"dominated, n={n}": np.mean(ratio[:, RUNS[-1] :] <= scale),
            f"dominated under another schedule, n={n}": np.mean(other <= scale),
            f"covered at drift, n={n}": np.nanmean(covered(drift <= bound, event)),
            f"slack, n={n}": np.mean(np.median(cal.slack(drift, bound), axis=-1)),
        }
    return found


WORLDS = {"one pair": one_pair, "a run": rounds_of_a_run, "runs": run_level}
_COUNTS = {"one pair": 500, "a run": 50, "runs": 6}  # repetitions for every seed


def run(seeds: int) -> dict[str, dict[str, float | str]]:
    """Measured shares of every world."""
    return {
        f"{world}: {name}": {"measured": float(value)}
        for world, make in WORLDS.items()
        for name, value in make(np.random.default_rng(list(WORLDS).index(world)), _COUNTS[world] * seeds).items()
    }
