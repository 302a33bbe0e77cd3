"""One tidy frame per study: every metric of every run, aggregates with intervals, paired differences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aesjax.measure import metrics, stats
from aesjax.measure.curves import Metric, nan_mean
from aesjax.measure.patterns import STEADY
from aesjax.measure.study import REFERENCE, RecordedStudy, RunKey, baseline_of, load_study, run_metrics

if TYPE_CHECKING:
    import polars as pl

__all__ = ["COLUMNS", "LOWER_IS_BETTER", "PAIRED", "Scope", "summarise"]

COLUMNS = (
    ("level", str),
    ("family", str),
    ("task", str),
    ("method", str),
    ("pattern", str),
    ("seed", int),
    ("metric", str),
    ("value", float),
    ("low", float),
    ("high", float),
    ("n_valid", int),
    ("n_total", int),
    ("reason", str),
    ("flag", str),
)
LOWER_IS_BETTER = frozenset(
    [
        "drop_run",
        "drop_run_safe",
        "loss_rate",
        "recovery",
        "recovery_robust",
        "recovery_vs_steady",
        "deficit_area",
    ]
)
PAIRED = (
    *("mean_return", "final_return", "nauc_task", "nauc_task_safe", "drop_run", "drop_run_safe", "loss_rate"),
    *("recovery", "recovery_robust", "recovery_vs_steady", "deficit_area"),
)
WITH_IQM = frozenset(PAIRED)
NAN = float("nan")
Cells = dict[str, dict[RunKey, Metric]]


class Scope(NamedTuple):
    """What an aggregate covers: one task, or all tasks of a family (``task`` is None)."""

    family: str
    task: str | None
    tasks: tuple[str, ...]


def summarise(
    curves: "pl.DataFrame",
    config: Mapping[str, Any],
    manifest: Mapping[str, Any],
    *,
    replicates: int = 10_000,
    seed: int = 0,
) -> "pl.DataFrame":
    """All metrics of a study in one long frame.

    Rows with ``level == "run"`` hold one metric of one run. Rows with ``level == "method"`` aggregate over
    seeds (``task`` set) or over seeds and tasks of the family (``task`` null), with a 95 % interval in ``low``
    and ``high``: ``X`` the mean, ``iqm:X`` the interquartile mean. Against the carrier's baseline, with equal
    seeds: ``paired:X`` and ``paired_iqm:X`` (method minus baseline), ``poi:X`` and ``poi_paired:X``
    (probability of improvement, in the direction in which X improves), ``p:X`` and ``p_holm:X`` (t test; Holm
    within X over all cells of the study).

    Args:
      curves, config, manifest: as in `aesjax.measure.study.load_study`.
      replicates: bootstrap replicates.
      seed: of the bootstrap; the same frame and seed give the same intervals.

    Raises:
      ValueError: as in `aesjax.measure.study.load_study`.
    """
    import polars as pl

    study = load_study(curves, config, manifest)
    cells: Cells = {}
    for key in study.runs:
        for name, metric in run_metrics(study, key).items():
            cells.setdefault(name, {})[key] = metric
    draw = partial(_interval, seed=seed, replicates=replicates)
    rows = [
        (
            "run",
            *k[:4],
            k.seed,
            name,
            m.value,
            None,
            None,
            int(np.isfinite(m.value)),
            1,
            m.reason,
            _flag(name, m),
        )
        for name, column in cells.items()
        for k, m in column.items()
    ]
    compared: list[tuple] = []
    for scope in _scopes(study):
        for method in study.methods():
            for pattern in dict.fromkeys(k.pattern for k in study.runs):
                if not any(_in(k, scope, method, pattern) for k in study.runs):
                    continue
                rows += _aggregates(study, cells, scope, method, pattern, draw)
                compared += _comparisons(study, cells, scope, method, pattern, draw)
    for family in dict.fromkeys(k.family for k in study.runs):
        if len(tasks := study.tasks(family)) == 1:  # the family's aggregates are the task's
            rows += [_at(r, tasks[0]) for r in rows if _copied(r, family) and "_family" not in r[6]]
            compared += [_at(r, tasks[0]) for r in compared if _copied(r, family)]
    rows += _with_holm(compared)
    schema = {n: {str: pl.String, int: pl.Int64, float: pl.Float64}[t] for n, t in COLUMNS}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _copied(row: tuple, family: str) -> bool:
    return row[:3] == ("method", family, None)


def _at(row: tuple, task: str) -> tuple:
    return (*row[:2], task, *row[3:])


def _flag(name: str, metric: Metric) -> str:
    return "literal_unsafe" if metric.literal_unsafe and not name.endswith("_safe") else ""


def _scopes(study: RecordedStudy) -> Iterator[Scope]:
    for family in dict.fromkeys(k.family for k in study.runs):
        tasks = study.tasks(family)
        if len(tasks) > 1:
            yield from (Scope(family, task, (task,)) for task in tasks)
        yield Scope(family, None, tuple(tasks))


def _in(key: RunKey, scope: Scope, method: str, pattern: str) -> bool:
    return key[0] == scope.family and key[1] in scope.tasks and key[2:4] == (method, pattern)


def _matrix(
    study: RecordedStudy, column: Mapping[RunKey, Metric], scope: Scope, method: str, pattern: str
) -> np.ndarray:
    """(M, n) values, one column per seed of the study; NaN where a run is missing or has no value."""
    rows = [
        [column.get(RunKey(scope.family, task, method, pattern, s), Metric(NAN)).value for s in study.seeds()]
        for task in scope.tasks
    ]
    return np.array(rows, np.float64)


def _interval(arrays: Sequence[np.ndarray], statistic: Callable, *, seed: int, replicates: int) -> stats.Interval:
    # A fresh generator per cell: intervals do not depend on which other cells the study has.
    return stats.bootstrap_interval(np.random.default_rng(seed), arrays, statistic, replicates=replicates)


def _aggregates(study, cells, scope, method, pattern, draw) -> Iterator[tuple]:
    matrix = partial(_matrix, study, scope=scope)
    present = [k for k in study.runs if _in(k, scope, method, pattern)]

    def row(name, interval, column, reason=""):
        mine = [column[k] for k in present]
        valid = sum(np.isfinite(m.value) for m in mine)
        reasons = ", ".join(sorted({m.reason for m in mine if m.reason}))
        flag = "literal_unsafe" if any(_flag(name, m) for m in mine) else ""
        why = reason or reasons
        head = ("method", scope.family, scope.task, method, pattern, None, name)
        return (*head, *_numbers(interval), valid, len(mine), why, flag)

    means = cells["mean_return"]
    sac = matrix(means, method=REFERENCE, pattern=STEADY)
    own, steady = (
        matrix(means, method=method, pattern=pattern),
        matrix(means, method=method, pattern=STEADY),
    )
    floors = np.array([study.floors.get(t, NAN) for t in scope.tasks])
    for name, column in cells.items():
        x = matrix(column, method=method, pattern=pattern)
        for prefix, statistic in (("", stats.mean), ("iqm:", stats.iqm)):
            if prefix and name not in WITH_IQM:
                continue
            if name.startswith("nauc_task"):  # the normaliser is resampled with the runs
                b = floors if name.endswith("_safe") else None
                ratio = partial(_of_nauc, statistic=statistic, floors=b)
                interval = draw([own, sac], ratio) if np.any(np.isfinite(x)) else stats.Interval(NAN, NAN, NAN)
            else:
                interval = draw([x], statistic)
            yield row(prefix + name, interval, column)
    reference = sac if np.any(np.isfinite(sac)) else steady
    for suffix, b in (("", None), ("_safe", floors)):
        # Reasons and flags of a ratio of means are those of its runs: same normaliser, same floor.
        nauc, drop = cells[f"nauc_task{suffix}"], cells[f"drop_run{suffix}"]
        drop_task = partial(_of_drop_task, floors=b)
        yield row(f"drop_task{suffix}", draw([own, steady, reference], drop_task), drop)
        yield row(f"drop_nauc_task{suffix}", draw([own, steady, sac], partial(_of_nauc_drop, floors=b)), drop)
        if scope.task is None:
            family = partial(metrics.nauc_family_values, floors=b)
            yield row(f"nauc_family{suffix}", draw([own, sac], family), nauc)
            family = partial(_of_drop_family, floors=b)
            yield row(f"drop_family{suffix}", draw([own, steady, reference], family), drop)


def _of_nauc(own, sac, *, statistic, floors):
    return statistic(metrics.nauc_task_values(own, sac, floors))


def _of_drop_task(own, steady, reference, *, floors):
    return nan_mean(metrics.drop_task_values(own, steady, floors, reference), axis=-1)


def _of_drop_family(own, steady, reference, *, floors):
    return metrics.drop_family_values(own, steady, floors, reference)


def _of_nauc_drop(own, steady, sac, *, floors):
    top, bottom = (stats.mean(metrics.nauc_task_values(x, sac, floors)) for x in (own, steady))
    return 1.0 - top / np.where(bottom == 0.0, np.nan, bottom)


def _numbers(interval: stats.Interval) -> tuple[float, float | None, float | None]:
    low, high = (x if np.isfinite(x) else None for x in interval[1:])
    return interval.value, low, high


def _comparisons(study, cells, scope, method, pattern, draw) -> Iterator[tuple]:
    baseline = baseline_of(method, study.methods())
    if baseline is None:
        return
    for name in PAIRED:
        x, y = (_matrix(study, cells[name], scope, m, pattern) for m in (method, baseline))
        d = stats.paired_differences(x, y)
        valid, total = int(np.sum(np.isfinite(d))), sum(_in(k, scope, method, pattern) for k in study.runs)
        if not valid:
            reasons = {m.reason for k, m in cells[name].items() if _in(k, scope, method, pattern) and m.reason}
            reason = ", ".join(sorted(reasons)) or "no_common_seed"
        else:
            reason = "" if valid == total else "unpaired_runs_left_out"
        sign = -1.0 if name in LOWER_IS_BETTER else 1.0
        flag = f"baseline={baseline}" + (";lower_is_better" if sign < 0 else "")
        small = len(scope.tasks) == 1 and valid < stats.SMALL
        by_seed = np.where(np.all(np.isfinite(d), axis=0), np.mean(d, axis=0), np.nan)
        plain = partial(stats.probability_of_improvement_interval, np.random.default_rng(draw.keywords["seed"]))
        chance = stats.paired_probability_of_improvement
        results = {
            "paired": stats.t_interval(d) if small else draw([d], stats.mean),
            "paired_iqm": draw([d], stats.iqm),
            "poi": plain(sign * x, sign * y) if valid else stats.Interval(NAN, NAN, NAN),
            "poi_paired": stats.Interval(chance(sign * d), NAN, NAN),
            "p": stats.Interval(stats.paired_t_p(by_seed), NAN, NAN),
        }
        for kind, interval in results.items():
            note = flag + (";t_interval" if kind == "paired" and small else "")
            head = ("method", scope.family, scope.task, method, pattern, None, f"{kind}:{name}")
            yield (*head, *_numbers(interval), valid, total, reason, note)


def _with_holm(rows: list[tuple]) -> list[tuple]:
    """Append ``p_holm`` rows, adjusted within one metric over all tasks (family rows: all families)."""
    groups: dict[tuple, list[tuple]] = {}
    for row in rows:
        if row[6].startswith("p:"):
            groups.setdefault((row[6], row[2] is None), []).append(row)
    adjusted = []
    for (name, _), group in groups.items():
        for row, p in zip(group, stats.holm([r[7] for r in group]), strict=True):
            adjusted.append((*row[:6], name.replace("p:", "p_holm:", 1), float(p), *row[8:]))
    return rows + adjusted
