"""One tidy frame per study: every metric of every run, aggregates with intervals, paired differences."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.measure import metrics, stats
from experiments.measure.comparisons import (
    PAIRED,
    Cells,
    Scope,
    asides_of,
    comparisons,
    draw_interval,
    matrix,
    opponents_of,
    scopes,
    with_holm,
)
from experiments.measure.curves import Metric, nan_mean
from experiments.measure.runs import run_metrics
from experiments.measure.study import NAN, REFERENCE, STEADY, RecordedStudy, RunKey, load_study, with_numbers

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
) -> "pl.DataFrame":
    """All metrics of a study in one long frame.

    Rows with ``level == "run"`` hold one metric of one run; rows with ``level == "method"`` aggregate over seeds
    (``task`` set) or over seeds and tasks of the family (``task`` null), with 95 % intervals, and compare methods.
    `docs/metrics.md` defines every name. Each axis of a sweep is a column with the method's number.

    Args:
      curves, config, manifest: as in `experiments.measure.study.load_study`.
      replicates: bootstrap replicates.
      seed: of the bootstrap; equal frames and seeds give equal intervals.

    Raises:
      ValueError: as in `experiments.measure.study.load_study`.
    """
    import polars as pl

    study = load_study(curves, config, manifest)
    cells: Cells = {}
    for key in study.runs:
        for name, metric in run_metrics(study, key).items():
            cells.setdefault(name, {})[key] = metric
    draw = partial(draw_interval, seed=seed, replicates=replicates)
    rows: list[tuple] = [
        ("run", *k, name, m.value, None, None, int(np.isfinite(m.value)), 1, m.reason, m.flag)
        for name, column in cells.items()
        for k, m in column.items()
    ]
    compared: list[tuple] = []
    opponents = {method: opponents_of(study, method) for method in study.methods()}
    for scope in scopes(study):
        for method, pattern in dict.fromkeys(k[2:4] for k in study.runs if k.family == scope.family):
            if scope.keys(study, method, pattern):
                rows += _aggregates(study, cells, scope, method, pattern, draw)
                compared += comparisons(study, cells, scope, method, pattern, opponents[method], draw)
    for family in dict.fromkeys(k.family for k in study.runs):
        if len(tasks := study.tasks(family)) == 1:  # the family's aggregates are the task's
            for each in (rows, compared):
                own = [r for r in each if r[:3] == ("method", family, None) and "_family" not in r[6]]
                each += [(*r[:2], tasks[0], *r[3:]) for r in own]
    rows += with_holm(compared, asides_of(study))
    return with_numbers(pl.DataFrame(rows, schema=_COLUMNS, orient="row"), config)


def _aggregates(
    study: RecordedStudy, cells: Cells, scope: Scope, method: str, pattern: str, draw: Callable
) -> Iterator[tuple]:
    values, present = partial(matrix, study, scope=scope), scope.keys(study, method, pattern)

    def row(name: str, interval: stats.Interval, column: Mapping[RunKey, Metric]) -> tuple:
        mine = [column.get(k) or Metric(NAN, study.runs[k].problem) for k in present]  # a missing run has no logs
        valid = sum(np.isfinite(m.value) for m in mine) if np.isfinite(interval.value) else 0
        reasons = ", ".join(sorted({m.reason for m in mine if m.reason}))
        flag = max(m.flag for m in mine)  # "literal_unsafe" before an unclear denominator
        ends = stats.numbers(stats.bounded(interval, name, study.segments_of(pattern)))
        return ("method", scope.family, scope.task, method, pattern, None, name, *ends, valid, len(mine), reasons, flag)

    means = cells["mean_return"]
    sac = values(means, method=REFERENCE, pattern=STEADY)
    own, steady = values(means, method=method, pattern=pattern), values(means, method=method, pattern=STEADY)
    floors = np.array([study.floors.get(t, NAN) for t in scope.tasks])
    for name, column in cells.items():
        x = values(column, method=method, pattern=pattern)
        for prefix, statistic in (("", stats.mean), *((("iqm:", stats.iqm),) if name in PAIRED else ())):
            if name.startswith("nauc_task"):  # the normaliser is resampled with the runs
                ratio = partial(_of_nauc, statistic=statistic, floors=floors if name.endswith("_safe") else None)
                interval = draw([own, sac], ratio) if np.any(np.isfinite(x)) else stats.Interval(NAN, NAN, NAN)
            else:
                interval = draw([x], statistic)
            yield row(prefix + name, interval, column)
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


def _of_nauc(own, sac, *, statistic, floors):
    return statistic(metrics.nauc_task(own, sac, floors))


def _of_drop(drop, own, steady, reference, *, floors):
    value = drop(own, steady, floors, reference)
    return nan_mean(value, axis=-1) if drop is metrics.drop_task else value


def _of_nauc_drop(own, steady, sac, *, floors):
    top, bottom = (stats.mean(metrics.nauc_task(x, sac, floors)) for x in (own, steady))
    return 1.0 - top / np.where(bottom == 0.0, np.nan, bottom)
