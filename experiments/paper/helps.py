"""Part H as tables, with the robots of part G: rivals of AES minus SAC's tuned constant, after the drift has begun."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.measure.comparisons import DECIDED, Contrast, contrasts
from experiments.measure.study import STEADY
from experiments.paper.record import Record
from experiments.paper.tables import markdown
from experiments.study.config import StudyConfig, config_from_json
from experiments.study.method import Method
from experiments.study.program import Row, rows_of
from experiments.study.text import number

#: Metric -> its words.
METRICS = {"mean_return": "evaluation", "online_return": "online"}
#: Whether the drift varies -> its words.
DRIFTS = {True: "under drift", False: "no drift"}
SCHEDULES, CRITIC, DATA, RESETS, OBSERVATIONS = (
    "entropy weight", "normalised critic", "newer data", "resets", "observations",
)  # fmt: skip
KINDS = (SCHEDULES, CRITIC, DATA, RESETS, OBSERVATIONS)
_LEVERS = {"window": DATA, "recency": DATA, "isometry": RESETS}
#: Metric, and whether the drift varies.
Key = tuple[str, bool]


class Rival(NamedTuple):
    """A method on a task, compared with SAC's tuned constant."""

    kind: str  # of `KINDS`
    label: str  # the same on all tasks
    numbers: str  # its chosen number, and the size of another replay
    contrasts: Mapping[Key, Contrast]  # Holm over all rivals of the task


class Comparison(NamedTuple):
    """The rivals on one task."""

    config: StudyConfig  # of SAC's study
    constant: float  # SAC's tuned weight
    levels: Mapping[Key, float]  # mean returns of SAC with it
    rivals: Sequence[Rival]


class _Study(NamedTuple):
    """A study of part H in a record, or the one of part G of an equal task and horizon."""

    config: StudyConfig
    means: Mapping[tuple[str, str, int], Mapping[str, float]]  # (method, pattern, seed) -> metric -> mean

    @property
    def carrier(self) -> str:
        return self.config.carriers[0]

    @property
    def constant(self) -> Row | None:
        """The tuned constant."""
        return next((row for row in rows_of(self.config) if row.method.follows("fixed")), None)

    def values(self, method: str, key: Key, patterns: Sequence[str], seeds: Sequence[int]) -> np.ndarray:
        """(n,) means over those of ``patterns`` that drift, or do not, by seed; NaN where a run is missing."""
        metric, drifting = key
        own = [name for name in patterns if (name != STEADY) == drifting]
        missing = dict.fromkeys(METRICS, np.nan)

        def mean(seed: int) -> Any:
            return np.mean([self.means.get((method, pattern, seed), missing)[metric] for pattern in own])

        return np.array([mean(seed) for seed in seeds])


def comparisons(record: Record) -> list[Comparison]:
    """The comparison of every task that has studies of part H, and one of SAC's tuned constant in part G or H.

    Its patterns are those of most studies of part H; a study that lacks one of them is left out.
    """
    groups: dict[tuple[str, int], list[str]] = {}
    for name, about in record.studies.items():
        config = about["config"]
        if name.startswith(("G-", "H-")) and not config.get("horizon"):  # trials have one
            groups.setdefault((config["task"], config["steps"]), []).append(name)
    found = []
    for names in groups.values():
        patterns = {name: frozenset(record.studies[name]["config"]["patterns"]) for name in names}
        counts = Counter(patterns[name] for name in names if name.startswith("H-"))
        if not counts:
            continue
        common = max(counts, key=counts.__getitem__)
        complete = [_study(record, name) for name in names if common <= patterns[name]]
        if (comparison := _compared(complete, common)) is not None:
            found.append(comparison)
    return found


def _study(record: Record, name: str) -> _Study:
    about, keys = record.studies[name], ["method", "pattern", "seed"]
    config = config_from_json(about["config"])
    runs = record.runs.filter(study=name).select(*keys, *METRICS)
    found = {tuple(row[key] for key in keys): row for row in runs.iter_rows(named=True)}
    return _Study(config, found)


def _compared(studies: Sequence[_Study], common: Collection[str]) -> Comparison | None:
    """All methods of one task against SAC's tuned constant, and CrossQ's AES against its own; None without SAC's.

    Args:
      common: patterns that all ``studies`` have.
    """
    main = max((each for each in studies if each.carrier == "sac"), key=_opponents, default=None)
    if main is None or (constant := main.constant) is None:
        return None
    seeds, patterns = main.config.seeds, [pattern for pattern in main.config.patterns if pattern in common]
    drifts = {pattern != STEADY for pattern in patterns}
    keys = [(metric, drifting) for drifting in DRIFTS if drifting in drifts for metric in METRICS]

    def levels(study: _Study, row: Row) -> dict[Key, np.ndarray]:
        return {key: study.values(row.name, key, patterns, seeds) for key in keys}

    opponent = levels(main, constant)
    pairs = []  # study, row, opponent's levels and its name
    for study in studies:
        rows = [row for row in rows_of(study.config) if study is not main or row.name != constant.name]
        pairs += [(study, row, opponent, "") for row in rows]
        if study.carrier != main.carrier and (own := study.constant) is not None:
            rules = [row for row in rows if row.method.follows("aes")]
            pairs += [(study, row, levels(study, own), f" minus {_label(own.method)}") for row in rules]
    differences = {}
    for at, (study, row, theirs, _) in enumerate(pairs):
        differences |= {(at, key): ours - theirs[key] for key, ours in levels(study, row).items()}
    tested, rivals = contrasts(differences), []
    for at, (study, row, _, against) in enumerate(pairs):
        kind, label, numbers = _described(study, row, main)
        rivals.append(Rival(kind, label + against, numbers, {key: tested[at, key] for key in keys}))
    rivals.sort(key=lambda rival: KINDS.index(rival.kind))
    means = {key: float(np.nanmean(values)) for key, values in opponent.items()}
    return Comparison(main.config, constant.method.in_force.given["base"], means, rivals)


