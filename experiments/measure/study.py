"""A study read from its files and split into runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.measure.curves import Curve, IncompleteRunError

if TYPE_CHECKING:
    import polars as pl

    from experiments.study.method import Method

STEADY = "steady"  # the pattern without drift, the reference of nAUC and DropRatio
REFERENCE = "SAC"  # the paper's normaliser: SAC with automatic temperature
LOGGED = ("online_return", "train_return", "entropy_weight", "weight_raw", "at_min", "at_max")
#: Columns of some studies whose means over time are metrics.
OPTIONAL = (
    *("response_ratio", "window_share", "rate_factor"),
    *(f"return_{where}" for where in ("nominal", "previous", "next", "low", "high")),
)
SUMMED = ("refreshes", "gradient_steps")  # columns of some studies whose sums are metrics
MERGED = "merged"  # field of a merged config with the original ones
LOGS = "logs"  # family of runs of other trainers, and field of their config
OFF_GRID = "off_grid"  # problem of a run that lacks evaluations of the task's other runs
NAN = float("nan")


class PatternFacts(NamedTuple):
    """Facts of a drift pattern on every task; an unknown pattern is described as gradual."""

    jumps: bool = False  # its value jumps at its change points
    recovery: bool = False  # its value is constant between jumps, so that recovery times are defined
    summary: str = ""  # description in reports


def describe(manifest: Mapping[str, Any], run: Iterable[str] | None = None) -> dict[str, PatternFacts]:
    """Facts of drift patterns: steady, then the manifest's in its order, then patterns without a description.

    Args:
      manifest: ``patterns``: name -> the fields of `PatternFacts`.
      run: names of the patterns that were run; None: the described patterns.
    """
    known = {name: PatternFacts(**entry) for name, entry in (manifest.get("patterns") or {}).items()}
    names = dict.fromkeys(known if run is None else run)
    order = [name for name in (STEADY, *known, *names) if name in names]
    return {name: known.get(name, PatternFacts()) for name in order}


class RunKey(NamedTuple):
    """Identity of a run."""

    family: str
    task: str
    method: str
    pattern: str
    seed: int


class LoggedMethod(NamedTuple):
    """Stands for the `Method` of a log, of which only the name is known; all have one carrier and baseline."""

    carrier: Any = SimpleNamespace(label="")
    values: Mapping[str, Any] = {}
    hyper: Mapping[str, float] = {}
    adaptations: tuple = ()
    control: None = None

    def follows(self, schedule: str) -> bool:
        return False


@dataclass(frozen=True)
class RecordedRun:
    """One run; ``curve`` is None exactly if ``problem`` gives a reason."""

    key: RunKey
    curve: Curve | None
    problem: str  # "", "diverged", "incomplete", "missing" or `OFF_GRID`
    steps: np.ndarray  # (m,) environment steps
    logs: dict[str, np.ndarray]  # column -> (m,)


@dataclass(frozen=True)
class RecordedStudy:
    """All runs of a study, with the facts of tasks and patterns that metrics need."""

    runs: dict[RunKey, RecordedRun]
    horizons: dict[str, float]  # task -> T
    floors: dict[str, float]  # task -> mean return of the random policy; absent if not measured
    segments: int
    patterns: dict[str, PatternFacts]  # the patterns that were run, in report order
    definitions: "dict[str, Method]"  # method -> its definition, without the study's numbers; labels are for printing
    baselines: frozenset[str]  # methods that are a carrier alone, under one or several settings

    stated: Mapping[str, Any]  # task -> pattern -> seed -> environment steps of the changes, unless at segments' starts

    def changes(self, key: RunKey) -> np.ndarray:
        """(K,) environment steps at which the drift of a run changes; empty if its pattern does not state them."""
        if (of_seeds := self.stated.get(key.task, {}).get(key.pattern)) is None:
            # Multiply first: exact if the horizon is a multiple of segments.
            return np.arange(1, self.segments) * self.horizons[key.task] / self.segments
        return np.array(of_seeds.get(str(key.seed), ()), np.float64)

    def segments_of(self, pattern: str) -> float:
        """Number of segments between which the drift changes; infinite if its pattern states its changes."""
        return np.inf if any(pattern in patterns for patterns in self.stated.values()) else self.segments

    def tasks(self, family: str) -> list[str]:
        """The tasks of a family, sorted."""
        return sorted({k.task for k in self.runs if k.family == family})

    def methods(self) -> list[str]:
        """Methods in order of first appearance."""
        return list(dict.fromkeys(k.method for k in self.runs))

    def seeds(self) -> list[int]:
        return sorted({k.seed for k in self.runs})

    def carrier(self, method: str) -> str:
        """Label of a method's carrier."""
        return self.definitions[method].carrier.label

    def carriers(self) -> dict[str, str]:
        """Label of every method's carrier."""
        return {method: self.carrier(method) for method in self.methods()}

    def baseline(self, method: str) -> str | None:
        """Baseline of a method's carrier with most of the method's numbers; None without one."""
        own = self.definitions[method]
        fitting = []
        for name in self.baselines - {method}:
            other = self.definitions[name]
            if other.carrier == own.carrier and other.values.items() <= own.values.items():
                fitting.append((len(other.values), name))
        return max(fitting)[1] if fitting else None


def _onset(config: Mapping[str, Any], task: str) -> float:
    """Environment step at which the drift of a task's runs begins."""
    studies = [study for study in originals(config) if study.get("task") == task]
    onsets = (study.get("onset", 0.0) * (study.get("horizon") or study["steps"]) for study in studies)
    return next(onsets, 0.0)


