"""Reservations about a study that its readers must see first, one sentence each."""

import numpy as np

from experiments.measure.catalog import CATALOG, run_metrics
from experiments.measure.curves import nan_mean
from experiments.measure.runs import pinned
from experiments.measure.study import LOGS, RecordedStudy

_LOGS = ("at_max", "weight_raw", "entropy_weight")
_INSIDE = 0.9  # share of the recorded weights that the proposed kappa keeps off the bound


def remarks(study: RecordedStudy) -> list[str]:
    """Tasks on which nAUC has no verdict, and schedules that are pinned at a bound, with a remedy."""
    rows = [CATALOG[name] for name in ("nauc_task_safe", "saturation_min", "saturation_max")]
    scores = {key: run_metrics(study, key, rows) for key in study.runs}
    tasks = ", ".join(sorted({key.task for key, score in scores.items() if score["nauc_task_safe"].flag}))
    text = f"nAUC on {tasks} has no verdict, because SAC without drift is not clearly above the random policy"
    lines = [f"{text}; read the mean return."] if tasks else []
    if not study.floors and LOGS in {key.family for key in study.runs}:
        lines.append("No floor (return of random actions) is given, so profiles and robust recovery are missing.")
    for method in study.methods():
        patterns: dict[str, list[str]] = {}  # by bound
        for pattern in study.patterns:
            own = [score for key, score in scores.items() if (key.method, key.pattern) == (method, pattern)]
            ends = ([score[f"saturation_{end}"].value for score in own] for end in ("min", "max"))
            if bound := pinned(*(float(nan_mean(shares)) for shares in ends)):
                patterns.setdefault(bound, []).append(pattern)
        lines += [_pinned(study, method, bound, names) for bound, names in patterns.items()]
    return lines


def _pinned(study: RecordedStudy, method: str, bound: str, patterns: list[str]) -> str:
    """A pinned schedule and its remedy, with a value of kappa if recorded raw weights are proportional to it."""
    from aesjax.schedules import SCHEDULES

    upper, schedule = bound == "upper", getattr(study.definitions.get(method), "in_force", None)
    change, share = "smaller" if upper else "larger", _INSIDE if upper else 1 - _INSIDE
    text = f"{method} is pinned at its {bound} bound (clipped in at least 95 % of the updates) on {', '.join(patterns)}"
    text += f", so it acts as a constant; use other bounds or {change} rewards"
    if schedule is None or "kappa" not in schedule.factory.options:
        return f"{text}."
    text += f", or a {change} kappa"
    logs = [run.logs for key, run in study.runs.items() if key.method == method and key.pattern in patterns]
    logs = [log for log in logs if {*_LOGS} <= log.keys()]
    if not logs or schedule.factory not in SCHEDULES.values():
        return f"{text}."
    clipped, raw, weight = (np.concatenate([log[name] for log in logs]) for name in _LOGS)
    trained = np.isfinite(clipped)
    bound_value, edge = np.median(weight[trained]), np.quantile(raw[trained], share)
    kappa = schedule.given.get("kappa", schedule.factory.signature.defaults["kappa"]) * bound_value / edge
    return f"{text}: kappa={kappa:.2g} would have kept {_INSIDE:.0%} of the recorded weights off the bound."
