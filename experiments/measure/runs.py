"""Every metric of a single run, by name."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from experiments.measure import metrics
from experiments.measure.curves import Metric, auc, final_return, later_return, mean_return, nan_mean
from experiments.measure.patterns import STEADY
from experiments.measure.recovery import companions, null_recovery, recovery, recovery_robust, recovery_vs_steady
from experiments.measure.study import OPTIONAL, REFERENCE, SUMMED, RecordedRun, RecordedStudy, RunKey
from experiments.measure.weights import time_mean, weight_metrics

NAN = float("nan")


def run_metrics(study: RecordedStudy, key: RunKey) -> dict[str, Metric]:
    """Every metric of one run by name; a metric without a value carries its reason."""
    run = study.runs[key]
    own_steady = study.runs.get(key._replace(pattern=STEADY))
    floor = study.floors.get(key.task)
    sac = [r for k, r in study.runs.items() if k[:4] == (key.family, key.task, REFERENCE, STEADY)]
    sac_means = np.array([mean_return(r.curve) if r.curve else NAN for r in sac])
    out = _levels(run, own_steady, sac_means, floor)
    changes = study.changes(key.task)
    out["later_return"] = Metric(later_return(run.curve, changes) if run.curve else NAN)
    out |= _recoveries(run, own_steady, floor, changes, study.patterns[key.pattern].recovery)
    out |= weight_metrics(run.steps, run.logs, changes, study.horizons[key.task])
    out["mean_train_return"] = time_mean(run.steps, run.logs.get("train_return", np.full(len(run.steps), NAN)))
    out |= {f"mean_{name}": time_mean(run.steps, run.logs[name]) for name in OPTIONAL if name in run.logs}
    if "mean_return_nominal" in out:  # averaged as those are, which `mean_return` is not
        out["mean_return_in_force"] = time_mean(run.steps, run.logs["return_mean"])
    out |= {name: Metric(float(np.nansum(run.logs[name]))) for name in SUMMED if name in run.logs}
    if run.problem:  # a broken run has no metric at all, whatever could still be computed from its rows
        out = {name: Metric(NAN, run.problem) for name in out}
    return out


def _levels(run: RecordedRun, steady: RecordedRun | None, sac: np.ndarray, floor: float | None) -> dict[str, Metric]:
    names = {"auc": auc, "mean_return": mean_return, "final_return": final_return}
    out = {name: Metric(level(run.curve) if run.curve else NAN) for name, level in names.items()}
    own = out["mean_return"].value
    no_sac = "" if np.any(np.isfinite(sac)) else "no_steady_sac_runs"
    base = mean_return(steady.curve) if steady and steady.curve else NAN
    no_steady = _without(steady)
    reference = sac if np.any(np.isfinite(sac)) else np.array([base])
    for suffix, floors, no_floor in (
        ("", None, ""),
        ("_safe", np.array([NAN if floor is None else floor]), "no_floor" if floor is None else ""),
    ):
        nauc = partial(metrics.nauc_task, floors=floors)
        drop = partial(metrics.drop_run, floors=floors, reference=reference[None])
        out[f"nauc_task{suffix}"] = _ratio(nauc, own, sac, floors, no_sac or no_floor)
        out[f"drop_run{suffix}"] = _ratio(drop, own, np.array([base]), floors, no_steady or no_floor)
    out["loss_rate"] = Metric(base - own, no_steady)
    return out


def _without(steady: RecordedRun | None) -> str:
    """Why what compares with the method's own Steady run has no value; empty where that run is valid."""
    if steady is None:
        return "no_steady_run"
    return f"steady_run_{steady.problem}" if steady.problem else ""


def _ratio(ratio: Callable, own: float, below: np.ndarray, floors: np.ndarray | None, why: str) -> Metric:
    """A ratio of one run's mean return and those (n,) of its normaliser; ``why`` it cannot be formed, if so."""
    if why:
        return Metric(NAN, why)
    runs = np.array([[own]]), below[None]
    value = float(ratio(*runs).ravel()[0])
    negative = floors is None and any(np.any(np.nan_to_num(x) < 0.0) for x in runs)
    return Metric(value, metrics.reason_of(value, *runs, floors), bool(negative))


def _recoveries(
    run: RecordedRun, steady: RecordedRun | None, floor: float | None, changes: np.ndarray, applies: bool
) -> dict:
    names = ["recovery", "recovered_fraction", "recovery_null", "recovery_null_formula"]
    robust = [f"recovery_robust{of}" for of in ("", "_fraction", "_null")]
    robust += ["n_not_applicable", "immediate_drop", "deficit_area", "no_drop_fraction"]
    versus = ["recovery_vs_steady", "recovery_vs_steady_fraction"]
    count = range(1, len(changes) + 1)
    names += [f"recovered@{i}" for i in count]
    robust += [f"robust_recovered@{i}" for i in count] + [f"level@{i}" for i in count]
    if not applies or run.curve is None or not len(changes):
        return dict.fromkeys(names + robust + versus, Metric(NAN, "only_abrupt"))
    curve, other = run.curve, steady.curve if steady else None
    literal = recovery(curve, changes)
    values = [literal.total, literal.recovered_fraction]
    values += [recovery(other, changes).total if other else NAN, null_recovery(curve, changes)]
    out = _named(names, [*values, *literal.recovered.astype(float)], _without(steady))
    if floor is None:
        return out | dict.fromkeys(robust + versus, Metric(NAN, "no_floor"))
    r, extra = recovery_robust(curve, changes, floor), companions(curve, changes, floor)
    null = recovery_robust(other, changes, floor).total if other else NAN
    values = [r.total, r.recovered_fraction, null, r.n_not_applicable]
    values += [float(nan_mean(x)) for x in (extra.immediate_drop, extra.deficit_area, extra.no_drop)]
    values += [*np.where(r.applicable, r.recovered, NAN), *r.level]
    out |= _named(robust, values, "level_not_above_floor")
    if other is None:
        out["recovery_robust_null"] = Metric(NAN, _without(steady))
        return out | dict.fromkeys(versus, Metric(NAN, _without(steady)))
    v = recovery_vs_steady(curve, other, changes, floor)
    return out | _named(versus, [v.total, v.recovered_fraction], "steady_not_above_floor")


def _named(names: Sequence[str], values: Sequence[float], reason: str) -> dict[str, Metric]:
    pairs = zip(names, values, strict=True)
    return {n: Metric(float(v), "" if np.isfinite(v) else reason) for n, v in pairs}
