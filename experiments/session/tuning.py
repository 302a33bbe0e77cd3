"""Tuning: numbers of methods are chosen on the beginning of runs of some seeds and judged on whole runs of others."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aesjax.registry import listed
from aesjax.typed import require
from envs.timeline import EVEN, SHORTEST
from experiments.measure.catalog import CATALOG, Metric, catalogue, run_metrics
from experiments.measure.study import REFERENCE, STEADY, RecordedStudy, load_study
from experiments.session.results import Results, metric_named
from experiments.study.config import StudyConfig, configured, evaluations_until
from experiments.study.method import Method, find
from experiments.study.process import JUDGED, TRIALS
from experiments.study.program import Row, identity, label_of, rows_of
from experiments.study.text import parse_objects, parse_seeds, parse_shares, parse_sweep

if TYPE_CHECKING:
    import polars as pl


class Trial(NamedTuple):
    """One setting of a tuned method."""

    numbers: Mapping[str, float]  # by name, as in the axes
    method: Method


class Choice(NamedTuple):
    """The setting of a method that was chosen on a share of the run."""

    method: str  # in tables, without its numbers
    share: float
    chosen: str  # the setting's name in tables
    score: float  # mean over patterns of the mean over seeds
    second: str | None
    second_score: float
    edge: str  # names of chosen numbers at an end of their axis
    settings: int
    clipped: float  # share of the chosen setting's updates at a clip
    position: int  # of the method in the study
    setting: Method


@dataclass(frozen=True)
class TuningPlan:
    """A tuning: the study of trials, and the rule by which it chooses.

    Raises:
      ValueError: no method reads a number, seeds choose and judge, trials cannot have a value of the metric, or the
        options are invalid.
      UnknownNameError: an unknown metric.
    """

    study: Any  # an `experiments.Study`
    options: Any  # its `TuneOptions`

    def __post_init__(self) -> None:
        both = set(parse_seeds(self.study.seeds)) & set(parse_seeds(self.options.choosing))
        if both:
            raise ValueError(
                f"seeds {listed(map(str, sorted(both)))} would choose and judge; give other --seeds or other --choosing"
            )
        require(0.0 <= self.options.clipped <= 1.0, "--clipped", "a share from 0 to 1", self.options.clipped)
        require(bool(self.axes), "--numbers", "one or more axes such as kappa=0.01:10:7", self.options.numbers)
        if swept := parse_sweep(self.study.sweep):
            raise ValueError(
                f"--sweep varies {listed(swept)}; tuning tries the values of --numbers alone, so name it there"
            )
        reads = set().union(*(_readable(method) for method in self.methods))
        if unread := sorted(self.axes.keys() - reads):
            raise ValueError(f"--numbers: no method reads '{unread[0]}'; read are: {listed(sorted(reads))}")
        complete = configured(replace(self.trials, until=1.0))
        for share in self.shares:
            evaluations_until(share, complete.evaluations, "--shares")
        self._check_metric(complete)

    def _check_metric(self, config: StudyConfig) -> None:
        """Raise if the trials cannot have a value of the metric."""
        metric = self.metric
        patterns, text = config.patterns, f"--metric {self.options.metric}"
        where = f"the patterns of the trials are {listed(patterns)}; give other --choosing-patterns"
        if metric.under_drift and not set(patterns) - {STEADY}:
            raise ValueError(f"{text} needs a pattern with drift; {where}")
        if {"steady", "reference"} & {*metric.needs} and STEADY not in patterns:
            raise ValueError(f"{text} needs the pattern {STEADY}; {where}")
        known = config.patterns_known
        compared = [name for name in patterns if metric.comparable(name)]
        without = [name for name in compared if not (known[name].jumps and known[name].holds)]
        if "recovery" in metric.needs and without:
            raise ValueError(f"{text} has no value under the pattern {without[0]}; {where}")
        names = [row.name for row in rows_of(config)]
        if "reference" in metric.needs and REFERENCE not in names:
            raise ValueError(
                f"{text} needs runs of {REFERENCE}, and the trials are {listed(names)}; choose by another metric, such "
                "as return"
            )
        first = config.onset or 1.0 / config.segments * (1.0 if config.changes == EVEN else SHORTEST)
        begins = config.onset if metric.under_drift else 0.0
        late = metric.under_drift and any(known[name].jumps for name in compared)  # nominal before the first change
        if late or {"changes", "recovery"} & {*metric.needs}:
            begins = first
        if self.shares[0] <= begins:
            raise ValueError(
                f"{text} needs trials that see the drift change, which it does not in the first {100 * begins:.3g} % "
                f"of the run; --shares has {self.shares[0]:g}"
            )

    @cached_property
    def metric(self) -> Metric:
        """The metric that chooses."""
        return metric_named(self.options.metric, catalogue())

    @cached_property
    def axes(self) -> dict[str, tuple[float, ...]]:
        """Values of every tuned number by name."""
        return parse_sweep(self.options.numbers)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """Shares of the run on which settings are chosen, in ascending order."""
        return parse_shares(self.options.shares)

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        return parse_objects(self.study.methods)

    @cached_property
    def tuned(self) -> dict[int, list[Trial]]:
        """Position of a method in the study -> all of its settings; methods that read no number are left out."""
        proxy, settings = find("proxy", self.study.proxy), {}
        for position, method in enumerate(self.methods):
            names = [name for name in self.axes if name in _readable(method)]
            trials = []
            for values in itertools.product(*(self.axes[name] for name in names)):
                numbers = dict(zip(names, values, strict=True))
                plain = {_plain(name, method): value for name, value in numbers.items()}
                trials.append(Trial(numbers, method.varied(plain, proxy)))
            if names:
                settings[position] = trials
        return settings

    @property
    def trials(self) -> Any:
        """The study that chooses."""
        methods = [trial.method for trials in self.tuned.values() for trial in trials]
        patterns = self.options.choosing_patterns or self.study.patterns
        return replace(
            self.study, methods=methods, patterns=patterns, seeds=self.options.choosing, until=self.shares[-1]
        )

    def judged(self, choices: Sequence[Choice]) -> Any:
        """The study of the chosen settings, and of the methods without tuned numbers, on fresh seeds."""
        methods: list[Method] = []
        for position, method in enumerate(self.methods):
            chosen = [choice.setting for choice in choices if choice.position == position]
            for setting in chosen or [method]:
                if setting not in methods:  # of two shares, equal choices train once
                    methods.append(setting)
        return replace(self.study, methods=methods)

    def choose(self, trials: Results) -> list[Choice]:
        """The best setting of every tuned method on every share of the run.

        Raises:
          ValueError: no run of a method has a value of the metric.
        """
        recorded = {share: _beginning(trials, share / self.shares[-1]) for share in self.shares}
        choices = []
        for position, settings in self.tuned.items():
            names = _names(trials.config, settings)
            for share, study in recorded.items():
                scores = {name: _score(study, name, self.metric) for name in names}
                clipped = {name: _score(study, name, CATALOG["saturation"]) for name in names}
                choices.append(self._best(position, share, settings, names, scores, clipped))
        return choices

    def _best(
        self,
        position: int,
        share: float,
        settings: Sequence[Trial],
        names: Sequence[str],
        scores: Mapping[str, float],
        clipped: Mapping[str, float],
    ) -> Choice:
        sign, method = -1.0 if self.metric.lower_is_better else 1.0, self.methods[position]
        finished = [at for at, name in enumerate(names) if np.isfinite(scores[name])]
        if not finished:
            raise ValueError(f"no setting of {label_of(method)} has a value of {self.metric.name} with every seed")

        def rank(at: int) -> tuple[float, float]:
            """First those that are clipped little enough, then the least clipped ones."""
            return max(np.nan_to_num(clipped[names[at]]) - self.options.clipped, 0.0), -sign * scores[names[at]]

        order = sorted(finished, key=rank)
        best, others = order[0], [at for at in order if names[at] != names[order[0]]]
        chosen, second = settings[best].numbers, names[others[0]] if others else None
        axes = {name: self.axes[name] for name in chosen if len(self.axes[name]) > 1}
        edge = [name for name, values in axes.items() if chosen[name] in (min(values), max(values))]
        return Choice(
            label_of(method),
            share,
            names[best],
            scores[names[best]],
            second,
            scores[second] if second else float("nan"),
            ", ".join(edge),
            len(set(names)),
            float(np.nan_to_num(clipped[names[best]])),
            position,
            settings[best].method,
        )

    def lines(self, trials: Results, choices: Sequence[Choice]) -> list[str]:
        """The choices and their cost, one sentence each."""
        lines = []
        for choice in choices:
            text = f"{choice.method}, first {100 * choice.share:g} % of the run: {choice.chosen} of {choice.settings} "
            text += f"settings, {self.options.metric} {choice.score:.4g}"
            text += f"; second {choice.second}, {choice.second_score:.4g}" if choice.second else ""
            text += f"; at the edge of its axis: {choice.edge}, so extend it" if choice.edge else ""
            text += f"; {100 * choice.clipped:.0f} % of its updates at a clip" if choice.clipped > 0 else ""
            lines.append(text)
        runs, seconds = len(trials.manifest["runs"]), trials.manifest["wall_seconds"]
        whole = trials.config.whole
        lines.append(f"cost: {runs} runs of {trials.config.steps:,} of {whole:,} steps, {seconds:.0f} s")
        return lines


@dataclass(frozen=True)
class Tuning:
    """Chosen settings, the study that chose them and the study that judges them on fresh seeds."""

    plan: TuningPlan
    trials: Results
    results: Results
    chosen: Sequence[Choice]

    @property
    def choices(self) -> "pl.DataFrame":
        """A row per tuned method and share of the run.

        Columns: method, share, chosen and second (names in tables), score and second_score (of the chosen metric: mean
        over patterns of the mean over seeds), edge (chosen numbers at an end of their axis), settings (their count),
        clipped (share of the chosen setting's updates at a clip).
        """
        import polars as pl

        columns = Choice._fields[: Choice._fields.index("position")]
        return pl.DataFrame([choice[: len(columns)] for choice in self.chosen], columns, orient="row")

    def __repr__(self) -> str:
        return "\n".join(self.plan.lines(self.trials, self.chosen))


def tune(study: Any, options: Any, out: Path, **how: Any) -> Tuning:
    """Train the trials and the chosen settings into ``out``; what is finished is opened, the rest continued."""
    plan = TuningPlan(study, options)
    trials = plan.trials.run(out / TRIALS, **how)
    choices = plan.choose(trials)
    results = plan.judged(choices).run(out / JUDGED, facts={"tuning": plan.lines(trials, choices)}, **how)
    return Tuning(plan, trials, results, choices)


def common_setting(tunings: Sequence["Tuning | str | Path"], metric: str = "return") -> "pl.DataFrame":
    """One setting of every method for all tasks, and what it loses against a choice for each task.

    A score counts as a share of the gap between the worst and the best setting of its task. The common setting has
    the highest mean over tasks; its loss is one minus this mean, the method's sensitivity (Adkins et al.,
    arXiv 2412.07165), and in the worst task one minus its lowest score.

    Args:
      tunings: of the same methods and numbers on different tasks, or their folders.
      metric: by which settings are compared, over the complete trials.

    Returns:
      A row per method and setting: method, setting, score (mean over tasks), worst (lowest), tasks, common (whether it
      is the common setting), loss and worst_loss. The numbers of a setting with a diverged run are NaN.

    Raises:
      ValueError: fewer than two tasks, or a setting that one of them lacks.
    """
    import polars as pl

    trials = [given.trials if isinstance(given, Tuning) else Results.open(Path(given) / TRIALS) for given in tunings]
    tasks = {results.config.task: results for results in trials}
    require(len(tasks) > 1, "tunings", "tunings of two or more tasks", sorted(tasks))
    frames = []
    for task, results in tasks.items():
        row, study = results._metric(metric, ()), results._recorded
        sign = -1.0 if row.lower_is_better else 1.0
        labels = {setting.name: label_of(setting.method) for setting in rows_of(results.config)}
        scores = [sign * _score(study, name, row) for name in labels]
        frames.append(pl.DataFrame({"setting": [*labels], "method": [*labels.values()], "value": scores, "task": task}))
    frame = pl.concat(frames)
    lacking = frame.group_by("setting").agg(pl.col("task").n_unique()).filter(pl.col("task") < len(tasks))
    if not lacking.is_empty():
        raise ValueError(f"the setting {lacking['setting'][0]} was not tried on every task")
    value, of_task = pl.col("value"), ("task", "method")
    low, high = value.min().over(of_task), value.max().over(of_task)
    position = pl.when(high > low).then((value - low) / (high - low)).otherwise(1.0)
    frame = frame.with_columns(score=pl.when(value.is_nan()).then(value).otherwise(position))
    means = frame.group_by("method", "setting", maintain_order=True).agg(
        pl.col("score").mean(), worst=pl.col("score").nan_min(), tasks=pl.len()
    )
    best = pl.int_range(pl.len()).over("method") == pl.col("score").arg_max().over("method")  # one of equals
    common = best & pl.col("score").is_not_nan()
    return means.with_columns(common=common, loss=1 - pl.col("score"), worst_loss=1 - pl.col("worst"))


def _readable(method: Method) -> set[str]:
    """Names of a method's numbers: its own, and those of its schedule and carrier after the name of either."""
    schedule, carrier = method.in_force.factory, method.carrier
    named = {f"{schedule.name}.{option}" for option in schedule.options}
    return method.reads | named | {f"{carrier.name}.{option}" for option in carrier.hyper._fields}


