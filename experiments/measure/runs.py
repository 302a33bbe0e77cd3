"""Metrics of a single run by name, and measures of its logged entropy weight."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest

import numpy as np

from experiments.measure import metrics
from experiments.measure.curves import Metric, auc, final_return, later_return, mean_return, nan_mean
from experiments.measure.recovery import (
    companions,
    levels,
    null_recovery,
    recovery,
    recovery_robust,
    recovery_vs_steady,
)
from experiments.measure.study import NAN, OPTIONAL, REFERENCE, STEADY, SUMMED, RecordedRun, RecordedStudy, RunKey

_REACTION = 0.02  # share of the horizon in which a weight should rise
_ENOUGH = 2  # evaluations within it, at least
NO_CHANGES = "no_change_points"  # reason: the drift pattern does not state where it changes
_PINNED = 0.95  # share of the updates


def run_metrics(study: RecordedStudy, key: RunKey) -> dict[str, Metric]:
    """All metrics of one run by name; a metric without a value contains its reason."""
    run, changes = study.runs[key], study.changes(key)
    steady, floor = study.runs.get(key._replace(pattern=STEADY)), study.floors.get(key.task)
    sac = [r for k, r in study.runs.items() if k[:4] == (key.family, key.task, REFERENCE, STEADY)]
    out = _levels(run, steady, np.array([mean_return(r.curve) if r.curve else NAN for r in sac]), floor)
    unstated = "" if len(changes) else NO_CHANGES
    out["later_return"] = Metric(later_return(run.curve, changes) if run.curve else NAN, unstated)
    out |= _recoveries(run, steady, floor, changes, study.patterns[key.pattern].recovery)
    none = np.full(len(run.steps), NAN)
    low, high = (saturation(run.steps, run.logs.get(name, none)) for name in ("at_min", "at_max"))
    both = low if low.reason and high.reason else Metric(float(np.nansum([low.value, high.value])))
    out |= {"saturation": both, "saturation_min": low, "saturation_max": high}
    weight = run.logs.get("entropy_weight", none)
    out["responsiveness"] = responsiveness(run.steps, weight, changes, study.horizons[key.task])
    means = {"mean_entropy_weight": weight, "mean_train_return": run.logs.get("train_return", none)}
    means |= {f"mean_{name}": run.logs[name] for name in OPTIONAL if name in run.logs}
    if "mean_return_nominal" in means:  # averaged like the other conditions, unlike `mean_return`
        means["mean_return_in_force"] = run.logs["return_mean"]
    out |= {name: _valued(float(nan_mean(values)), "not_logged") for name, values in means.items()}
    out |= {name: Metric(float(np.nansum(run.logs[name]))) for name in SUMMED if name in run.logs}
    if run.problem:  # a broken run has no metric, even if its rows would give one
        return {name: Metric(NAN, run.problem) for name in out}
    for name in (name for name in _unclear(study, key) if not out[name].reason):
        out[name] = out[name]._replace(flag=out[name].flag or metrics.UNCLEAR)
    return out


def _unclear(study: RecordedStudy, key: RunKey) -> Iterator[str]:
    """Ratios of a run whose denominator is not clearly positive over the seeds."""
    steady, floor = key._replace(pattern=STEADY), study.floors.get(key.task, NAN)
    normaliser, undisturbed, disturbed = (
        {other: run.curve for other, run in study.runs.items() if other[:4] == own[:4] and run.curve}
        for own in (steady._replace(method=REFERENCE), steady, key)
    )
    for name, curves in (("nauc_task", normaliser), ("drop_run", undisturbed)):
        for suffix, bottom in (("", 0.0), ("_safe", floor)):
            if not metrics.clearly_positive([mean_return(curve) - bottom for curve in curves.values()]):
                yield name + suffix
    heights = (levels(curve, study.changes(other)) - floor for other, curve in disturbed.items())
    if not all(map(metrics.clearly_positive, zip_longest(*heights, fillvalue=NAN))):  # change by change
        yield from ("immediate_drop", "deficit_area")


def _valued(value: float, reason: str) -> Metric:
    return Metric(value, "" if np.isfinite(value) else reason)


def _levels(run: RecordedRun, steady: RecordedRun | None, sac: np.ndarray, floor: float | None) -> dict[str, Metric]:
    levels = {"auc": auc, "mean_return": mean_return, "final_return": final_return}
    out = {name: Metric(level(run.curve) if run.curve else NAN) for name, level in levels.items()}
    own, no_steady = out["mean_return"].value, _without(steady)
    no_sac = "" if np.any(np.isfinite(sac)) else "no_steady_sac_runs"
    base = np.array([mean_return(steady.curve) if steady and steady.curve else NAN])
    reference = base if no_sac else sac
    for suffix, floors in (("", None), ("_safe", np.array([NAN if floor is None else floor]))):
        no_floor = "no_floor" if suffix and floor is None else ""
        drop = partial(metrics.drop_run, reference=reference[None])
        out[f"nauc_task{suffix}"] = _ratio(metrics.nauc_task, own, sac, floors, no_sac or no_floor)
        out[f"drop_run{suffix}"] = _ratio(drop, own, base, floors, no_steady or no_floor)
    out["loss_rate"] = Metric(float(base[0]) - own, no_steady)
    return out


def _without(steady: RecordedRun | None) -> str:
    """Reason for missing comparisons with the method's Steady run; empty if that run is valid."""
    if steady is None:
        return "no_steady_run"
    return f"steady_run_{steady.problem}" if steady.problem else ""


