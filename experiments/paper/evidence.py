"""Runs as evidence: methods found by what they are, and paired differences pooled as `docs/evidence.md` prescribes."""

import json
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from agents import CARRIERS as REGISTERED
from experiments.measure import stats
from experiments.measure.catalog import CATALOG
from experiments.measure.comparisons import BETTER, ENOUGH, MARGIN, NO_DATA, WORSE, best_of, contrasts
from experiments.measure.curves import nan_mean
from experiments.measure.metrics import clearly_positive
from experiments.measure.runs import pinned
from experiments.measure.study import REFERENCE, STEADY
from experiments.paper.design import TASKS, Cell
from experiments.paper.learned import learned, steps_needed
from experiments.paper.record import Gathered, Record, fits, method_of, valid_mean
from experiments.study.codec import encode
from experiments.study.config import StudyConfig
from experiments.study.method import Method
from experiments.study.program import identity, rows_of
from experiments.study.text import parse_method

NAMES = {spec.label: name for name, spec in REGISTERED.items()}
CARRIERS = ("SAC", "PPO", "SQL", "MEow")
PATTERNS = ("abrupt", "linear", "periodic", "mixed")  # without the steady one
FAMILY_OF = {task: family for family, tasks in TASKS.items() for task in tasks}
#: Columns of a setting.
SETTING = ("task", "steps", "carrier")
FEWEST = 3  # pairs of runs below which a cell says nothing
NAN = float("nan")
#: (task, carrier, pattern)
Place = tuple[str, str, str]


@cache
def parsed(method: str, carrier: str) -> Method:
    """A method, as it is typed in `--schedules`, on a carrier of `CARRIERS`."""
    return parse_method(method, NAMES[carrier])


def having(runs: pl.DataFrame, test: Callable[[Method], bool]) -> pl.Expr:
    """Rows whose method passes a test."""
    definitions = runs["definition"].unique()
    return pl.col("definition").is_in([text for text in definitions if test(method_of(text))])


def planned(wanted: Sequence[Cell]) -> pl.DataFrame:
    """The runs of studies, as far as a record describes them before their training."""
    rows = []
    for cell in wanted:
        config = cell.untuned.config
        for row, pattern, seed in product(rows_of(config), config.patterns, config.seeds):
            definition = json.dumps(encode(row.method))
            rows.append((config.task, config.steps, row.carrier, row.name, definition, pattern, seed))
    return pl.DataFrame(rows, [*SETTING, "method", "definition", "pattern", "seed"], orient="row")


def references(wanted: Sequence[Cell], known: Record) -> list[Cell]:
    """Studies of SAC without drift that nAUC on the paper's tasks needs, and neither ``wanted`` nor a record has.

    Studies with tuned methods need none, because they compare returns.
    """
    runs, steady = planned(wanted), {"method": REFERENCE, "pattern": STEADY}
    found = {}
    for study in (cell.study for cell in wanted if cell.study.task in FAMILY_OF and not cell.tuned):
        config = study.config.to_json()
        alike = [name for name, about in known.studies.items() if fits(config, about["config"])]
        there = known.runs.filter(pl.col("study").is_in(alike), **steady) if alike else []
        if not len(there) and runs.filter(task=config["task"], steps=config["steps"], **steady).is_empty():
            name = f"reference-{config['task']}-{config['steps']}"
            found[name] = Cell(name, replace(study, methods=[Method("sac")], patterns=STEADY))
    return list(found.values())