def _opponents(study: _Study) -> tuple[bool, int]:
    """Whether a study has the baseline, and its number of methods; the studies of a variant have one."""
    methods = study.config.methods
    return any(method.is_baseline for method in methods), len(methods)


def _described(study: _Study, row: Row, main: _Study) -> tuple[str, str, str]:
    """Kind, label and numbers of a rival."""
    config, method = study.config, row.method
    label = _label(method)
    numbers = [f"{name} {number(value)}" for name, value in method.in_force.given.items()]
    if config.observe:
        kind, label = OBSERVATIONS, f"{label}, drift observed"
    elif config.history > 1:
        kind, label = OBSERVATIONS, f"{label}, last {config.history} observations"
    elif config.replay_capacity != main.config.replay_capacity:
        kind, label = DATA, f"{label}, short replay"
        numbers.append(f"replay {config.replay_capacity:,}")
    elif study.carrier != "sac":
        kind = CRITIC
    else:
        kind = next((_LEVERS[lever] for lever in row.turned), SCHEDULES)
    return kind, label, ", ".join(numbers)


def _label(method: Method) -> str:
    """Name of a method without its tuned number; SAC is left out."""
    rule = "+".join([method.in_force.factory.name, *(each.factory.name for each in method.adaptations)])
    text = "own weight" if method.is_baseline else f"`{rule}`"
    if method.follows("aes") and not method.in_force.given:
        text += ", published"
    return text if method.carrier.name == "sac" else f"{method.carrier.label} {text}"


def by_task(found: Sequence[Comparison]) -> str:
    """A table per task with intervals, outcomes and chosen numbers."""
    parts = []
    for comparison in found:
        config, keys = comparison.config, list(comparison.levels)
        head = [f"{METRICS[metric]}, {DRIFTS[drifting]}" for metric, drifting in keys]
        levels = [_text(level, "") for level in comparison.levels.values()]
        body = [["SAC `fixed`, mean return", f"base {number(comparison.constant)}", *levels]]
        for rival in comparison.rivals:
            cells = [_interval(rival.contrasts[key]) for key in keys]
            body.append([rival.label, rival.numbers, *cells])
        title = f"### Part H: `{config.task}`, {config.steps:,} steps"
        parts.append(f"{title}\n\n*{_about([comparison])}*\n\n{markdown(['method', 'number', *head], body)}")
    return "\n".join(parts)


def overview(found: Sequence[Comparison]) -> str:
    """A table under drift and one without, of evaluation and online return; rows are methods, columns are tasks.

    A star is p < 0.05 after Holm. Empty without a task.
    """
    if not found:
        return ""
    kinds = {rival.label: rival.kind for comparison in found for rival in comparison.rivals}
    by_label = [{rival.label: rival for rival in comparison.rivals} for comparison in found]
    names, parts = [f"`{comparison.config.task}`" for comparison in found], []
    for drifting, words in DRIFTS.items():
        body = []
        for label in sorted(kinds, key=lambda name: KINDS.index(kinds[name])):
            cells = [_starred(rivals.get(label), drifting) for rivals in by_label]
            body.append([label, *cells])
        parts.append(markdown([words, *names], body))
    empty = "" if all(rivals.keys() == kinds.keys() for rivals in by_label) else " An empty cell was not trained."
    return "\n".join([*parts, f"Read: evaluation / online; {_about(found)} A star is p < 0.05.{empty}\n"])


def _about(found: Sequence[Comparison]) -> str:
    """Explanation of a table."""
    seeds = " or ".join(map(str, sorted({len(comparison.config.seeds) for comparison in found})))
    return (
        f"mean return after the drift has begun, minus that of SAC with a tuned constant weight, {seeds} paired "
        "seeds. Online is the return earned in training. Tuned methods have one number, chosen from five on the first "
        "tenth of runs without drift (robots: fifth), with other seeds; `fire_reset` acts later, so that it has the "
        "number of `fixed`. Outcomes are after Holm over all differences of a task."
    )


def _text(value: float, sign: str = "+") -> str:
    """One decimal, none from 100 on; positive numbers begin with ``sign``."""
    text = f"{value:{sign},.{0 if abs(value) >= 100 else 1}f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def _interval(contrast: Contrast) -> str:
    value, low, high = map(_text, contrast.interval)
    return f"{value} [{low}, {high}]" + (f" {contrast.outcome}" if contrast.outcome in DECIDED else "")


def _starred(rival: Rival | None, drifting: bool) -> str:
    """Evaluation / online return."""
    own = [] if rival is None else [rival.contrasts[key] for key in rival.contrasts if key[1] == drifting]
    return " / ".join(_text(each.interval.value) + "*" * (each.outcome in DECIDED) for each in own)
