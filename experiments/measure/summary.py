"""One tidy frame per study: every metric of every run, aggregates with intervals, paired differences."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.measure import metrics, stats
from experiments.measure.catalog import Metric, catalogue, row_of, run_metrics
from experiments.measure.comparisons import (
    Cells,
    Scope,
    TidyRow,
    asides_of,
    comparisons,
    draw_interval,
    matrix,
    opponents_of,
    scopes,
    with_holm,
)
from experiments.measure.curves import Value, nan_mean
from experiments.measure.study import LOGS, NAN, REFERENCE, STEADY, RecordedStudy, RunKey, load_study, with_numbers

if TYPE_CHECKING:
    import polars as pl


_COLUMNS = {
    **dict.fromkeys(("level", "family", "task", "method", "pattern"), str),
    **{"seed": int, "metric": str},
    **dict.fromkeys(("value", "low", "high"), float),
    **dict.fromkeys(("n_valid", "n_total"), int),
    **dict.fromkeys(("reason", "flag"), str),
}


def summarise(
    curves: "pl.DataFrame",
    config: Mapping[str, Any],
    manifest: Mapping[str, Any],
    *,
    replicates: int = 10_000,
    seed: int = 0,
    custom: Iterable[Metric] = (),
) -> "pl.DataFrame":
    """All metrics of a study in one long frame.

    Rows with ``level == "run"`` hold one metric of one run; rows with ``level == "method"`` aggregate over seeds
    (``task`` set) or over seeds and tasks of the family (``task`` null), with 95 % intervals, and compare methods.
    `docs/metrics.md` and `docs/statistics.md` define the names. Each axis of a sweep is a column with the method's
    number.

    Args:
      curves, config, manifest: as in `experiments.measure.study.load_study`.
      replicates: bootstrap replicates.
      seed: of the bootstrap; equal frames and seeds give equal intervals.
      custom: metrics besides the built-in and installed ones.

    Raises:
      ValueError: as in `experiments.measure.study.load_study` and `experiments.measure.catalog.catalogue`.
    """
    import polars as pl

    study, catalog = load_study(curves, config, manifest), catalogue(custom)
    cells: Cells = {}
    for key in study.runs:
        for name, value in run_metrics(study, key, catalog.values()).items():
            cells.setdefault(name, {})[key] = value
    draw = partial(draw_interval, seed=seed, replicates=replicates)
    rows: list[TidyRow] = []
    for name, column in cells.items():
        for key, value in column.items():
            valid = int(np.isfinite(value.value))
            rows.append(TidyRow("run", *key, name, value.value, None, None, valid, 1, value.reason, value.flag))
    compared: list[TidyRow] = []
    opponents = {method: opponents_of(study, method) for method in study.methods()}
    for scope in scopes(study):
        settings = dict.fromkeys((key.method, key.pattern) for key in study.runs if key.family == scope.family)
        for method, pattern in settings:
            if scope.keys(study, method, pattern):
                rows += _aggregates(study, catalog, cells, cells["mean_return"], scope, method, pattern, draw)
                compared += comparisons(study, catalog, cells, scope, method, pattern, opponents[method], draw)
    for family in dict.fromkeys(key.family for key in study.runs):
        if len(tasks := study.tasks(family)) == 1:
            for part in (rows, compared):
                part += _of_task(part, family, tasks[0])
    rows += with_holm(compared, asides_of(study))
    frame = pl.DataFrame(rows, schema=_COLUMNS, orient="row")
    if LOGS in config:  # without metrics of quantities that logs lack, and the paper's
        family = pl.col("metric").str.contains("_family")
        frame = frame.filter(pl.col("value").is_finite().any().over("metric"), ~family)
    return with_numbers(frame, config)


def _of_task(rows: list[TidyRow], family: str, task: str) -> list[TidyRow]:
    """The aggregates of a family as those of its only task."""
    pooled = [row for row in rows if (row.level, row.family, row.task) == ("method", family, None)]
    return [row._replace(task=task) for row in pooled if "_family" not in row.metric]


def _aggregates(
    study: RecordedStudy,
    catalog: Mapping[str, Metric],
    cells: Cells,
    means: Mapping[RunKey, Value],
    scope: Scope,
    method: str,
    pattern: str,
    draw: Callable,
) -> Iterator[TidyRow]:
    """Aggregates of every metric in one setting; ``means``: returns from the onset on, of which ratios consist."""
    values, present = partial(matrix, study, scope=scope), scope.keys(study, method, pattern)

    def row(name: str, interval: stats.Interval, column: Mapping[RunKey, Value]) -> TidyRow:
        # A missing run has no logs.
        runs = [column.get(key) or Value(NAN, study.runs[key].problem) for key in present]
        valid = sum(np.isfinite(run.value) for run in runs) if np.isfinite(interval.value) else 0
        reasons = ", ".join(sorted({run.reason for run in runs if run.reason}))
        flag = max(run.flag for run in runs)  # "literal_unsafe" before an unclear denominator
        head = ("method", scope.family, scope.task, method, pattern, None, name)
        return TidyRow(*head, *stats.numbers(interval), valid, len(runs), reasons, flag)

    sac = values(means, method=REFERENCE, pattern=STEADY)
    own, steady = values(means, method=method, pattern=pattern), values(means, method=method, pattern=STEADY)
    floors = np.array([study.floors.get(t, NAN) for t in scope.tasks])
    segments = study.segments_of(pattern)
    for name, column in cells.items():
        x, metric = values(column, method=method, pattern=pattern), row_of(catalog, name)
        statistics = {"": stats.mean, "iqm:": stats.iqm} if metric.order else {"": stats.mean}
        below = floors if metric.corrected else None
        for prefix, statistic in statistics.items():
            if metric.ratios is not None:  # the normaliser is resampled with the runs
                pooled = partial(_pooled, metric.ratios, statistic=statistic, floors=below)
                interval = draw([own, sac], pooled) if np.any(np.isfinite(x)) else stats.Interval(NAN, NAN, NAN)
            else:
                interval = draw([x], statistic)
            yield row(prefix + name, stats.bounded(interval, *metric.bounds(segments)), column)
    reference = sac if np.any(np.isfinite(sac)) else steady
    for suffix, b in (("", None), ("_safe", floors)):
        # A ratio of means uses all valid runs, including those without a Steady run of their seed; reasons and
        # flags are those of the runs' own ratios.
        drop = {key: each._replace(value=means[key].value) for key, each in cells[f"drop_run{suffix}"].items()}
        nauc = cells[f"nauc_task{suffix}"]
        both = {key: each._replace(flag=max(each.flag, nauc[key].flag)) for key, each in drop.items()}
        drops = [own, steady, reference]
        yield row(f"drop_task{suffix}", draw(drops, partial(_of_drop, metrics.drop_task, floors=b)), drop)
        yield row(f"drop_nauc_task{suffix}", draw([own, steady, sac], partial(_of_nauc_drop, floors=b)), both)
        if scope.task is None:
            yield row(f"nauc_family{suffix}", draw([own, sac], partial(metrics.nauc_family, floors=b)), nauc)
            yield row(f"drop_family{suffix}", draw(drops, partial(_of_drop, metrics.drop_family, floors=b)), drop)


def _pooled(ratios, own, sac, *, statistic, floors):
    return statistic(ratios(own, sac, floors))


def _of_drop(drop, own, steady, reference, *, floors):
    value = drop(own, steady, floors, reference)
    return nan_mean(value, axis=-1) if drop is metrics.drop_task else value


def _of_nauc_drop(own, steady, sac, *, floors):
    top, bottom = (stats.mean(metrics.nauc_task(x, sac, floors)) for x in (own, steady))
    with np.errstate(invalid="ignore"):
        low = bottom == 0.0 if floors is None else bottom <= metrics.GUARD
    return 1.0 - top / np.where(low, np.nan, bottom)