def unclear(runs: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Methods, by ``keys``, whose area above the random policy without drift is not clearly positive over the seeds."""
    areas = runs.filter(pattern=STEADY).group_by(*keys, "method").agg(area=pl.col("mean_return") - pl.col("floor"))
    clear = pl.col("area").map_elements(clearly_positive, pl.Boolean, skip_nulls=False)
    return areas.filter(~clear).drop("area")


class Evidence:
    """Runs in groups of one task that may be compared: of one record, equal horizon, sizes and settings.

    ``runs`` has their rows with the carrier's label and the ``rank`` of their group: those with the longest horizon
    first, then those with the most runs. Groups without drift have none. ``idle`` has the carriers that have not
    learned (`learned`).
    """

    def __init__(self, gathered: Gathered) -> None:
        runs, configs = gathered.runs, gathered.configs
        self.seconds = gathered.seconds
        keys = ["record", "group", "task", "steps"]
        runs = runs.filter((pl.col("pattern") != STEADY).any().over(keys))
        groups = runs.group_by(keys, maintain_order=True).len()
        groups = groups.sort("steps", "len", descending=True, maintain_order=True).with_row_index("rank")
        label = pl.col("carrier").replace({name: label for label, name in NAMES.items()})
        self.runs = runs.with_columns(label=label).join(groups.drop("len"), on=keys, maintain_order="left")
        steady = self.runs.filter(having(runs, lambda method: method == Method(method.carrier)), pattern=STEADY)
        gains = steady.group_by("rank", pl.col("label").alias("carrier"))
        self._gains = gains.agg(valid_mean("nauc_task_safe").alias("gain"))
        self._unclear = unclear(self.runs, "rank")
        self.idle = learned(steady, "rank", "label").filter(~pl.col("learned")).select("rank", carrier="label")
        self._constants = having(runs, lambda method: method.follows("fixed"))
        rules = self.runs.filter(having(runs, lambda method: method.follows("aes")))
        rules = rules.group_by("rank", "method", pl.col("pattern").alias("under"))
        self._clipped = rules.agg(valid_mean("saturation_min", "saturation_max"))
        self.configs: dict[tuple[int, str], StudyConfig] = {}  # (rank, carrier) -> one of the group's
        self._methods: dict[tuple[int, str], dict[Any, str]] = {}  # (rank, carrier) -> identity -> name
        self._named: dict[tuple[int, str, str], str | None] = {}  # (rank, carrier, as typed) -> name, as asked before
        for row in self.runs.unique(["rank", "method"], maintain_order=True).rows(named=True):
            cell = (row["rank"], row["label"])
            config = configs[row["record"], row["study"], row["task"], row["carrier"]]
            self.configs.setdefault(cell, config)
            key = identity(config, method_of(row["definition"]))
            self._methods.setdefault(cell, {}).setdefault(key, row["method"])

    def hours(self, places: Iterable[Place]) -> float | None:
        """Hours in which the machines of the record would train agents for these settings, drifting and without drift.

        Each has `ENOUGH` seeds of two methods and runs of `steps_needed`. None where no machine or step is known.
        """
        settings: dict[tuple[str, str], set[str]] = {}
        for task, carrier, pattern in places:
            settings.setdefault((task, NAMES[carrier]), {STEADY}).add(pattern)
        total = 0.0
        for (task, carrier), patterns in settings.items():
            seconds, steps = self.seconds.get((task, carrier)), steps_needed(task, carrier)
            total += 2 * ENOUGH * len(patterns) * (seconds or 0.0) * (steps or 0.0)
        return total / 3600 or None

    def groups(self) -> list[pl.DataFrame]:
        """The runs of each group."""
        return self.runs.sort("rank", maintain_order=True).partition_by("rank", maintain_order=True)

    def named(self, rank: int, carrier: str, method: str) -> str | None:
        """Name of a method, as it is typed in `--schedules`, on a carrier; None if the group lacks it.

        Options that are not given are those of the group's studies.
        """
        if (cell := (rank, carrier)) not in self._methods:
            return None
        if (*cell, method) not in self._named:
            key = identity(self.configs[cell], parsed(method, carrier))
            self._named[*cell, method] = self._methods[cell].get(key)
        return self._named[*cell, method]

    def best_constant(self, rank: int, carrier: str, pattern: str) -> str | None:
        """The constant weight of highest mean return here, chosen in hindsight; None where there are not two."""
        finite = self._constants & pl.col("mean_return").is_finite()
        own = self.runs.filter(finite, rank=rank, label=carrier, pattern=pattern)
        scores: dict[str, dict[str, dict[int, float]]] = {}
        for method, seed, value in own.select("method", "seed", "mean_return").iter_rows():
            scores.setdefault(method, {pattern: {}})[pattern][seed] = value
        return best_of(scores, list(scores), pattern) if len(scores) > 1 else None

    def members(self, side: "Side", rank: int, carrier: str, pattern: str) -> list[str]:
        """Methods whose mean a side is in a cell; empty where the group lacks one of them."""
        if side.hindsight:
            names = [self.best_constant(rank, carrier, pattern)]
        else:
            names = [self.named(rank, carrier, method) for method in side.methods]
        return [name for name in names if name is not None] if None not in names else []

    def compared(self, first: "Side", second: "Side", places: Iterable[Place]) -> list[pl.DataFrame]:
        """Methods of both sides where there are runs of both: a row per cell, side and method, and a frame per record.

        Runs of two records are never pooled. The first record has the most pairs of task and carrier; of equals it has
        the most runs.
        """
        rows = []
        ranks = {task: self.runs.filter(task=task)["rank"].unique().sort() for task in {place[0] for place in places}}
        for task, carrier, pattern in sorted(places):
            for rank in ranks[task]:
                for name, side in (("first", first), ("second", second)):
                    methods, cell = self.members(side, rank, carrier, pattern), (task, carrier, pattern, rank)
                    rows += [(*cell, name, len(methods), method, side.pattern or pattern) for method in methods]
        compared = pl.DataFrame(rows, _COMPARED, orient="row")
        ran = self.runs.select("rank", "method", "record", pl.col("pattern").alias("under")).unique()
        compared = compared.join(ran, on=["rank", "method", "under"], maintain_order="left")
        compared = compared.filter(pl.col("side").n_unique().over(CELL) == (1 if second == NOTHING else 2))
        sizes = dict(self.runs.group_by("record").len().iter_rows())
        pairs = pl.struct("task", "carrier").n_unique().over("record")
        order = (pairs, pl.col("record").replace_strict(sizes, default=0))
        compared = compared.sort(order, descending=True, maintain_order=True)
        return compared.partition_by("record", maintain_order=True) or [compared]

    def fullest(self, compared: pl.DataFrame, metric: str) -> pl.DataFrame:
        """The rows of one group of runs for every task and carrier, of those of a record.

        A group in which the carrier learned comes first, then the most patterns with values, then the longest horizon.
        """
        keys = ["task", "carrier", "rank"]
        counts = self.values(compared, metric).group_by(keys).agg(valued=pl.col("pattern").n_unique())
        idle = self.idle.select("rank", "carrier", idle=True)
        groups = compared.select(keys).unique().join(counts, on=keys, how="left").join(idle, on=keys[1:], how="left")
        order = [pl.col("idle").fill_null(value=False), -pl.col("valued").cast(pl.Int64).fill_null(0), pl.col("rank")]
        groups = groups.sort(order).unique(keys[:2], keep="first", maintain_order=True)
        return compared.join(groups, on=keys, how="semi", maintain_order="left")

    def pairs(self, first: "Side", second: "Side", metric: str, places: Iterable[Place]) -> pl.DataFrame:
        """Values of the cells among these whose carriers learned, of one record and one group of runs per carrier."""
        compared, *_ = self.compared(first, second, places)
        values = self.values(self.fullest(compared, metric), metric)
        return values.join(self.idle, on=["rank", "carrier"], how="anti", maintain_order="left")

    def values(self, compared: pl.DataFrame, metric: str) -> pl.DataFrame:
        """A row per cell and seed, of the cells with at least `FEWEST` pairs of runs.

        Args:
          compared: methods of both sides, as `compared`; without a second side its values are zero.
          metric: a name of `docs/metrics.md`, several whose values are added, joined by ``+``, or a name after
            ``spread:``: the distance of a run from the median over the seeds of its method.
        """
        alone, spread = "second" not in compared["side"], metric.startswith(SPREAD)
        names = metric.removeprefix(SPREAD).split("+")
        denominators = {row.denominator for name in names if (row := CATALOG.get(name))}
        if "reference" in denominators:  # ratios by denominators that are not clearly positive have no verdict
            compared = compared.join(self._unclear.filter(method=REFERENCE), on="rank", how="anti")
        elif "own" in denominators:
            compared = compared.join(self._unclear, on=["rank", "method"], how="anti")
        value = reduce(operator.add, (pl.col(name) for name in names))
        if spread:
            value = (value - value.median().over("rank", "method", "pattern")).abs()
        values = self.runs.select("rank", "method", "seed", pl.col("pattern").alias("under"), value.alias("value"))
        # A side is the mean over its methods, at the seeds that all of them have.
        means = compared.join(values, on=["rank", "method", "under"])
        means = means.group_by(*CELL, "side", "size", "seed").agg(pl.col("value").mean(), pl.len())
        ours, theirs = (
            means.filter(pl.col("size") == pl.col("len"), side=side).select(*CELL, "seed", pl.col("value").alias(side))
            for side in ("first", "second")
        )
        if alone:
            theirs = ours.with_columns(second=0.0).drop("first")
        both = _enough(_differing(ours.join(theirs, on=[*CELL, "seed"])))
        both = both.join(self._gains, on=["rank", "carrier"], how="left").with_columns(pl.col("gain").fill_null(NAN))
        return both.select(_PAIRS.keys()).sort("task", "carrier", "pattern", "rank", "seed")

    def pinned(self, compared: pl.DataFrame) -> set[Place]:
        """Places of one group of runs each where `aes` is compared, and is pinned in all methods that follow it."""
        rules = compared.join(self._clipped, on=["rank", "method", "under"])
        columns = rules.select("task", "carrier", "pattern", "saturation_min", "saturation_max").iter_rows()
        states = [((task, carrier, pattern), pinned(*ends)) for task, carrier, pattern, *ends in columns]
        return {place for place, bound in states if bound} - {place for place, bound in states if not bound}


class Side(NamedTuple):
    """One side of a comparison: the mean over methods, or zero where there is none."""

    methods: tuple[str, ...] = ()  # as in `--schedules`
    pattern: str = ""  # under which they are measured; empty: the cell's own
    hindsight: bool = False  # instead of methods the best constant weight of the cell, chosen in hindsight


NOTHING = Side()  # zero, for the level of the other side
SPREAD = "spread:"
CELL = ("task", "carrier", "pattern", "rank")
_CELLS = {"task": pl.String, "carrier": pl.String, "pattern": pl.String, "rank": pl.UInt32}
_COMPARED = _CELLS | {"side": pl.String, "size": pl.Int64, "method": pl.String, "under": pl.String}
_PAIRS = {
    **_CELLS,
    "seed": pl.Int64,
    **dict.fromkeys(("first", "second", "difference", "gain"), pl.Float64),
}


def _differing(pairs: pl.DataFrame) -> pl.DataFrame:
    return pairs.with_columns(difference=pl.col("first") - pl.col("second")).filter(pl.col("difference").is_finite())


def _enough(pairs: pl.DataFrame) -> pl.DataFrame:
    return pairs.filter(pl.len().over(CELL) >= FEWEST)


def _by_seed(pairs: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Mean difference over the cells of ``keys``, at the seeds that all of these have."""
    size = pl.struct(CELL).n_unique().over(keys)
    means = pairs.with_columns(size=size).group_by(*keys, "seed", "size").agg(pl.col("difference").mean(), pl.len())
    return means.filter(pl.col("size") == pl.col("len")).sort(*keys, "seed")


def contrast(pairs: pl.DataFrame, high: Sequence[str], low: Sequence[str]) -> pl.DataFrame:
    """Of every task and carrier how much larger the difference is under the patterns ``high`` than under ``low``."""
    keys = ["task", "carrier", "rank"]
    own = pairs.filter(pl.col("pattern").is_in([*high, *low]))
    own = own.filter(pl.col("pattern").n_unique().over(keys) == len({*high, *low}))
    first, second = (_by_seed(own.filter(pl.col("pattern").is_in(list(side))), keys) for side in (high, low))
    first, second = first.rename({"difference": "first"}), second.rename({"difference": "second"})
    both = first.join(second, on=[*keys, "seed"]).with_columns(pattern=pl.lit("+".join(high)), gain=NAN)
    return _enough(_differing(both)).select(_PAIRS.keys()).sort("task", "carrier", "seed")


@dataclass(frozen=True)
class Measured:
    """First minus second, pooled; in units of the metric."""

    value: float
    low: float | None  # 95 % interval, None where there is none
    high: float | None
    levels: tuple[float, float]  # mean of the second side, of the first
    better: int  # units in which the claimed direction is significant after Holm's correction
    worse: int
    undecided: int  # all others with enough pairs of runs
    no_data: int
    within: int  # units whose interval excludes a loss beyond `MARGIN`; of floor-corrected nAUC only
    beyond: int  # units that are worse, with an interval beyond the margin
    fewest: int  # pairs of runs in the cell that has fewest

    @property
    def units(self) -> int:
        """Cells that were tested."""
        return self.better + self.worse + self.undecided + self.no_data


def expected(
    patterns: Sequence[str] = PATTERNS, carriers: Sequence[str] = CARRIERS, tasks: Iterable[str] = FAMILY_OF
) -> set[Place]:
    """All cells that a claim is about."""
    return {(task, carrier, pattern) for task in tasks for carrier in carriers for pattern in patterns}


def levels_of(pairs: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Means of both sides over the cells of ``keys``, each cell at the seeds that are compared."""
    cells = pairs.group_by(CELL).agg(pl.col("first", "second").mean())
    return cells.group_by(keys).agg(pl.col("first", "second").mean()).sort(keys)


def measure(
    pairs: pl.DataFrame,
    *,
    sign: int = 1,
    unit: Sequence[str] = ("family", "carrier", "pattern"),
    weigh: str = "family",
    against: Sequence[str] = (),
) -> Measured:
    """Pool cells: one difference with its interval, and a Holm-corrected test per unit.

    Within a seed of a task differences are averaged first, over carriers and patterns, which share its drift; seeds are
    resampled task by task. On one task with fewer than ten seeds the interval is Student's.

    Args:
      pairs: of at least one cell.
      sign: 1 where the claim says that the first is higher, -1 where lower.
      unit: what makes one test: some of family, task, carrier, pattern.
      weigh: ``family`` or ``task``: what weighs equally in the mean.
      against: tasks whose mean is subtracted from that of all others, instead of one mean over all.
    """
    levels = levels_of(pairs, "task")
    matrix = _by_seed(pairs, ["task"]).pivot("seed", index="task", values="difference")
    matrix = levels.select("task").join(matrix, on="task", how="left", maintain_order="left")
    tasks, rows = matrix["task"].to_list(), matrix.drop("task").to_numpy()
    weights = _weights(tasks, weigh, against)
    small = len(tasks) == 1 and rows.shape[1] < stats.SMALL
    statistic = partial(_weighted, weights=weights)
    interval = (
        stats.t_interval(rows) if small else stats.bootstrap_interval(np.random.default_rng(0), [rows], statistic)
    )
    second, first = (float(np.sum(weights * levels[side].to_numpy())) for side in ("second", "first"))
    own = pairs.with_columns(family=pl.col("task").replace_strict(FAMILY_OF))
    units = dict.fromkeys(own.select(unit).iter_rows(), np.zeros(0))  # some without a seed that all of its cells have
    parts = _by_seed(own, unit).partition_by(unit, as_dict=True)
    tested = contrasts(units | {key: sign * part["difference"].to_numpy() for key, part in parts.items()})
    outcomes = Counter(contrast.outcome for contrast in tested.values())
    margins = own.unique(CELL).group_by(unit).agg(MARGIN * pl.col("gain").mean())
    margin = {tuple(key): gain for *key, gain in margins.iter_rows()}
    within = sum(contrast.interval.low > -margin[key] for key, contrast in tested.items())
    beyond = sum(test.outcome == WORSE and test.interval.high < -margin[key] for key, test in tested.items())
    low, high = (end if math.isfinite(end) else None for end in interval[1:])
    better, worse, no_data = (outcomes[kind] for kind in (BETTER, WORSE, NO_DATA))
    counts = (better, worse, outcomes.total() - better - worse - no_data, no_data)
    fewest = pairs.select(pl.len().over(CELL).min()).item()
    return Measured(interval.value, low, high, (second, first), *counts, within, beyond, fewest)


def _weights(tasks: Sequence[str], weigh: str, against: Sequence[str]) -> np.ndarray:
    if against:
        down = sum(task in against for task in tasks)
        return np.array([-1 / down if task in against else 1 / (len(tasks) - down) for task in tasks])
    families = [FAMILY_OF[task] for task in tasks]
    weights = np.array([1 / families.count(f) if weigh == "family" else 1.0 for f in families])
    return weights / weights.sum()


def _weighted(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(..., M, n) -> (...): weighted mean over tasks of the means over seeds."""
    return np.sum(nan_mean(rows, axis=-1) * weights, axis=-1)
