"""A study as recorded in its files, sorted into runs with curves, and every metric of every single run."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aesjax.measure import metrics
from aesjax.measure.curves import (
    Curve,
    IncompleteRunError,
    Metric,
    auc,
    change_steps,
    final_return,
    mean_return,
    nan_mean,
)
from aesjax.measure.patterns import STEADY, PatternFacts, describe_runs
from aesjax.measure.recovery import companions, null_recovery, recovery, recovery_robust, recovery_vs_steady
from aesjax.measure.weights import time_mean, weight_metrics

if TYPE_CHECKING:
    import polars as pl

__all__ = ["REFERENCE", "RecordedRun", "RecordedStudy", "RunKey", "baseline_of", "load_study", "run_metrics"]

LOGGED = ("train_return", "entropy_weight", "at_min", "at_max")
#: Columns that only some studies have; their means over time are metrics of those.
OPTIONAL = (
    *("response_ratio", "window_share", "rate_factor"),
    *(f"{network}_{what}" for network in ("critic", "actor") for what in ("dormant", "rank", "norm")),
    "grad_norm",
    *(f"return_{where}" for where in ("nominal", "previous", "next", "low", "high")),
)
REFERENCE = "SAC"  # the paper's normaliser: SAC with automatic temperature
NAN = float("nan")


class RunKey(NamedTuple):
    """What identifies a run."""

    family: str
    task: str
    method: str
    pattern: str
    seed: int


@dataclass(frozen=True)
class RecordedRun:
    """One run; ``curve`` is None exactly when ``problem`` says why it cannot be measured."""

    key: RunKey
    curve: Curve | None
    problem: str  # "", "diverged", "incomplete" or "missing"
    steps: np.ndarray  # (m,) environment steps
    logs: dict[str, np.ndarray]  # column -> (m,)


@dataclass(frozen=True)
class RecordedStudy:
    """All runs of a study with what the metrics need to know about their tasks and patterns."""

    runs: dict[RunKey, RecordedRun]
    horizons: dict[str, float]  # task -> T
    floors: dict[str, float]  # task -> mean return of the random policy; absent if not measured
    segments: int
    patterns: dict[str, PatternFacts]  # those that were run, in the order in which a report shows them

    def changes(self, task: str) -> np.ndarray:
        """(K,) environment steps at which the drift of ``task`` enters its next segment."""
        return change_steps(self.horizons[task], self.segments)

    def tasks(self, family: str) -> list[str]:
        """The tasks of a family, sorted."""
        return sorted({k.task for k in self.runs if k.family == family})

    def methods(self) -> list[str]:
        """Methods in order of first appearance."""
        return list(dict.fromkeys(k.method for k in self.runs))

    def seeds(self) -> list[int]:
        """All seeds, sorted."""
        return sorted({k.seed for k in self.runs})


def baseline_of(method: str, methods: Sequence[str]) -> str | None:
    """The carrier's baseline a method is compared with: ``SAC`` for ``SAC+AES`` and ``SAC+AES[kappa=0.3]``.

    A baseline with the method's own variant suffix is preferred; None if there is none.
    """
    carrier = re.split(r"[+\[]", method, maxsplit=1)[0]
    suffix = method[method.index("[") :] if "[" in method else ""
    for candidate in (carrier + suffix, carrier):
        if candidate in methods and candidate != method:
            return candidate
    return None


def _horizon(config: Mapping[str, Any], task: str) -> float:
    steps = config["steps"]
    return float(steps[task] if isinstance(steps, Mapping) else steps)


def load_study(curves: "pl.DataFrame", config: Mapping[str, Any], manifest: Mapping[str, Any]) -> RecordedStudy:
    """Sort the rows of ``curves.parquet`` into runs and settle the status of each.

    Runs named by the manifest without any row are "missing"; runs shorter than the horizon are "incomplete".

    Args:
      curves: one row per evaluation: ``family``, ``task``, ``method``, ``pattern``, ``seed``, ``step`` (environment
        steps), ``return_mean`` and whatever else was logged.
      config: ``steps``, the horizon or a map from task to horizon; ``segments`` defaults to 5.
      manifest: ``runs`` (with ``status``), ``floors`` (task to return of the random policy) and ``patterns`` (see
        `aesjax.measure.describe`); each may be absent.

    Raises:
      ValueError: a required column or config field is missing, a run is stored twice, or a pattern is badly described.
    """
    needed = ("family", "task", "method", "pattern", "seed", "step", "return_mean")
    absent = [c for c in needed if c not in curves.columns]
    if absent:
        raise ValueError(f"the curves lack the columns {', '.join(absent)}")
    if "steps" not in config:
        raise ValueError("the config lacks 'steps', the training horizon in environment steps")
    family_of = dict(curves.select("task", "family").unique().iter_rows())
    status: dict[RunKey, str] = {}
    for run in manifest.get("runs", ()):
        family = family_of.setdefault(run["task"], run.get("family", config.get("family", "")))
        key = RunKey(family, run["task"], run["method"], run["pattern"], int(run["seed"]))
        status[key] = run.get("status", "")
    runs: dict[RunKey, RecordedRun] = {}
    columns = (*LOGGED, *OPTIONAL, "refreshes", "return_mean")
    parts = curves.partition_by(list(RunKey._fields), as_dict=True, maintain_order=True)
    for name, rows in parts.items():
        key, rows = RunKey(*name), rows.sort("step")
        steps = rows["step"].to_numpy().astype(np.float64)
        logs = {c: rows[c].cast(float).fill_null(NAN).to_numpy() for c in columns if c in rows.columns}
        returns = rows["return_mean"].cast(float).fill_null(NAN).to_numpy()
        curve, problem = _curve(key, steps, returns, _horizon(config, key.task), status.get(key, ""))
        runs[key] = RecordedRun(key, curve, problem, steps, logs)
    for key, state in status.items():
        if key not in runs:
            problem = "diverged" if state == "diverged" else "missing"
            runs[key] = RecordedRun(key, None, problem, np.zeros(0), {})
    tasks = {k.task for k in runs}
    floors = {t: float(b) for t, b in manifest.get("floors", {}).items() if b is not None and np.isfinite(b)}
    patterns = describe_runs(manifest, (k.pattern for k in runs))
    return RecordedStudy(
        runs, {t: _horizon(config, t) for t in tasks}, floors, int(config.get("segments", 5)), patterns
    )


def _curve(key, steps, returns, horizon, status) -> tuple[Curve | None, str]:
    if status == "diverged" or not np.all(np.isfinite(returns)):
        return None, "diverged"
    try:
        return Curve(steps, returns, horizon), ""
    except IncompleteRunError:
        return None, "incomplete"
    except ValueError as error:
        raise ValueError(f"{key.method} on {key.task}, pattern {key.pattern}, seed {key.seed}: {error}") from error


def run_metrics(study: RecordedStudy, key: RunKey) -> dict[str, Metric]:
    """Every metric of one run by name; a metric without a value carries its reason."""
    run = study.runs[key]
    own_steady = study.runs.get(key._replace(pattern=STEADY))
    floor = study.floors.get(key.task)
    sac = [r for k, r in study.runs.items() if k[:4] == (key.family, key.task, REFERENCE, STEADY)]
    sac_means = np.array([mean_return(r.curve) if r.curve else NAN for r in sac])
    out = _levels(run, own_steady, sac_means, floor)
    changes = study.changes(key.task)
    out |= _recoveries(run, own_steady, floor, changes, study.patterns[key.pattern].recovery)
    out |= weight_metrics(run.steps, run.logs, changes, study.horizons[key.task])
    out["mean_train_return"] = time_mean(run.steps, run.logs.get("train_return", np.full(len(run.steps), NAN)))
    out |= {f"mean_{name}": time_mean(run.steps, run.logs[name]) for name in OPTIONAL if name in run.logs}
    if "mean_return_nominal" in out:  # averaged as those are, which `mean_return` is not
        out["mean_return_in_force"] = time_mean(run.steps, run.logs["return_mean"])
    if "refreshes" in run.logs:
        out["refreshes"] = Metric(float(np.nansum(run.logs["refreshes"])))
    if run.problem:  # a broken run has no metric at all, whatever could still be computed from its rows
        out = {name: Metric(NAN, run.problem) for name in out}
    return out


def _levels(run: RecordedRun, steady: RecordedRun | None, sac: np.ndarray, floor: float | None) -> dict[str, Metric]:
    own = mean_return(run.curve) if run.curve else NAN
    out = {
        "auc": Metric(auc(run.curve) if run.curve else NAN),
        "mean_return": Metric(own),
        "final_return": Metric(final_return(run.curve) if run.curve else NAN),
    }
    no_sac = "" if np.any(np.isfinite(sac)) else "no_steady_sac_runs"
    base = mean_return(steady.curve) if steady and steady.curve else NAN
    no_steady = "" if np.isfinite(base) else "no_steady_run"
    reference = sac if np.any(np.isfinite(sac)) else np.array([base])
    for suffix, floors, no_floor in (
        ("", None, ""),
        ("_safe", [floor if floor is not None else NAN], "no_floor" if floor is None else ""),
    ):
        why = no_sac or no_floor
        score = metrics.nauc_task([[own]], sac[None, :], floors) if not why else None
        out[f"nauc_task{suffix}"] = _metric(score, why)
        why = no_steady or no_floor
        score = metrics.drop_run([[own]], [[base]], floors, reference[None, :]) if not why else None
        out[f"drop_run{suffix}"] = _metric(score, why)
    out["loss_rate"] = Metric(base - own, no_steady)
    return out


def _metric(scores: metrics.Scores | None, why: str) -> Metric:
    if scores is None:
        return Metric(NAN, why)
    return Metric(float(scores.values.ravel()[0]), scores.reasons[0], scores.literal_unsafe)


def _recoveries(
    run: RecordedRun, steady: RecordedRun | None, floor: float | None, changes: np.ndarray, applies: bool
) -> dict:
    names = [
        "recovery",
        "recovery_per_change",
        "recovered_fraction",
        "recovery_null",
        "recovery_null_formula",
    ]
    robust = ["recovery_robust", "recovery_robust_per_change", "recovery_robust_fraction"]
    robust += [
        "recovery_robust_null",
        "n_not_applicable",
        "immediate_drop",
        "deficit_area",
        "no_drop_fraction",
    ]
    versus = ["recovery_vs_steady", "recovery_vs_steady_fraction"]
    count = range(1, len(changes) + 1)
    names += [f"recovered@{i}" for i in count]
    robust += [f"robust_recovered@{i}" for i in count] + [f"level@{i}" for i in count]
    every = names + robust + versus
    if not applies or run.curve is None or not len(changes):
        return dict.fromkeys(every, Metric(NAN, "only_abrupt"))
    curve, other = run.curve, steady.curve if steady else None
    literal = recovery(curve, changes)
    values = [literal.total, literal.per_change, literal.recovered_fraction]
    values += [recovery(other, changes).total if other else NAN, null_recovery(curve, changes)]
    out = _named(names, [*values, *literal.recovered.astype(float)], "no_steady_run")
    if floor is None:
        return out | dict.fromkeys(robust + versus, Metric(NAN, "no_floor"))
    r, extra = recovery_robust(curve, changes, floor), companions(curve, changes, floor)
    null = recovery_robust(other, changes, floor).total if other else NAN
    values = [r.total, r.per_change, r.recovered_fraction, null, r.n_not_applicable]
    values += [float(nan_mean(x)) for x in (extra.immediate_drop, extra.deficit_area, extra.no_drop)]
    values += [*np.where(r.applicable, r.recovered, NAN), *r.level]
    out |= _named(robust, values, "level_not_above_floor")
    if other is None:
        out["recovery_robust_null"] = Metric(NAN, "no_steady_run")
        return out | dict.fromkeys(versus, Metric(NAN, "no_steady_run"))
    if not np.array_equal(other.steps, curve.steps):
        return out | dict.fromkeys(versus, Metric(NAN, "steady_run_on_another_grid"))
    v = recovery_vs_steady(curve, other, changes, floor)
    return out | _named(versus, [v.total, v.recovered_fraction], "steady_not_above_floor")


def _named(names: Sequence[str], values: Sequence[float], reason: str) -> dict[str, Metric]:
    pairs = zip(names, values, strict=True)
    return {n: Metric(float(v), "" if np.isfinite(v) else reason) for n, v in pairs}