def _plain(name: str, method: Method) -> str:
    """A number's name without that of its schedule or carrier."""
    part, _, option = name.rpartition(".")
    return option if part in (method.in_force.factory.name, method.carrier.name) else name


def _names(config: StudyConfig, settings: Sequence[Trial]) -> list[str]:
    """Names of settings in a study's tables; equal settings share one."""
    rows: dict[Any, Row] = {(row.carrier, identity(config, row.method)): row for row in rows_of(config)}
    return [rows[trial.method.carrier.name, identity(config, trial.method)].name for trial in settings]


def _beginning(results: Results, share: float) -> RecordedStudy:
    """The first ``share`` of all runs of a study."""
    import polars as pl

    config, recorded = results.config, results._recorded
    evaluations = round(share * config.evaluations)
    if evaluations == config.evaluations:
        return recorded
    steps = config.spacing * evaluations
    changes: dict[str, dict[str, dict[str, list[float]]]] = {config.task: {}}
    for key in recorded.runs:
        stated = [step for step in recorded.changes(key).tolist() if step < steps]
        changes[config.task].setdefault(key.pattern, {})[str(key.seed)] = stated
    short = replace(config, steps=steps, evaluations=evaluations, horizon=config.whole)
    curves = results.curves.filter(pl.col("step") <= steps)
    return load_study(curves, short.to_json(), {**results.manifest, "changes": changes})


def _score(study: RecordedStudy, method: str, metric: Metric) -> float:
    """Mean over patterns of the mean over seeds; NaN if a run has no value."""
    values: dict[str, list[float]] = {}
    for key in study.runs:
        if key.method == method and metric.comparable(key.pattern):
            values.setdefault(key.pattern, []).append(run_metrics(study, key, [metric])[metric.name].value)
    return float(np.mean([np.mean(of_pattern) for of_pattern in values.values()])) if values else float("nan")
