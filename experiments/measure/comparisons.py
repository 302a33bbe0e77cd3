"""Paired comparisons of every method with its baseline, constants and controls, and Holm's correction over them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from experiments.measure import stats
from experiments.measure.bounds import bounded
from experiments.measure.opponents import Opponents
from experiments.measure.patterns import STEADY
from experiments.measure.scopes import NAN, Cells, Scope, inside, matrix, numbers
from experiments.measure.study import RecordedStudy, baseline_of

_LOWER = ("drop_run", "drop_run_safe", "loss_rate", "recovery", "recovery_robust", "recovery_vs_steady", "deficit_area")
LOWER_IS_BETTER = frozenset(_LOWER)
PAIRED = ("mean_return", "later_return", "final_return", "nauc_task", "nauc_task_safe", *_LOWER)
VERSUS = ("mean_return", "later_return", "nauc_task_safe")  # compared with constants and controls, too
#: Not compared without drift: the first are zero by definition there, and nothing changes that the last could follow.
_UNDER_DRIFT = ("drop_run", "drop_run_safe", "loss_rate", "later_return")


def comparisons(
    study: RecordedStudy, cells: Cells, scope: Scope, method: str, pattern: str, opponents: Opponents, draw: Callable
) -> Iterator[tuple]:
    """Rows of the tidy frame without Holm's correction; ``X:vs=KIND`` where it is not the baseline."""
    baseline = baseline_of(method, study.methods())
    asked: list[tuple[str, Any, tuple[str, ...]]] = [] if baseline is None else [("", baseline, PAIRED)]
    for kind, cell in opponents.items():
        asked.append((f":vs={kind}", {task: cell.get((task, pattern), "") for task in scope.tasks}, VERSUS))
    for suffix, opponent, metrics in asked:
        for name in metrics:
            if pattern == STEADY and name in _UNDER_DRIFT:
                continue
            yield from _paired(study, cells, scope, method, pattern, draw, name, opponent, suffix)


def _paired(
    study: RecordedStudy,
    cells: Cells,
    scope: Scope,
    method: str,
    pattern: str,
    draw: Callable,
    name: str,
    opponent: str | Mapping[str, str],
    suffix: str,
) -> Iterator[tuple]:
    x, y = (matrix(study, cells[name], scope, m, pattern) for m in (method, opponent))
    d = stats.paired_differences(x, y)
    valid, total = int(np.sum(np.isfinite(d))), sum(inside(k, scope, method, pattern) for k in study.runs)
    if not valid:
        if suffix:
            return
        reasons = {m.reason for k, m in cells[name].items() if inside(k, scope, method, pattern) and m.reason}
        reason = ", ".join(sorted(reasons)) or "no_common_seed"
    else:
        reason = "" if valid == total else "unpaired_runs_left_out"
    sign = -1.0 if name in LOWER_IS_BETTER else 1.0
    names = opponent if isinstance(opponent, str) else " / ".join(dict.fromkeys(filter(None, opponent.values())))
    flag = f"baseline={names}" + (";lower_is_better" if sign < 0 else "")
    small = len(scope.tasks) == 1 and valid < stats.SMALL
    by_seed = np.where(np.all(np.isfinite(d), axis=0), np.mean(d, axis=0), np.nan)
    results = {
        "paired": stats.t_interval(d) if small else draw([d], stats.mean),
        "p": stats.Interval(stats.paired_t_p(by_seed), NAN, NAN),
    }
    if not suffix:
        plain = partial(stats.probability_of_improvement_interval, np.random.default_rng(draw.keywords["seed"]))
        results |= {
            "paired_iqm": draw([d], stats.iqm),
            "poi": plain(sign * x, sign * y) if valid else stats.Interval(NAN, NAN, NAN),
            "poi_paired": stats.Interval(stats.paired_probability_of_improvement(sign * d), NAN, NAN),
        }
    for kind, interval in results.items():
        note = flag + (";t_interval" if kind == "paired" and small else "")
        interval = bounded(interval, f"{kind}:{name}", study.segments)
        head = ("method", scope.family, scope.task, method, pattern, None, f"{kind}:{name}{suffix}")
        yield (*head, *numbers(interval), valid, total, reason, note)


def with_holm(rows: list[tuple], asides: Collection[str] = ()) -> list[tuple]:
    """Append ``p_holm`` rows, adjusted within one metric and kind of opponent over all tasks (family rows: all
    families).

    Args:
      rows: of `comparisons`.
      asides: methods that others are compared with. They are adjusted apart, so that a control that joins a study
        takes nothing away from what is asked of its methods.
    """
    groups: dict[tuple, list[tuple]] = {}
    for row in rows:
        if row[6].startswith("p:"):
            groups.setdefault((row[6], row[2] is None, row[3] in asides), []).append(row)
    adjusted = []
    for (name, *_), group in groups.items():
        for row, p in zip(group, stats.holm([r[7] for r in group]), strict=True):
            adjusted.append((*row[:6], name.replace("p:", "p_holm:", 1), float(p), *row[8:]))
    return rows + adjusted
