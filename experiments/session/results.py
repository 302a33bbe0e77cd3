"""`Results`: a finished study as data frames, comparisons, pictures and policies."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from aesjax.registry import UnknownNameError, listed, lookup
from aesjax.typed import require
from experiments.measure.catalog import FALLBACK, MAIN, Metric, catalogue, ordered, run_metrics
from experiments.measure.comparisons import ACTED, Cells, detectable, draw_interval, paired, scopes
from experiments.measure.remarks import remarks
from experiments.measure.stats import holm
from experiments.measure.study import LOGS, MERGED, STEADY, RecordedStudy, axes_of, load_study, originals, with_numbers
from experiments.measure.summary import summarise
from experiments.session.policy import Policy
from experiments.study import store
from experiments.study.codec import Objects
from experiments.study.config import StudyConfig, at_hand, configured, read_config
from experiments.study.folder import StudyFolder, check_same
from experiments.study.method import Method
from experiments.study.process import check_numerics
from experiments.study.program import Plan, Row, label_of, plain
from experiments.study.store import Results as Files
from experiments.study.store import open_results
from experiments.study.text import parse_method_with_carrier

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

_LABELS = ("family", "task", "method", "carrier", "schedule", "variant", "pattern", "seed")


def short_names(catalog: Mapping[str, Metric]) -> dict[str, Metric]:
    """Metrics of a catalogue by their short names."""
    return {row.short: row for row in catalog.values() if row.short}


def metric_named(name: str, catalog: Mapping[str, Metric]) -> Metric:
    """The compared metric of a catalogue with this name or short name.

    Raises:
      UnknownNameError: no such metric.
    """
    return lookup("metric", {row.name: row for row in ordered(catalog)} | short_names(catalog), name)


class Results:
    """A finished study; a notebook displays its verdicts.

    Frames are `polars.DataFrame`s: ``curves`` has a row per run and evaluation, ``streams`` a row per run with the
    recorded proxies as lists, ``metrics`` a row per metric of a run, of a method and of a comparison.
    """

    def __init__(
        self,
        files: Files,
        plan: Plan | None = None,
        objects: Objects = MappingProxyType({}),
        joined: Sequence["Results"] = (),
        metrics: Iterable[Metric] = (),
    ):
        if plan is not None:
            check_same(files.directory, files.config, plan.config)
        self._files, self._known, self._objects = files, plan, dict(objects)
        self._joined, self._custom = joined, tuple(metrics)

    @classmethod
    def open(
        cls, directory: str | Path, study: Any = None, *, metrics: Iterable[Metric] = (), **objects: Any
    ) -> "Results":
        """The finished study in a folder; every file is checked against its checksum.

        Policies and replays need the custom objects of the study, which a folder does not hold.

        Args:
          study: the `experiments.Study` that was trained, with its objects.
          objects: or only some of them: ``task``, ``methods``, ``patterns`` and ``proxy`` as in `Study`, ``carriers``.
          metrics: custom metrics for ``metrics``, `compare`, `plot`, `report` and verdicts.

        Raises:
          ValueError: no study, an unfinished or damaged study, or not ``study``.
        """
        files = open_results(Path(directory).expanduser())
        if study is not None:
            return cls(files, Plan(configured(study)), metrics=metrics)
        return cls(files, objects=at_hand(**objects), metrics=metrics)

    @classmethod
    def join(cls, studies: Sequence["Results | str | Path"]) -> "Results":
        """Several finished studies as one, for frames, `compare` and `plot`: results or folders.

        A run with equal numbers in several studies, such as a common baseline, is used once.

        Raises:
          ValueError: studies that cannot be compared, because another option than methods, patterns or seeds
            differs, or because they have different numbers of a run.
        """
        from experiments.report.merge import join_studies

        given = [study if isinstance(study, Results) else cls.open(study) for study in studies]
        require(len(given) > 0, "studies", "one or more results or folders", studies)
        custom = dict.fromkeys(metric for results in given for metric in results._custom)
        joined = [each for results in given for each in results._joined or (results,)]
        return cls(join_studies([results._files for results in joined]), joined=joined, metrics=custom)

    @property
    def directory(self) -> Path:
        if self._files.frames:
            raise ValueError("results of joined studies or of logs have no folder; use the Results of one study")
        return self._files.directory

    @cached_property
    def _plans(self) -> list[Plan]:
        """Plans of the study, or of all joined ones; of an opened folder objects are those at hand, and unchecked."""
        if self._joined:
            return [plan for results in self._joined for plan in results._plans]
        if self._known is not None:
            return [self._known]
        return [Plan(read_config(self.directory, each, self._objects)) for each in originals(self._files.config)]

    @property
    def _plan(self) -> Plan:
        if len(self._plans) > 1:
            raise ValueError(
                f"results of {len(self._plans)} joined studies have no single configuration; open one study"
            )
        return self._plans[0]

    @property
    def config(self) -> StudyConfig:
        """The complete configuration."""
        return self._plan.config

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Versions, commit, device, wall time, and the status of every run."""
        return self._files.manifest

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in table order."""
        return self._recorded.methods()

    @property
    def diverged(self) -> list[tuple[str, str, int]]:
        """Method, pattern and seed of the runs that diverged."""
        return sorted(self._files.runs("diverged"))

    @cached_property
    def curves(self) -> "pl.DataFrame":
        """One row per run and evaluation; each axis of a sweep is a column with the method's number."""
        return with_numbers(self._files.rows(store.CURVES), self._files.config)

    @cached_property
    def streams(self) -> "pl.DataFrame":
        """One row per run, its recorded proxies as lists."""
        if not self._joined:
            return self._files.rows(store.STREAMS)
        import polars as pl

        rows = pl.concat([results.streams for results in self._joined], how="diagonal")
        return rows.unique(["task", "method", "pattern", "seed"], keep="first", maintain_order=True)

    @cached_property
    def metrics(self) -> "pl.DataFrame":
        """All metrics with intervals, as `docs/metrics.md` and `docs/statistics.md` define them."""
        return summarise(self.curves, self._files.config, self.manifest, custom=self._custom)

    @cached_property
    def _recorded(self) -> RecordedStudy:
        return load_study(self.curves, self._files.config, self.manifest)

    @cached_property
    def _catalog(self) -> dict[str, Metric]:
        return catalogue(self._custom)

    @property
    def _short(self) -> dict[str, Metric]:
        """Metrics by their short names."""
        return short_names(self._catalog)

    def _named(self, method: Method | str) -> str:
        """Name of a method of the study; ValueError if several settings match, UnknownNameError if none does."""
        settings = self._settings(method)
        if len(settings) > 1:
            raise ValueError(f"'{method}' has several settings in this study; name one of {listed(settings)}")
        return settings[0]

    def _settings(self, method: Method | str) -> list[str]:
        """Names of the settings of a method of the study; UnknownNameError if it has none."""
        present = self.methods
        if LOGS in self._files.config:
            return [lookup("method of these logs", {name: name for name in present}, str(method))]
        rows = [(config, row) for config, row in self._rows() if row.name in present]
        variants = {row.name: row.variant for _, row in rows}
        if isinstance(method, str) and method not in variants:
            with suppress(UnknownNameError):  # else a printed name
                method = parse_method_with_carrier(method)
        if isinstance(method, Method):
            ours = [(config, row) for config, row in rows if row.method.carrier == method.carrier]
            equal = [row.name for config, row in ours if plain(config, row.method) == plain(config, method)]
            method = equal[0] if equal else label_of(method)
        same = [name for name, variant in variants.items() if name.removesuffix(f"[{variant}]") == method]
        settings = [method] if method in variants else same
        return settings or [lookup("method of this study", dict.fromkeys(variants, method), method)]

    def _rows(self) -> Iterator[tuple[StudyConfig, Row]]:
        """Rows of the study, or of all joined studies, with their configuration."""
        for plan in self._plans:
            for row in plan.rows:
                yield plan.config, row

    def compare(
        self,
        method: Method | str,
        opponent: Method | str,
        metric: str | Metric | None = None,
        patterns: str | Sequence[str] | None = None,
    ) -> "pl.DataFrame":
        """Paired differences of two methods at equal seeds, a row per pattern; of joined families a row per family too.

        Columns: family (if there are several), metric, pattern, pairs, difference (method minus opponent), low and high
        (95 % interval: Student's t below ten pairs, else bootstrap), p (paired t test), p_holm (over all tests),
        detectable (smallest difference that is detected with probability 0.8), detectable_share (of the agent's gain
        over random actions without drift; NaN in other units), and outcome, of
        `experiments.measure.comparisons.outcome_of`. A ratio by a denominator that is not clearly positive has the
        outcome null. Neither such a ratio nor a row with fewer than five seeds is a test of Holm's correction.

        Args:
          method, opponent: a `Method`, a text such as "sac+aes", or the name in tables: "SAC+AES[kappa=0.1]", where a
            sweep has several settings, else "SAC+AES".
          metric: "nauc", "drop_ratio", "recovery", "return", a name of `docs/metrics.md`, or a custom `Metric`; by
            default "nauc" if it has verdicts, else "return".
          patterns: by default all.

        Raises:
          UnknownNameError, ValueError: an unknown method or pattern, or a metric without comparisons or pairs.
        """
        import polars as pl

        study, method, opponent = self._recorded, self._named(method), self._named(opponent)
        row = metric if isinstance(metric, Metric) else self._metric(metric, (method, opponent))
        present = list(dict.fromkeys(key.pattern for key in study.runs))
        patterns = [patterns] if isinstance(patterns, str) else patterns
        for pattern in patterns or ():
            lookup("pattern of this study", dict.fromkeys(present), pattern)
        known = self._catalog | {row.name: row}
        needed = [lookup("metric", known, name) for name in dict.fromkeys((row.name, *ACTED, row.gain)) if name]
        cells: Cells = {metric.name: {} for metric in needed}
        for key in study.runs:
            if key.method in {method, opponent, study.baseline(method)}:
                for name, value in run_metrics(study, key, needed).items():
                    cells[name][key] = value
        families = [scope for scope in scopes(study) if scope.task is None]
        draw = partial(draw_interval, seed=0, replicates=10_000)
        label = metric if isinstance(metric, str) else row.short or row.name
        compared, pairs = [], []
        for scope, pattern in itertools.product(families, filter(row.comparable, patterns or present)):
            if len(families) == 1 or scope.keys(study, method, pattern):
                pair = paired(study, cells, scope, method, opponent, pattern, row, draw)
                compared.append((scope.family, label, pattern, pair.pairs, *pair.interval, pair.p))
                pairs.append(pair)
        if not any(pair.pairs for pair in pairs):
            reference = row.denominator == "reference"
            hint = "; nAUC needs runs of SAC on the pattern steady, metric='return' does not" if reference else ""
            raise ValueError(f"no pairs of runs of {method} and {opponent} have a value of {label!r}{hint}")
        adjusted = holm([pair.p if pair.is_test else np.nan for pair in pairs])
        rows = []
        for pair, p, first in zip(pairs, adjusted, compared, strict=True):
            smallest = detectable(pair.by_seed, int(np.isfinite(adjusted).sum()))
            outcome = None if pair.flag else pair.outcome(p, lower_is_better=row.lower_is_better)
            rows.append((*first, p, smallest, smallest / pair.gain, outcome))
        columns = ("difference", "low", "high", "p", "p_holm", "detectable", "detectable_share")
        labels = {"family": str, "metric": str, "pattern": str, "pairs": int}
        frame = pl.DataFrame(rows, labels | dict.fromkeys(columns, float) | {"outcome": str}, orient="row")
        return frame if len(families) > 1 else frame.drop("family")

    def _metric(self, name: str | None, methods: Sequence[str]) -> Metric:
        """The compared metric of a name; without one the first main metric with verdicts for these methods."""
        if name is not None:
            return metric_named(name, self._catalog)
        rows = ordered(self._catalog)
        study, main = self._recorded, next(row for row in rows if row.verdict == MAIN)
        scores = [run_metrics(study, key, [main])[main.name] for key in study.runs if key.method in methods]
        flags = [score.flag for score in scores if np.isfinite(score.value)]
        clear = flags and not any(flags)
        return main if clear else next(row for row in rows if row.verdict == FALLBACK)

    def plot(
        self,
        column: str = "return_mean",
        pattern: str | None = None,
        methods: Method | str | Sequence[Method | str] | None = None,
        against: str | None = None,
        task: str | None = None,
    ) -> "Figure":
        """Mean of a column of ``curves`` over seeds with its range, and dashed lines where the drift changes.

        Seeds that diverged or stopped early are excluded, as in the report, unless a method has no others.

        Args:
          column: "return_mean", "entropy_weight", "proxy" or another column of ``curves``; with ``against`` a metric of
            runs, "return" (the mean from the onset of the drift on) or "final_return".
          pattern: by default the first with drift; with ``against`` all.
          methods: with or without their settings, as in `compare`; by default all.
          against: an axis of the sweep. The metric is drawn against this number, with its 95 % interval, one line per
            method and other settings; a method without the number is a horizontal line.
          task: one of the tasks of joined studies.

        Raises:
          UnknownNameError: an unknown column, pattern, method, axis or task.
          ValueError: several tasks, and none is given.
        """
        import polars as pl

        from experiments.report.draw import sketch, sketch_sweep

        tasks = list(dict.fromkeys(self.curves["task"]))
        if task is None and len(tasks) > 1:
            raise ValueError(f"a plot has one task, and these results have {listed(tasks)}; give one of them as task")
        task = lookup("task of these results", dict(zip(tasks, tasks, strict=True)), task or tasks[0])
        study, curves = self._recorded, self.curves.filter(task=task)
        present = list(dict.fromkeys(curves["pattern"]))
        if against is not None:
            lookup("axis of this study's sweep", dict.fromkeys(axes_of(self._files.config)), against)
            short = self._short | {"return_mean": self._short["return"]}
            name = short[column].name if column in short else column
            rows = self.metrics.filter(level="method", task=task)
            lookup("metric", dict.fromkeys(rows["metric"]), name)
            lookup("pattern of this study", dict.fromkeys(present), pattern or present[0])
            wanted = [methods] if isinstance(methods, Method | str) else methods or self.methods
            settings = [setting for method in wanted for setting in self._settings(method)]
            rows = rows.filter(
                pl.col("method").is_in(settings),
                pl.col("pattern").is_in([pattern] if pattern else present),
                metric=name,
            )
            return sketch_sweep(study, self._files.config, rows, against, name)
        chosen: str = pattern or next((name for name in present if name != STEADY), present[0])
        lookup("pattern of this study", dict.fromkeys(present), chosen)
        numbers = [name for name in curves.columns if curves[name].dtype.is_numeric()]
        lookup("numeric column of curves", dict.fromkeys(numbers), column)
        methods = [methods] if isinstance(methods, Method | str) else methods
        shown = [self._named(one) for one in methods or study.methods()]
        return sketch(study, curves.filter(pattern=chosen), column, chosen, shown)

    def profiles(self, *methods: Method | str) -> "pl.DataFrame":
        """Performance profiles: the share of runs whose normalised return over training exceeds a threshold.

        Columns: method, threshold, share, low, high (pointwise 95 % band over seeds), mean (normalised return of all
        runs) and worst (that of the worst run). `experiments.measure.profiles.profiles` defines the normalisation.

        Args:
          methods: as in `compare`; by default all.
        """
        import polars as pl

        from experiments.measure.profiles import profiles

        found = profiles(self._recorded, [self._named(method) for method in methods or self.methods])
        columns = ("threshold", "share", "low", "high", "mean", "worst")
        frames = [
            pl.DataFrame(dict(zip(columns, profile, strict=False))).select(pl.lit(method).alias("method"), pl.all())
            for method, profile in found.items()
        ]
        return pl.concat(frames) if frames else pl.DataFrame(schema=("method", *columns))

    def replay(self, *methods: Method | str) -> "pl.DataFrame":
        """Entropy weights that other methods would set from the recorded proxies; nothing is trained.

        The recorded agents do not react to the weights, so a replay has no returns. A method that reads a quantile is
        replayed on the runs that measured it at its level. A row per recorded run and method:

          family, task, method, carrier, schedule, variant, pattern, seed: the run.
          replayed: name of the method in tables.
          initial: weight of the first update, reward per nat.
          weight: list of n, the weight after the updates of each sample.
          step: list of n, the environment step at the end of each sample.
          updates_per_sample: above 1 a sample is a mean over updates and the weights are approximate.
          window, recency, refresh, refresh_actor, isometry, rate, updates: lists of n, if adaptations set them.

        Args:
          methods: a `Method` or a text such as "sac+aes_r".

        Raises:
          ValueError: a method cannot be replayed, because a proxy or signal that it reads was not recorded.
        """
        import polars as pl

        from experiments.study import replay
        from experiments.study.text import parse_objects

        study, frames = replay.load(StudyFolder(self.directory, self.config, self._files)), []
        for method in parse_objects(methods):
            share, carrier = replay.share_of_method(study, method), method.carrier.name
            rows, stride = study.streams.filter(carrier=carrier), study.strides[carrier]
            rows = replay.measured_for(study, share, method, rows)
            if reason := replay.obstacle(share, method, rows):
                raise ValueError(f"'{share.rows[0].rule}' cannot be replayed on carrier '{carrier}': {reason}")
            result, skipped = replay.replay_runs(share, method, rows, stride)
            samples = skipped + result.weight.shape[1]
            steps = np.arange(skipped + 1, samples + 1) * study.config.steps / samples
            columns = {"weight": result.weight, "step": np.tile(steps, (rows.height, 1))}
            columns |= {name: values for name, values in result.levers._asdict().items() if values is not None}
            lists = {name: pl.Series(list(values)).cast(pl.List(pl.Float32)) for name, values in columns.items()}
            facts = {"replayed": pl.lit(share.rows[0].name), "updates_per_sample": pl.lit(stride)}
            frames.append(rows.select(_LABELS).with_columns(initial=pl.Series(result.initial), **facts, **lists))
        return pl.concat(frames, how="diagonal")

    def policy(self, method: Method | str, pattern: str, seed: int, at: int | str = "end") -> Policy:
        """The policy of a run.

        Args:
          method: with or without its setting, as in `compare`.
          at: "end", or the environment step of a change of the drift, at which policies are stored.

        Raises:
          UnknownNameError, ValueError: an unknown run, or no policy of that step.
        """
        check_numerics(self.directory, self.manifest)  # a policy has the drift of its run
        return Policy.load(self.directory, self._plan, self._named(method), pattern, seed, at)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the report and return the path of its page.

        Args:
          out: new or empty folder; by default ``report`` in the folder of the study. Logs and joined studies need it.
        """
        from experiments.report.write import write_results

        place = self.directory / "report" if out is None else Path(out).expanduser()
        if out is not None:
            store.check_new(place, "out")
        return write_results(self._files, place, metrics=self._custom)

    @cached_property
    def verdicts(self) -> list[str]:
        """One sentence per method and opponent: its outcome under every pattern, after Holm."""
        from experiments.report.cells import Lookup
        from experiments.report.verdicts import verdicts

        return [verdict.sentence for verdict in verdicts(Lookup(self.metrics, self._recorded, self._custom))]

    @cached_property
    def remarks(self) -> list[str]:
        """Reservations to read first: ratios without a verdict, and schedules that are pinned at a bound."""
        return remarks(self._recorded)

    def __repr__(self) -> str:
        config, runs = self._files.config, len(self.manifest.get("runs", ()))
        if self._files.frames:
            kind = f"Results.join of {len(self._joined)} studies" if self._joined else "Results of logs"
            return f"{kind}: {runs} runs on {config['task']}"
        steps = "" if MERGED in config else f" of {config['steps']:,} steps"  # joined tasks differ in them
        return f"Results({str(self.directory)!r}): {runs} runs{steps} on {config['task']}"

    def _repr_html_(self) -> str:
        from html import escape

        lines = [*self.remarks, *(self.verdicts or ["no method has an opponent to be compared with"])]
        return f"<p>{escape(repr(self))}</p><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
