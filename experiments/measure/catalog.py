"""The catalogue of metrics: one row per metric of a run, which tables, comparisons, records and audits read."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from math import inf, isinf
from typing import Any

import numpy as np

from experiments.measure.curves import Value, auc, final_return, later_return, nan_mean
from experiments.measure.metrics import UNCLEAR, nauc_task
from experiments.measure.recovery import null_recovery, recovery, recovery_robust
from experiments.measure.runs import StudyRun
from experiments.measure.study import NAN, STEADY, RecordedStudy, RunKey

GROUP = "aesjax.metrics"  # entry points of installed packages
_LAST = 100
#: Place of a metric in verdicts: the main one, its replacement where it has no verdicts, a sentence, a table only.
VERDICTS = MAIN, FALLBACK, SENTENCE, TABLE = "main", "fallback", "sentence", "table"


@dataclass(frozen=True)
class Metric:
    """One metric of runs; the defaults are those of a custom metric, which is compared with the baseline and reported.

    Raises:
      ValueError: the name is no Python identifier, or a need or verdict is unknown.
    """

    name: str  # in frames
    of: Callable[[StudyRun], Any]  # valid run -> number, or (K,) numbers if ``per_change``; NaN without a value
    needs: tuple[str, ...] = ()  # some of "floor", "steady", "reference", "changes", "recovery"; else no value
    otherwise: str = "undefined"  # reason of a NaN
    logged: str = ""  # column of the curves without which the study does not have the metric
    per_change: bool = False  # columns ``name@1``, ``name@2``, ...
    lower_is_better: bool = False
    low: float = -inf  # bounds
    high: float | Callable[[float], float] = inf  # a function of the number of segments between changes of the drift
    under_drift: bool = False  # methods cannot differ without drift
    denominator: str = ""  # of a ratio, as in `StudyRun.is_clear`
    corrected: bool = False  # a ratio of returns less the floor
    ratios: Callable[..., np.ndarray] | None = None  # of mean returns, as `nauc_task`, if aggregates resample both
    order: int = _LAST  # position among comparisons with the baseline; 0: no comparisons
    versus: bool = False  # also compared with constants and controls
    gain: str = ""  # metric whose level without drift, above the floor, is the agent's gain in this unit
    verdict: str = SENTENCE  # of `VERDICTS`, or empty
    recorded: bool = False  # a column of the paper's record
    short: str = ""  # other name for `Results.compare`
    words: str = ""  # in reports; by default the name
    digits: int = 2  # of aggregates in tables
    difference_digits: int = 3
    percent: bool = False  # printed times 100

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"the name of a metric must be a Python identifier; got '{self.name[:60]}'")
        for kind, names, known in (("needs", self.needs, NEEDS), ("verdict", (self.verdict,), (*VERDICTS, ""))):
            if unknown := [name for name in names if name not in known]:
                text = f"{kind} of metric '{self.name}' has the unknown name '{unknown[0]}'"
                raise ValueError(f"{text}; allowed: {', '.join(filter(None, known))}")

    @property
    def title(self) -> str:
        return self.words or self.name

    @property
    def side(self) -> str:
        """The better direction in words."""
        return "lower" if self.lower_is_better else "higher"

    def bounds(self, segments: float, *, paired: bool = False) -> tuple[float, float]:
        """Smallest and largest value of an aggregate, or of a paired difference.

        Args:
          segments: of the horizon, of equal length; the drift changes between them. Infinite: it may change anywhere.
        """
        high = self.high(segments) if callable(self.high) else self.high
        return (self.low - high, high - self.low) if paired else (self.low, high)

    def comparable(self, pattern: str) -> bool:
        """Whether two methods can differ in the metric under a pattern, by its definition."""
        return pattern != STEADY or not self.under_drift

    def values(self, run: StudyRun) -> dict[str, Value]:
        """Column -> value of a run: one column, or one per change.

        Raises:
          ValueError: the metric's function failed, or returned no numbers.
        """
        names = [f"{self.name}@{i}" for i in range(1, len(run.changes) + 1)] if self.per_change else [self.name]
        # A broken run has no metric, even if its rows would give one.
        if reason := run.record.problem or next((why for need in self.needs if (why := run.lacking[need])), ""):
            return dict.fromkeys(names, Value(NAN, reason))
        try:
            result = self.of(run)
            values = [self._value(run, number) for number in (result if self.per_change else [result])]
            return dict(zip(names, values, strict=True))
        except Exception as error:
            _, task, method, pattern, seed = run.key
            text = f"metric '{self.name}' failed on {method}, {task}, {pattern}, seed {seed}"
            raise ValueError(f"{text}: {str(error)[:150]}") from error

    def _value(self, run: StudyRun, result: Any) -> Value:
        if isinstance(result, Value):
            value = result
        else:
            value = Value(float(result), "" if np.isfinite(result) else self.otherwise)
        if not self.denominator or value.reason or run.is_clear(self.denominator, corrected=self.corrected):
            return value
        return value._replace(flag=value.flag or UNCLEAR)


NEEDS = ("floor", "steady", "reference", "changes", "recovery")


def _sum_of_changes(segments: float) -> float:
    """Largest sum of times after the changes, as a share of the time with drift."""
    return 1.0 if isinf(segments) else (segments - 1) / segments


def _mean_of(log: str) -> Callable[[StudyRun], float]:
    return lambda run: float(nan_mean(run.log(log)))


def _return_of(log: str, *, before: bool = False) -> Callable[[StudyRun], float]:
    """Mean of a logged return from the onset of the drift on."""
    return lambda run: float(nan_mean(run.log_of_drift(log, before=before)))


def _sum_of(log: str) -> Callable[[StudyRun], float]:
    return lambda run: float(np.nansum(run.log(log)))


_row = partial(Metric, order=0, verdict="")
_share = partial(_row, low=0.0, high=1.0, digits=0, percent=True)
_time = partial(Metric, low=0.0, high=_sum_of_changes, digits=1, percent=True, lower_is_better=True, verdict="")
_null = partial(_time, order=0)
_percent = partial(_row, digits=1, percent=True, recorded=True)
_return = partial(Metric, difference_digits=2, gain="mean_return")
_ROBUST, _VERSUS = ("recovery", "floor"), ("recovery", "floor", "steady")
_LEVEL, _STEADY_LEVEL = "level_not_above_floor", "steady_not_above_floor"

_ROWS = (
    _row("auc", lambda run: auc(run.curve)),
    _return("mean_return", lambda run: run.mean, order=1, versus=True, verdict=FALLBACK, recorded=True,
            short="return", words="mean return"),
    _return("final_return", lambda run: final_return(run.curve), order=3, verdict=TABLE, recorded=True,
            words="final return"),
    Metric("nauc_task", lambda run: run.nauc(corrected=False), ("reference",), denominator="reference",
           ratios=nauc_task, order=4, verdict="", recorded=True, words="raw nAUC"),
    Metric("drop_run", lambda run: run.drop(corrected=False), ("steady",), denominator="own", order=6,
           lower_is_better=True, under_drift=True, verdict="", recorded=True),
    Metric("nauc_task_safe", lambda run: run.nauc(corrected=True), ("reference", "floor"), denominator="reference",
           corrected=True, ratios=nauc_task, order=5, versus=True, verdict=MAIN, recorded=True, short="nauc",
           gain="nauc_task_safe", words="floor-corrected nAUC"),
    Metric("drop_run_safe", lambda run: run.drop(corrected=True), ("steady", "floor"), denominator="own",
           corrected=True, order=7, lower_is_better=True, under_drift=True, recorded=True, short="drop_ratio",
           words="floor-corrected DropRatio"),
    Metric("loss_rate", lambda run: run.steady_mean[0] - run.mean, ("steady",), order=8, lower_is_better=True,
           under_drift=True, verdict=""),
    _return("later_return", lambda run: later_return(run.curve, run.changes), ("changes",), "", order=2, versus=True,
            under_drift=True, words="mean return after the first change"),
    _return("online_return", _return_of("online_return", before=True), (), "not_logged", "online_return", order=2,
            versus=True, recorded=True, words="online return"),
    _time("recovery", lambda run: run.raw.total, ("recovery",), order=9, recorded=True, words="raw recovery"),
    _share("recovered_fraction", lambda run: run.raw.recovered_fraction, ("recovery",)),
    _null("recovery_null", lambda run: recovery(run.steady, run.changes).total, ("recovery", "steady"), recorded=True),
    _row("recovery_null_formula", lambda run: null_recovery(run.curve, run.changes), ("recovery",)),
    _share("recovered", lambda run: run.raw.recovered, ("recovery",), per_change=True),
    _time("recovery_robust", lambda run: run.robust.total, _ROBUST, _LEVEL, order=10, verdict=SENTENCE, recorded=True,
          short="recovery", words="robust recovery"),
    _share("recovery_robust_fraction", lambda run: run.robust.recovered_fraction, _ROBUST, _LEVEL),
    _null("recovery_robust_null", lambda run: recovery_robust(run.steady, run.changes, run.floor).total, _VERSUS,
          _LEVEL),
    _row("n_not_applicable", lambda run: run.robust.n_not_applicable, _ROBUST, low=0.0,
         high=lambda segments: segments - 1.0),
    _row("immediate_drop", lambda run: nan_mean(run.companions.immediate_drop), _ROBUST, _LEVEL, denominator="level",
         corrected=True),
    Metric("deficit_area", lambda run: nan_mean(run.companions.deficit_area), _ROBUST, _LEVEL, denominator="level",
           corrected=True, low=0.0, order=12, lower_is_better=True, digits=3, words="shortfall after a change"),
    _share("no_drop_fraction", lambda run: nan_mean(run.companions.no_drop), _ROBUST, _LEVEL),
    _share("robust_recovered", lambda run: np.where(run.robust.applicable, run.robust.recovered, NAN), _ROBUST, _LEVEL,
           per_change=True),
    _row("level", lambda run: run.robust.level, _ROBUST, _LEVEL, per_change=True),
    _time("recovery_vs_steady", lambda run: run.versus_steady.total, _VERSUS, _STEADY_LEVEL, order=11, recorded=True),
    _share("recovery_vs_steady_fraction", lambda run: run.versus_steady.recovered_fraction, _VERSUS, _STEADY_LEVEL),
    _percent("saturation", lambda run: run.saturation("at_min", "at_max"), low=0.0, high=1.0, recorded=False),
    _percent("saturation_min", lambda run: run.saturation("at_min"), low=0.0, high=1.0),
    _percent("saturation_max", lambda run: run.saturation("at_max"), low=0.0, high=1.0),
    _percent("responsiveness", StudyRun.responsiveness),
    _row("mean_entropy_weight", _mean_of("entropy_weight"), (), "not_logged", low=0.0, recorded=True, digits=4),
    _row("mean_train_return", _return_of("train_return", before=True), (), "not_logged"),
    _row("mean_response_ratio", _mean_of("response_ratio"), (), "not_logged", "response_ratio", digits=3),
    _row("mean_window_share", _mean_of("window_share"), (), "not_logged", "window_share", low=0.0, high=1.0, digits=3),
    _row("mean_rate_factor", _mean_of("rate_factor"), (), "not_logged", "rate_factor", low=0.0, digits=3),
    *(
        _row(f"mean_return_{where}", _return_of(f"return_{where}"), (), "not_logged", f"return_{where}")
        for where in ("nominal", "previous", "next", "low", "high")
    ),
    # Averaged like the other conditions, unlike `mean_return`.
    _row("mean_return_in_force", _return_of("return_mean"), (), "not_logged", "return_nominal"),
    _row("refreshes", _sum_of("refreshes"), logged="refreshes", low=0.0, digits=1),
    _row("gradient_steps", _sum_of("gradient_steps"), logged="gradient_steps", low=0.0, digits=0),
)  # fmt: skip
CATALOG = {row.name: row for row in _ROWS}


def catalogue(custom: Iterable[Metric] = ()) -> dict[str, Metric]:
    """Metrics by name: built-in ones, those of installed packages (entry points ``aesjax.metrics``), and ``custom``.

    Raises:
      ValueError: a metric cannot be loaded, is no `Metric`, or has the name of another one.
    """
    rows, names = dict(CATALOG), {*CATALOG, *(row.short for row in _ROWS)} - {""}
    for metric in dict.fromkeys([*map(_loaded, metadata.entry_points(group=GROUP)), *custom]):
        if not isinstance(metric, Metric):
            raise ValueError(f"a custom metric must be of type Metric; got {type(metric).__name__}")
        for name in filter(None, (metric.name, metric.short)):
            if name in names:
                raise ValueError(f"there are two metrics with the name '{name}'; choose another name")
            names.add(name)
        rows[metric.name] = metric
    return rows


def metric_at(place: str) -> Metric:
    """The metric at ``module:name``."""
    if os.getcwd() not in sys.path:  # not on the path of the console script
        sys.path.append(os.getcwd())
    return _loaded(metadata.EntryPoint(place, place, GROUP))


def _loaded(point: metadata.EntryPoint) -> Metric:
    try:
        return point.load()
    except Exception as error:
        raise ValueError(f"metric '{point.name}' cannot be loaded from {point.value}: {str(error)[:120]}") from error


def row_of(rows: Mapping[str, Metric], column: str) -> Metric:
    """Row of a column of the frame, without kind, number of a change, or opponent; an aggregate has default digits."""
    name = column.rpartition("@")[0] or column
    return rows.get(name) or _row(name, lambda run: NAN)


def ordered(rows: Mapping[str, Metric]) -> list[Metric]:
    """Metrics that are compared with the baseline, in the order of the frame."""
    return sorted((row for row in rows.values() if row.order), key=lambda row: row.order)


def run_metrics(study: RecordedStudy, key: RunKey, rows: Iterable[Metric]) -> dict[str, Value]:
    """Metrics of one run by column; a metric without a value contains its reason."""
    run, values = StudyRun(study, key), {}
    for row in rows:
        if not row.logged or row.logged in run.record.logs:
            values |= row.values(run)
    return values
