"""Runs as evidence: methods found by what they are, and paired differences pooled as `docs/metrics.md` prescribes."""

import json
import math
import operator
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
from experiments.measure.comparisons import BETTER, MARGIN, WORSE, best_of, contrasts
from experiments.measure.curves import nan_mean
from experiments.measure.metrics import clearly_positive
from experiments.measure.study import REFERENCE, STEADY
from experiments.paper.design import TASKS, Cell
from experiments.paper.record import Gathered, Record, fits, method_of
from experiments.study.codec import encode
from experiments.study.config import StudyConfig
from experiments.study.method import Method
from experiments.study.program import identity, rows_of
from experiments.study.text import parse_method

NAMES = {spec.label: name for name, spec in REGISTERED.items()}
CARRIERS = ("SAC", "PPO", "SQL", "MEow")
PATTERNS = ("abrupt", "linear", "periodic", "mixed")  # without the steady one
FAMILY_OF = {task: family for family, tasks in TASKS.items() for task in tasks}
#: Share of seeds in which an agent has to end above its untrained policy and above random actions without drift.
LEARNED = 0.8
_ABOVE = pl.col("final_return") > pl.max_horizontal("untrained", "floor")
HAS_LEARNED = pl.col("trained").any() | (_ABOVE.mean() >= LEARNED)
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
    for config in (cell.study.config for cell in wanted):
        for row, pattern, seed in product(rows_of(config), config.patterns, config.seeds):
            definition = json.dumps(encode(row.method))
            rows.append((config.task, config.steps, row.carrier, row.name, definition, pattern, seed))
    return pl.DataFrame(rows, [*SETTING, "method", "definition", "pattern", "seed"], orient="row")


def references(wanted: Sequence[Cell], known: Record) -> list[Cell]:
    """Studies of SAC without drift that nAUC on the paper's tasks needs, and neither ``wanted`` nor a record has."""
    runs, steady = planned(wanted), {"method": REFERENCE, "pattern": STEADY}
    found = {}
    for study in (cell.study for cell in wanted if cell.study.task in FAMILY_OF):
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
    """Runs in groups of one task that may be compared: of equal horizon, sizes and settings.

    ``runs`` has their rows with the carrier's label and the ``rank`` of their group: those with the longest horizon
    first, then those with the most runs. Carriers that began untrained and did not learn judge no claim: without drift
    the baseline ends above its untrained policy and above random actions in fewer than four seeds of five (`LEARNED`).
    """

    def __init__(self, gathered: Gathered) -> None:
        runs, configs = gathered
        keys = ["group", "task", "steps"]
        groups = runs.group_by(keys, maintain_order=True).len()
        groups = groups.sort("steps", "len", descending=True, maintain_order=True).with_row_index("rank")
        label = pl.col("carrier").replace({name: label for label, name in NAMES.items()})
        self.runs = runs.with_columns(label=label).join(groups.drop("len"), on=keys, maintain_order="left")
        steady = self.runs.filter(having(runs, lambda method: method == Method(method.carrier)), pattern=STEADY)
        gains = steady.group_by("rank", pl.col("label").alias("carrier"))
        self._gains = gains.agg(pl.col("nauc_task_safe").mean().alias("gain"))
        self._unclear = unclear(self.runs, "rank")
        self.idle = gains.agg(idle=~HAS_LEARNED).filter("idle")
        self._constants = having(runs, lambda method: method.follows("fixed"))
        self._configs: dict[tuple[int, str], StudyConfig] = {}  # (rank, carrier) -> one of the group's
        self._methods: dict[tuple[int, str], dict[Any, str]] = {}  # (rank, carrier) -> identity -> name
        for row in self.runs.unique(["rank", "method"], maintain_order=True).rows(named=True):
            cell, config = (row["rank"], row["label"]), configs[row["study"], row["task"], row["carrier"]]
            self._configs.setdefault(cell, config)
            key = identity(config, method_of(row["definition"]))
            self._methods.setdefault(cell, {}).setdefault(key, row["method"])

    def groups(self) -> list[pl.DataFrame]:
        """The runs of each group."""
        return self.runs.sort("rank", maintain_order=True).partition_by("rank", maintain_order=True)

    def named(self, rank: int, carrier: str, method: str) -> str | None:
        """Name of a method, as it is typed in `--schedules`, on a carrier; None if the group lacks it.

        Options that are not given are those of the group's studies.
        """
        if (cell := (rank, carrier)) not in self._methods:
            return None
        key = identity(self._configs[cell], parsed(method, carrier))
        return self._methods[cell].get(key)

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

    def pairs(
        self, first: "Side", second: "Side", metric: str, places: Iterable[Place], learned: bool = True
    ) -> pl.DataFrame:
        """The cells among these with at least `FEWEST` pairs of runs: a row per cell and seed.

        Of several groups of a task the one counts in which most patterns of a carrier can be compared; of equals the
        one with the longest horizon.

        Args:
          metric: a name of `docs/metrics.md`, or several whose values are added, joined by ``+``.
          learned: leave out carriers that did not learn.
        """
        rows = []
        ranks = {task: self.runs.filter(task=task)["rank"].unique().sort() for task in {place[0] for place in places}}
        for task, carrier, pattern in sorted(places):
            for rank in ranks[task]:
                for name, side in (("first", first), ("second", second)):
                    found, cell = self.members(side, rank, carrier, pattern), (task, carrier, pattern, rank)
                    rows += [(*cell, name, len(found), method, side.pattern or pattern) for method in found]
        wanted = pl.DataFrame(rows, [*_CELL, "side", "size", "method", "under"], orient="row")
        if wanted.is_empty():
            return pl.DataFrame(schema=_PAIRS)
        wanted = wanted.with_columns(pl.col("rank").cast(pl.UInt32))
        rows = [row for name in metric.split("+") if (row := CATALOG.get(name))]
        denominators = {row.denominator for row in rows}
        if "reference" in denominators:  # ratios by denominators that are not clearly positive have no verdict
            wanted = wanted.join(self._unclear.filter(method=REFERENCE), on="rank", how="anti")
        elif "own" in denominators:
            wanted = wanted.join(self._unclear, on=["rank", "method"], how="anti")
        value = reduce(operator.add, (pl.col(name) for name in metric.split("+")))
        values = self.runs.select("rank", "method", "seed", pl.col("pattern").alias("under"), value.alias("value"))
        # A side is the mean over its methods, at the seeds that all of them have.
        means = wanted.join(values, on=["rank", "method", "under"])
        means = means.group_by(*_CELL, "side", "size", "seed").agg(pl.col("value").mean(), pl.len())
        ours, theirs = (
            means.filter(pl.col("size") == pl.col("len"), side=side).select(*_CELL, "seed", pl.col("value").alias(side))
            for side in ("first", "second")
        )
        if second == NOTHING:
            theirs = ours.with_columns(second=0.0).drop("first")
        both = _enough(_differing(ours.join(theirs, on=[*_CELL, "seed"])))
        both = both.join(self.idle, on=["rank", "carrier"], how="anti") if learned else both
        both = both.join(self._gains, on=["rank", "carrier"], how="left")
        size = pl.col("pattern").n_unique().over("task", "carrier", "rank")
        both = both.sort(size, "rank", descending=[True, False])
        both = both.filter(pl.col("rank") == pl.col("rank").first().over("task", "carrier"))
        both = both.with_columns(pl.col("gain").fill_null(NAN))
        return both.select(_PAIRS.keys()).sort("task", "carrier", "pattern", "seed")


