"""One tidy frame per study: every metric of every run, aggregates with intervals, paired differences."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.measure import metrics, stats
from experiments.measure.bounds import bounded
from experiments.measure.comparisons import PAIRED, comparisons, with_holm
from experiments.measure.curves import Metric, nan_mean
from experiments.measure.opponents import asides_of, opponents_of
from experiments.measure.patterns import STEADY
from experiments.measure.runs import run_metrics
from experiments.measure.scopes import NAN, Cells, Scope, draw_interval, inside, matrix, numbers, scopes
from experiments.measure.study import REFERENCE, RecordedStudy, RunKey, load_study

if TYPE_CHECKING:
    import polars as pl


_COLUMNS = {
    **dict.fromkeys(("level", "family", "task", "method", "pattern"), str),
    **{"seed": int, "metric": str},
    **dict.fromkeys(("value", "low", "high"), float),
    **dict.fromkeys(("n_valid", "n_total"), int),
    **dict.fromkeys(("reason", "flag"), str),
}
_WITH_IQM = frozenset(PAIRED)


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
    within X over all cells of the study that can differ, constants and controls by themselves). ``paired:X:vs=KIND``
    and its p-values compare with the best constant in hindsight and with controls, where the study has them.
    `docs/metrics.md` defines every name.

    Args:
      curves, config, manifest: as in `experiments.measure.study.load_study`.
      replicates: bootstrap replicates.
      seed: of the bootstrap; the same frame and seed give the same intervals.

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
        ("run", *k, name, m.value, None, None, int(np.isfinite(m.value)), 1, m.reason, _flag(name, m))
        for name, column in cells.items()
        for k, m in column.items()
    ]
    compared: list[tuple] = []
    opponents = {method: opponents_of(study, method) for method in study.methods()}
    for scope in scopes(study):
        for method in study.methods():
            for pattern in dict.fromkeys(k.pattern for k in study.runs):
                if not any(inside(k, scope, method, pattern) for k in study.runs):
                    continue
                rows += _aggregates(study, cells, scope, method, pattern, draw)
                compared += comparisons(study, cells, scope, method, pattern, opponents[method], draw)
    for family in dict.fromkeys(k.family for k in study.runs):
        whole = ("method", family, None)
        if len(tasks := study.tasks(family)) == 1:  # the family's aggregates are the task's
            rows += [_at(tasks[0], r) for r in rows if r[:3] == whole and "_family" not in r[6]]
            compared += [_at(tasks[0], r) for r in compared if r[:3] == whole]
    rows += with_holm(compared, asides_of(study))
    return pl.DataFrame(rows, schema=_COLUMNS, orient="row")


def _at(task: str, row: tuple) -> tuple:
    return (*row[:2], task, *row[3:])


def _flag(name: str, metric: Metric) -> str:
    return "literal_unsafe" if metric.literal_unsafe and not name.endswith("_safe") else ""


def _aggregates(
    study: RecordedStudy, cells: Cells, scope: Scope, method: str, pattern: str, draw: Callable
) -> Iterator[tuple]:
    values = partial(matrix, study, scope=scope)
    present = [k for k in study.runs if inside(k, scope, method, pattern)]

    def row(name, interval, column, lost=()):
        mine = [column.get(k) or Metric(NAN, study.runs[k].problem) for k in present]  # a missing run has no logs
        valid = sum(np.isfinite(m.value) for m in mine) if np.isfinite(interval.value) else 0
        why = ", ".join(sorted({m.reason for m in mine if m.reason}))
        flags = ["literal_unsafe"] if any(_flag(name, m) for m in mine) else []
        head = ("method", scope.family, scope.task, method, pattern, None, name)
        ends = numbers(bounded(interval, name, study.segments))
        return (*head, *ends, valid, len(mine), why, ";".join([*flags, *lost]))

    means = cells["mean_return"]
    sac = values(means, method=REFERENCE, pattern=STEADY)
    own, steady = values(means, method=method, pattern=pattern), values(means, method=method, pattern=STEADY)
    floors = np.array([study.floors.get(t, NAN) for t in scope.tasks])
    no_sac, no_steady = (_lost(study, scope, *of) for of in (("normaliser", REFERENCE), ("steady", method)))
    for name, column in cells.items():
        x = values(column, method=method, pattern=pattern)
        for prefix, statistic in (("", stats.mean), ("iqm:", stats.iqm)):
            if prefix and name not in _WITH_IQM:
                continue
            if name.startswith("nauc_task"):  # the normaliser is resampled with the runs
                b = floors if name.endswith("_safe") else None
                ratio = partial(_of_nauc, statistic=statistic, floors=b)
                interval = draw([own, sac], ratio) if np.any(np.isfinite(x)) else stats.Interval(NAN, NAN, NAN)
            else:
                interval = draw([x], statistic)
            yield row(prefix + name, interval, column, no_sac if name.startswith("nauc") else ())
    reference = sac if np.any(np.isfinite(sac)) else steady
    for suffix, b in (("", None), ("_safe", floors)):
        # A ratio of means rests on all valid runs, those without a Steady run of their own seed, too.
        nauc, drop = cells[f"nauc_task{suffix}"], _of_means(cells[f"drop_run{suffix}"], means)
        ratios = {
            "drop_task": ([own, steady, reference], partial(_of_drop_task, floors=b), drop, no_steady),
            "drop_nauc_task": ([own, steady, sac], partial(_of_nauc_drop, floors=b), drop, [*no_sac, *no_steady]),
        }
        if scope.task is None:
            family = partial(metrics.nauc_family, floors=b)
            ratios["nauc_family"] = ([own, sac], family, nauc, no_sac)
            ratios["drop_family"] = ([own, steady, reference], partial(_of_drop_family, floors=b), drop, no_steady)
        for name, (arrays, statistic, column, lost) in ratios.items():
            yield row(name + suffix, draw(arrays, statistic), column, lost)


def _lost(study: RecordedStudy, scope: Scope, name: str, method: str) -> list[str]:
    """``NAME=VALID/TOTAL`` of a method's Steady runs where not all are valid: what divides by them rests on fewer."""
    runs = [run for key, run in study.runs.items() if inside(key, scope, method, STEADY)]
    valid = sum(run.curve is not None for run in runs)
    return [f"{name}={valid}/{len(runs)}"] if valid < len(runs) else []


def _of_means(drops: Mapping[RunKey, Metric], means: Mapping[RunKey, Metric]) -> dict[RunKey, Metric]:
    """Valid where the run is; reasons and flags are those of the runs' own ratios."""
    return {key: drop._replace(value=means[key].value) for key, drop in drops.items()}


def _of_nauc(own, sac, *, statistic, floors):
    return statistic(metrics.nauc_task(own, sac, floors))


def _of_drop_task(own, steady, reference, *, floors):
    return nan_mean(metrics.drop_task(own, steady, floors, reference), axis=-1)


def _of_drop_family(own, steady, reference, *, floors):
    return metrics.drop_family(own, steady, floors, reference)


def _of_nauc_drop(own, steady, sac, *, floors):
    top, bottom = (stats.mean(metrics.nauc_task(x, sac, floors)) for x in (own, steady))
    return 1.0 - top / np.where(bottom == 0.0, np.nan, bottom)