def _ratio(ratio: Callable, own: float, below: np.ndarray, floors: np.ndarray | None, reason: str) -> Metric:
    """Ratio of one run's mean return to those (n,) of its normaliser; ``reason``: why it cannot be formed."""
    if reason:
        return Metric(NAN, reason)
    runs = np.array([[own]]), below[None]
    value = float(ratio(*runs, floors=floors).ravel()[0])
    negative = floors is None and any(np.any(np.nan_to_num(x) < 0.0) for x in runs)
    return Metric(value, metrics.reason_of(value, *runs, floors), metrics.UNSAFE if negative else "")


def _recoveries(
    run: RecordedRun, steady: RecordedRun | None, floor: float | None, changes: np.ndarray, applies: bool
) -> dict[str, Metric]:
    def each(name: str) -> list[str]:
        return [f"{name}@{i}" for i in range(1, len(changes) + 1)]

    raw = ["recovery", "recovered_fraction", "recovery_null", "recovery_null_formula", *each("recovered")]
    robust = ["recovery_robust", "recovery_robust_fraction", "recovery_robust_null", "n_not_applicable"]
    robust += ["immediate_drop", "deficit_area", "no_drop_fraction", *each("robust_recovered"), *each("level")]
    versus = ["recovery_vs_steady", "recovery_vs_steady_fraction"]
    if not applies or run.curve is None or not len(changes):
        return dict.fromkeys(raw + robust + versus, Metric(NAN, NO_CHANGES if applies else "only_abrupt"))
    curve, other, no_steady = run.curve, steady.curve if steady else None, _without(steady)
    r = recovery(curve, changes)
    null = recovery(other, changes).total if other else NAN
    values = [r.total, r.recovered_fraction, null, null_recovery(curve, changes), *r.recovered]
    out = _named(raw, values, no_steady)
    if floor is None:
        return out | dict.fromkeys(robust + versus, Metric(NAN, "no_floor"))
    r, extra = recovery_robust(curve, changes, floor), companions(curve, changes, floor)
    null = recovery_robust(other, changes, floor).total if other else NAN
    values = [r.total, r.recovered_fraction, null, r.n_not_applicable]
    values += [float(nan_mean(x)) for x in (extra.immediate_drop, extra.deficit_area, extra.no_drop)]
    out |= _named(robust, [*values, *np.where(r.applicable, r.recovered, NAN), *r.level], "level_not_above_floor")
    if other is None:
        return out | dict.fromkeys(["recovery_robust_null", *versus], Metric(NAN, no_steady))
    v = recovery_vs_steady(curve, other, changes, floor)
    return out | _named(versus, [v.total, v.recovered_fraction], "steady_not_above_floor")


def _named(names: Sequence[str], values: Sequence[float], reason: str) -> dict[str, Metric]:
    return {name: _valued(float(value), reason) for name, value in zip(names, values, strict=True)}


def saturation(steps: np.ndarray, at_clip: np.ndarray) -> Metric:
    """Share of a run's updates at a clip, from the fractions logged since the previous evaluation.

    Args:
      steps: (m,) evaluation steps; an interval counts in proportion to its length.
      at_clip: (m,) fraction of the updates since the previous evaluation; NaN without updates.
    """
    length, share = np.diff(np.asarray(steps, np.float64), prepend=0.0), np.asarray(at_clip, np.float64)
    logged = np.isfinite(share) & (length > 0)
    if not np.any(logged):
        return Metric(NAN, "not_logged")
    return Metric(float(np.sum(share[logged] * length[logged]) / np.sum(length[logged])))


def pinned(at_min: float, at_max: float) -> str:
    """Bound at which a schedule is clipped in at least 95 % of the updates: "lower", "upper", or empty.

    Args:
      at_min, at_max: `saturation` at the bounds; NaN if not logged, zero for a constant, which has no clip.
    """
    return "upper" if at_max >= _PINNED else "lower" if at_min >= _PINNED else ""


def responsiveness(
    steps: np.ndarray, weight: np.ndarray, changes: Sequence[float] | np.ndarray, horizon: float
) -> Metric:
    """Relative rise of the entropy weight (m,) within 2 % of the horizon after a change, mean over changes (K,).

    Per change c: the largest weight at an evaluation in (c, c + 0.02 T], over the weight at the last
    evaluation at or before c, minus 1. An evaluation at c reports the weight from before. A change with fewer than two
    evaluations in that window is excluded.
    """
    steps, weight = np.asarray(steps, np.float64), np.asarray(weight, np.float64)
    logged = np.isfinite(weight)
    if not np.any(logged) or not len(changes):
        return Metric(NAN, NO_CHANGES if np.any(logged) else "not_logged")
    rises = []
    for change in np.asarray(changes, np.float64):
        before = weight[(steps <= change) & logged]
        window = (steps > change) & (steps <= change + _REACTION * horizon * (1 + 1e-9)) & logged
        if before.size and np.sum(window) >= _ENOUGH and before[-1] > 0:
            rises.append(np.max(weight[window]) / before[-1] - 1.0)
    return Metric(float(np.mean(rises))) if rises else Metric(NAN, "too_few_evaluations_after_a_change")
