"""Calibration of one method's runs, every run judged by the others: the run-level scale and the conformal bound."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aesjax.schedules import calibration as cal

WINDOW = 3  # evaluation intervals within which a late proxy may answer


class Trace(NamedTuple):
    """One run: what was observed and what really happened."""

    pattern: str
    seed: int
    signal: np.ndarray  # (n,) proxy summed over the updates of a recorded sample
    drift: np.ndarray  # (n,) path length of the environment during the sample, in channel ranges
    mean_signal: np.ndarray  # (E,) mean proxy of an evaluation interval
    interval_drift: np.ndarray  # (E,)
    jump: np.ndarray  # (E,) bool, a change point at which the pattern jumps lies in the interval


def calibrated(traces: Sequence[Trace], others: Mapping[str, Sequence[Trace]], delta: float) -> dict[str, Any]:
    """Run-level and per-interval calibration of one method, every run judged without the runs of its seed.

    Runs of one seed share the drift that was drawn and the network they start from, so they are left out together.
    """
    seeds = np.array([t.seed for t in traces])
    ratios = _ratios(traces)
    rows: list[dict[str, Any]] = []
    elsewhere = {name: [0, 0] for name in others}
    left = []
    for seed in np.unique(seeds):
        rest = ratios[seeds != seed]
        left.append(len(rest))
        scale = _finite(cal.run_level_scale(rest, delta)) if len(rest) else None
        bound = _envelope([t for t in traces if t.seed != seed], delta)
        for trace, ratio in zip(traces, ratios, strict=True):
            if trace.seed == seed:
                rows.append(_judged(trace, ratio, scale, bound))
        for name, runs in others.items() if scale is not None else ():
            theirs = _ratios([t for t in runs if t.seed == seed])
            elsewhere[name][0] += int(np.sum(theirs <= scale))
            elsewhere[name][1] += len(theirs)
    patterns = list(dict.fromkeys(t.pattern for t in traces))
    rho = _finite(cal.run_level_scale(ratios, delta))
    groups = {"all": rows} | {p: [r for r in rows if r["pattern"] == p] for p in patterns}
    return {
        "runs": len(traces),
        "seeds": len(np.unique(seeds)),
        "calibration_runs": min(left),
        "rho": rho,
        "rho_is_finite": rho is not None,
        "no_signal": int(np.sum(np.isinf(ratios))),
        "groups": {name: _summary(group) for name, group in groups.items()},
        "elsewhere": elsewhere,
    }


def _ratios(traces: Sequence[Trace]) -> np.ndarray:
    return np.array([float(cal.run_ratios(t.drift, t.signal)) for t in traces])


def _finite(value: Any) -> float | None:
    """A number, or None for an infinite one: a bound that bounds nothing."""
    return float(value) if np.isfinite(value) else None


def _envelope(traces: Sequence[Trace], delta: float) -> cal.Envelope | None:
    """Split conformal bound on an interval's drift: every other seed for the fit; None with fewer than two seeds, or
    where it would be infinite."""
    seeds = sorted({t.seed for t in traces})
    halves = [[t for t in traces if t.seed in seeds[i::2]] for i in (0, 1)]
    if not all(halves):
        return None
    (v, b), (signal, drift) = (
        (np.concatenate([t.mean_signal for t in half]), np.concatenate([t.interval_drift for t in half]))
        for half in halves
    )
    bound = cal.split_conformal(v, b, signal, drift, delta)
    return bound if np.all(np.isfinite(bound.margin)) else None


def _judged(trace: Trace, ratio: float, scale: float | None, bound: cal.Envelope | None) -> dict[str, Any]:
    """What the calibration of other runs is worth on this one; None for what there is no finite bound to judge."""
    moved = trace.interval_drift > 0.0
    row: dict[str, Any] = {"pattern": trace.pattern, "dominated": None, "slack": None, "kept": None}
    if scale is not None:
        row["dominated"] = bool(ratio <= scale)
        row["slack"] = float(cal.slack(trace.drift, scale * trace.signal)) if np.any(moved) else None
    if bound is not None:
        upper = cal.upper_bound(bound, trace.mean_signal)
        kept = trace.interval_drift <= upper
        # The largest bound of the intervals to come: has the proxy answered at least late?
        late = np.concatenate([upper, np.full(WINDOW - 1, -np.inf)])
        row |= {
            "kept": kept,
            "at drift": kept[moved],
            "at jumps": kept[trace.jump],
            "at jumps, late": (trace.interval_drift <= cal.window_maximum(late, WINDOW))[trace.jump],
        }
    return row


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts and means over runs; None where there is nothing to count."""
    slack = [row["slack"] for row in rows if row["slack"] is not None]
    out: dict[str, Any] = {
        "runs": len(rows),
        "bounded_runs": sum(row["dominated"] is not None for row in rows),  # of which one can be judged
        "dominated": sum(row["dominated"] is True for row in rows),
        "slack": float(np.median(slack)) if slack else None,
    }
    judged = [row for row in rows if row["kept"] is not None]
    out["whole_runs_covered"] = sum(bool(np.all(row["kept"])) for row in judged) if judged else None
    for name in ("kept", "at drift", "at jumps", "at jumps, late"):
        values = np.concatenate([row[name] for row in judged]) if judged else np.zeros(0)
        key = "coverage" + ("" if name == "kept" else "_" + name.replace(", ", "_").replace(" ", "_"))
        out[key] = float(values.mean()) if values.size else None
    return out