class Side(NamedTuple):
    """One side of a comparison: the mean over methods, or zero where there is none."""

    methods: tuple[str, ...] = ()  # as in `--schedules`
    pattern: str = ""  # under which they are measured; empty: the cell's own
    hindsight: bool = False  # instead of methods the best constant weight of the cell, chosen in hindsight


NOTHING = Side()  # zero, for the level of the other side
_CELL = ("task", "carrier", "pattern", "rank")
_PAIRS = {
    **{"task": pl.String, "carrier": pl.String, "pattern": pl.String, "rank": pl.UInt32, "seed": pl.Int64},
    **dict.fromkeys(("first", "second", "difference", "gain"), pl.Float64),
}


def _differing(pairs: pl.DataFrame) -> pl.DataFrame:
    return pairs.with_columns(difference=pl.col("first") - pl.col("second")).filter(pl.col("difference").is_finite())


def _enough(pairs: pl.DataFrame) -> pl.DataFrame:
    return pairs.filter(pl.len().over(_CELL) >= FEWEST)


def _by_seed(pairs: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Mean difference over the cells of ``keys``, at the seeds that all of these have."""
    size = pl.struct(_CELL).n_unique().over(keys)
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
    not_significant: int
    within: int  # units whose interval excludes a loss beyond `MARGIN`; of floor-corrected nAUC only
    fewest: int  # pairs of runs in the cell that has fewest

    @property
    def units(self) -> int:
        """Cells that were tested."""
        return self.better + self.worse + self.not_significant


def expected(
    patterns: Sequence[str] = PATTERNS, carriers: Sequence[str] = CARRIERS, tasks: Iterable[str] = FAMILY_OF
) -> set[Place]:
    """All cells that a claim is about."""
    return {(task, carrier, pattern) for task in tasks for carrier in carriers for pattern in patterns}


def levels_of(pairs: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Means of both sides over the cells of ``keys``, each cell at the seeds that are compared."""
    cells = pairs.group_by(_CELL).agg(pl.col("first", "second").mean())
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
    outcomes = [contrast.outcome for contrast in tested.values()]
    margins = own.unique(_CELL).group_by(unit).agg(MARGIN * pl.col("gain").mean())
    margin = {tuple(key): gain for *key, gain in margins.iter_rows()}
    within = sum(contrast.interval.low > -margin[key] for key, contrast in tested.items())
    low, high = (end if math.isfinite(end) else None for end in interval[1:])
    better, worse = outcomes.count(BETTER), outcomes.count(WORSE)
    rest = len(outcomes) - better - worse
    fewest = pairs.select(pl.len().over(_CELL).min()).item()
    return Measured(interval.value, low, high, (second, first), better, worse, rest, within, fewest)


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


def missing(places: set[Place], there: set[Place]) -> str:
    """Which cells of a claim are not there, in words; empty if none is missing."""
    absent, gone = places - there, dict[str, list[str]]()  # what is missing -> of which tasks
    for family, tasks in TASKS.items():
        asked = [task for task in tasks if any(place[0] == task for place in places)]
        without = [task for task in asked if not any(place[0] == task for place in there)]
        gone.setdefault("", []).extend([family] if asked and without == asked else without)
        for task in (task for task in asked if task not in without):
            carriers = {c for t, c, _ in places if t == task} - {c for t, c, _ in there if t == task}
            rest = sorted({p for t, c, p in absent if t == task and c not in carriers})
            names = "/".join(carrier for carrier in CARRIERS if carrier in carriers)
            for what in (names, f"{'/'.join(rest)} of some carriers" if rest else ""):
                if what:
                    gone.setdefault(what, []).append(task)
    return "; ".join(f"{what} on {', '.join(of)}" if what else ", ".join(of) for what, of in gone.items() if of)