def _horizon(config: Mapping[str, Any], task: str) -> float:
    steps = config["steps"]
    return float(steps[task] if isinstance(steps, Mapping) else steps)


def load_study(curves: "pl.DataFrame", config: Mapping[str, Any], manifest: Mapping[str, Any]) -> RecordedStudy:
    """Split the rows of ``curves.parquet`` into runs and determine the status of each.

    Runs named by the manifest without any row are "missing"; runs shorter than the horizon are "incomplete"; runs
    whose evaluations are not those of the task's grid (`_grid`) are "off_grid".

    Args:
      curves: one row per evaluation.
      config: ``steps`` (of all tasks or by task), ``segments``, ``onset``, ``methods`` (their definitions).
      manifest: ``runs`` (with ``status``), ``floors`` (task to return of the random policy), ``patterns`` and
        ``changes`` (environment steps by task, pattern and seed).

    Raises:
      ValueError: a required column or config field is missing, a run is stored twice, or the configuration is not
        of a study.
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
    columns = (*LOGGED, *OPTIONAL, *SUMMED, "return_mean")
    times = {task: (_horizon(config, task), _onset(config, task)) for task in curves["task"].unique()}
    parts = curves.partition_by(list(RunKey._fields), as_dict=True, maintain_order=True)
    for key, rows in ((RunKey(*name), rows.sort("step")) for name, rows in parts.items()):
        steps = rows["step"].to_numpy().astype(np.float64)
        logs = {c: rows[c].cast(float).fill_null(NAN).to_numpy() for c in columns if c in rows.columns}
        curve, problem = _curve(key, steps, logs["return_mean"], times[key.task], status.get(key, ""))
        runs[key] = RecordedRun(key, curve, problem, steps, logs)
    for key in [key for key in status if key not in runs]:
        problem = "diverged" if status[key] == "diverged" else "missing"
        runs[key] = RecordedRun(key, None, problem, np.zeros(0), {})
    tasks = {k.task for k in runs}
    grids = {task: _grid(task, runs) for task in tasks}
    for key, run in runs.items():
        if run.curve is not None and not np.array_equal(run.steps, grids[key.task]):
            runs[key] = replace(run, curve=None, problem=OFF_GRID)
    names = {key.method for key in runs}
    logged: Any = (dict.fromkeys(names, LoggedMethod()), {config[LOGS]["baseline"]}) if LOGS in config else None
    definitions, baselines = logged or _definitions(config)
    if undefined := sorted(names - definitions.keys()):
        raise ValueError(f"the config does not define the method '{undefined[0]}' of the curves")
    floors = {t: float(b) for t, b in manifest.get("floors", {}).items() if b is not None and np.isfinite(b)}
    return RecordedStudy(
        runs,
        {task: _horizon(config, task) for task in tasks},
        floors,
        int(config.get("segments", 5)),
        describe(manifest, (k.pattern for k in runs)),
        definitions,
        frozenset(baselines & names),
        manifest.get("changes") or {},
    )


def originals(config: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The configurations of which a merged one consists; of another one itself."""
    return config.get(MERGED) or [config]


def _definitions(config: Mapping[str, Any]) -> "tuple[dict[str, Method], set[str]]":
    """Method -> definition, and the names of baselines, of one or several merged configurations."""
    from experiments.study.config import config_from_json
    from experiments.study.program import plain, rows_of

    definitions: dict[str, Method] = {}
    baselines: set[str] = set()
    for data in originals(config):
        study = config_from_json(data)
        alone = replace(study, methods=tuple(method for method in study.methods if method.is_baseline))
        for row in rows_of(study):
            definitions.setdefault(row.name, plain(study, row.method))
        baselines |= {row.name for row in rows_of(alone)}
    return definitions, baselines


def axes_of(config: Mapping[str, Any]) -> list[str]:
    """Swept numbers of one or several merged configurations."""
    return list(dict.fromkeys(name for each in originals(config) for name in each.get("sweep", {})))


def with_numbers(frame: "pl.DataFrame", config: Mapping[str, Any]) -> "pl.DataFrame":
    """``frame`` with a column per axis of its study's sweep: the number of each row's method, null if it reads none."""
    import polars as pl

    from experiments.study.config import config_from_json
    from experiments.study.program import numbers_of, rows_of

    if not (axes := axes_of(config)):
        return frame
    configs = [config_from_json(each) for each in originals(config)]
    rows = []
    for study in configs:
        rows += [(row.name, *numbers_of(study, row.method, axes).values()) for row in rows_of(study)]
    table = pl.DataFrame(rows, {"method": pl.String, **dict.fromkeys(axes, pl.Float64)}, orient="row")
    return frame.join(table.unique("method", keep="first"), on="method", how="left", maintain_order="left")


def _grid(task: str, runs: Mapping[RunKey, RecordedRun]) -> np.ndarray:
    """(m,) evaluation steps of most runs of a task; the finer of two equally frequent grids."""
    counts = Counter(tuple(run.steps) for key, run in runs.items() if key.task == task and run.curve is not None)
    return np.array(max(counts, key=lambda steps: (counts[steps], len(steps)), default=()))


def _curve(key, steps, returns, times, status) -> tuple[Curve | None, str]:
    if status == "diverged" or not np.all(np.isfinite(returns)):
        return None, "diverged"
    try:
        return Curve(steps, returns, *times), ""
    except IncompleteRunError:
        return None, "incomplete"
    except ValueError as error:
        raise ValueError(f"{key.method} on {key.task}, pattern {key.pattern}, seed {key.seed}: {error}") from error
