"""Tables of a record as Markdown, and the paper's own beside ours."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import agents
from aesjax.schedules import aes
from experiments.measure.catalog import CATALOG
from experiments.measure.comparisons import ACTED, DECIDED, ENOUGH, EQUAL, MARGIN, OUTCOMES, Contrast, contrasts
from experiments.measure.metrics import clearly_positive
from experiments.measure.runs import Acted
from experiments.measure.study import STEADY
from experiments.measure.tables import paper_nauc_drop, paper_recovery, paper_table
from experiments.paper.design import APPENDIX, TASKS
from experiments.paper.evidence import (
    CARRIERS,
    FEWEST,
    NOTHING,
    PATTERNS,
    SETTING,
    Evidence,
    Side,
    expected,
    having,
    levels_of,
    measure,
    unclear,
)  # fmt: skip
from experiments.paper.learned import learned, published
from experiments.paper.record import RUN, Gathered, method_of, methods_of, valid_mean
from experiments.study.method import BASELINE as OWN
from experiments.study.method import Method
from experiments.study.text import number

#: Seeds on which kappa and the constant are chosen, and seeds on which their differences are reported.
CHOOSING, REPORTING = range(1, 6), range(6, 11)
#: Studies with tables of their own: the appendix, and part H.
_IN_GRID = ~pl.col("study").str.contains("^(appendix|H|S)-")
_Key = tuple[str, str]  # row of a table, pattern


class Setting(NamedTuple):
    """A carrier on a task, with its runs, its methods by their part in the tables, and its contrasts."""

    task: str
    steps: int
    carrier: str
    runs: pl.DataFrame
    methods: dict[str, str]  # row of the tables -> method
    constant: str  # the chosen one, or the carrier's own
    gain: float  # of the baseline over random actions without drift; NaN unless clearly positive
    pinned: set[tuple[str, str]]  # method and pattern of the schedules that are pinned
    reporting: tuple[int, ...]  # seeds of the contrasts with the chosen constant
    tuned: dict[_Key, Contrast]  # minus the chosen constant; empty where no seeds are left for a choice
    published: dict[_Key, Contrast]  # published AES minus others, on all seeds

    @property
    def is_robot(self) -> bool:
        return self.runs["family"][0] in ("mujoco", "isaac")

    @property
    def tuned_before(self) -> bool:
        """Whether kappa and the constant were chosen on seeds of their own, not on runs of the record."""
        return _is_tuned_before(self.runs)

    @property
    def margin(self) -> str:
        """The margin of equivalence in a sentence."""
        return f"Margin of equivalence: {MARGIN * self.gain:.2f}." if self.gain > 0 else "No margin of equivalence."

    @property
    def patterns(self) -> list[str]:
        """In the order of the studies."""
        return self.runs["pattern"].unique(maintain_order=True).to_list()


BASELINE, PUBLISHED, TUNED, RATIO, LEVEL, TIMING, ZERO, CONSTANT, RECENT = (
    "baseline",
    "`aes`, published",
    "`aes`, chosen kappa",
    "`aes_r`",
    "mean-matched constant of `aes`",
    "time-permuted weights of `aes`",
    "constant 0",
    "default constant",
    "`fixed+recent`",
)
RESET = "`fixed+reset`"


def kappa_of(method: Method) -> float:
    """Factor of AES; the published one is 1."""
    return method.in_force.given.get("kappa", 1.0)


def plays(method: Method, control: str) -> bool:
    """Whether a method is this control of AES with its default options."""
    played = method.control
    return played is not None and played.name == control and played.of == Method(method.carrier, aes())


#: Words -> metric. nAUC divides mean return by one level per task.
METRICS = {
    "mean return, and so nAUC": "mean_return",
    "DropRatio": "drop_run_safe",
    "recovery": "recovery",
    "recovery, robust": "recovery_robust",
}


def settings(runs: pl.DataFrame, metric: str = "mean_return") -> Iterator[Setting]:
    """Every setting of an agent that learned, with enough seeds, runs without drift, published AES and a constant.

    Args:
      metric: of the contrasts; mean return chooses kappa and the constant.
    """
    for (task, steps, carrier, *_), own in runs.filter(_IN_GRID).group_by(SETTING, maintain_order=True):
        if _is_complete(own) and learned(alone_without_drift(own), "task")["learned"].item():
            yield _setting(task, steps, carrier, own, metric)


def alone_without_drift(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs of agents with their own weight, without drift."""
    return runs.filter(having(runs, lambda method: method.is_baseline), pattern=STEADY)


def _is_tuned_before(runs: pl.DataFrame) -> bool:
    """Whether the numbers of these runs were chosen on other seeds, without drift: part G."""
    return runs["study"].str.starts_with("G-").all()


def _is_complete(runs: pl.DataFrame) -> bool:
    """Whether a setting has enough seeds, AES, a constant, and runs of its baseline without drift."""
    methods = methods_of(runs).values()
    compared = all(any(method.follows(name) for method in methods) for name in ("aes", "fixed"))
    return compared and len(alone_without_drift(runs)) > 0 and runs["seed"].n_unique() >= ENOUGH


def unfilled(part: str, runs: pl.DataFrame) -> str:
    """Reason why the tables of a part would be empty, at the end of a sentence, from the runs that are planned."""
    if part == "appendix":
        enough = runs.filter(pl.col("pattern").is_in(PATTERNS))["seed"].n_unique() >= FEWEST
        return "" if enough else f"{FEWEST} seeds, and a pattern of {', '.join(PATTERNS)}"
    if part == "S":
        return "" if len(alone_without_drift(runs)) else f"the pattern {STEADY}"
    of = "one carrier"
    if part == "H":  # its opponent is SAC's constant
        runs, of = runs.filter(carrier="sac"), "SAC"
    full = any(_is_complete(own) for _, own in runs.group_by(SETTING))
    return "" if full else f"the pattern {STEADY}, {ENOUGH} seeds, a constant and `aes`, of {of} on a task"


def _setting(task: str, steps: int, carrier: str, runs: pl.DataFrame, metric: str) -> Setting:
    seeds = sorted(runs["seed"].unique())
    before = _is_tuned_before(runs)
    chosen = before or {*CHOOSING, *REPORTING} <= set(seeds)
    reporting = tuple(seeds) if before or not chosen else tuple(REPORTING)
    first = runs.filter(pl.col("seed").is_in(list(CHOOSING if chosen and not before else seeds)))
    # A method with a run that diverged is not chosen.
    level, weight = pl.col("mean_return").mean().fill_nan(-np.inf), pl.col("mean_entropy_weight").mean()
    means = first.group_by("method").agg(level, weight)
    means = means.sort("mean_return", "method", descending=True)
    weights = dict(means.select("method", "mean_entropy_weight").iter_rows())
    definitions, names = methods_of(first), list(weights)  # best first
    constants = [name for name in names if definitions[name].follows("fixed") and weights[name] > 0.0]
    rules = [name for name in names if definitions[name].follows("aes")]
    if before:
        fixed = [name for name in names if definitions[name].follows("fixed")]
        constants = [name for name in fixed if not definitions[name].is_baseline] or fixed
        rules = [name for name in rules if kappa_of(definitions[name]) != 1.0]
    tests: Mapping[str, Callable[[str], bool]] = {
        BASELINE: lambda name: definitions[name].is_baseline,
        PUBLISHED: lambda name: definitions[name].follows("aes") and kappa_of(definitions[name]) == 1.0,
        TUNED: lambda name: chosen and name in rules[:1],
        RATIO: lambda name: definitions[name].follows("aes_r"),
        LEVEL: lambda name: plays(definitions[name], "constant_at_mean"),
        TIMING: lambda name: plays(definitions[name], "permuted"),
        ZERO: lambda name: definitions[name].follows("fixed") and weights[name] == 0.0,
    }
    methods: dict[str, str] = {}
    for row, test in tests.items():
        for name in filter(test, names):
            methods[row] = name
    for name in names:
        if (method := definitions[name]).adaptations:
            label = name.removeprefix(f"{method.carrier.label}+")
            methods[f"`{label.partition('[')[0] if before else label}`"] = name  # without its chosen numbers
    own = [name for name in constants if not definitions[name].values]
    constant = constants[0] if chosen else (own or [methods[BASELINE]])[0]
    steady = runs.filter(method=methods[BASELINE], pattern=STEADY)
    gains = (steady["mean_return"] - steady["floor"]).to_numpy()
    gain = float(np.nanmean(gains)) if clearly_positive(gains) else float("nan")
    others = {row: m for row, m in methods.items() if m != constant and (row != TUNED or m != methods[PUBLISHED])}
    tuned = {row: (m, constant) for row, m in others.items()} if chosen else {}
    opponents = methods if chosen or constant == methods[BASELINE] else {**methods, CONSTANT: constant}
    pairs = {
        row: (methods[PUBLISHED], opponents[row]) for row in (BASELINE, CONSTANT, LEVEL, TIMING) if row in opponents
    }
    definition = CATALOG[metric]
    scored = runs.with_columns(value=-pl.col(metric) if definition.lower_is_better else pl.col(metric))
    if definition.denominator == "own":
        scored = scored.join(unclear(runs), on="method", how="anti")
    if metric != "mean_return":  # of changes alone, and without a margin
        scored, gain = scored.filter(pl.col("value").is_not_nan(), pl.col("pattern") != STEADY), float("nan")
    logs = acted(runs)
    found = _contrasts(scored, logs, tuned, reporting, gain), _contrasts(scored, logs, pairs, seeds, gain)
    pinned = {place for place, each in logs.items() if each.pinned}
    return Setting(task, steps, carrier, runs, methods, constant, gain, pinned, reporting, *found)


def acted(runs: pl.DataFrame) -> dict[tuple[str, str], Acted]:
    """How every method set the entropy weight under every pattern: (method, pattern) -> means over its runs."""
    means = runs.group_by("method", "pattern").agg(pl.col("definition").first(), valid_mean(*ACTED))
    return {(name, pattern): Acted(method_of(text), *logs) for name, pattern, text, *logs in means.iter_rows()}


def _contrasts(
    runs: pl.DataFrame,
    weights: Mapping[tuple[str, str], Acted],
    pairs: Mapping[str, tuple[str, str]],
    seeds: Sequence[int],
    gain: float,
) -> dict[_Key, Contrast]:
    """Differences of the pairs under every pattern; Holm over all of them."""
    columns, nan = runs.select("method", "pattern", "seed", "value").iter_rows(), float("nan")
    values = {(method, pattern, seed): value for method, pattern, seed, value in columns}
    equal = set[_Key]()
    for (row, methods), pattern in product(pairs.items(), runs["pattern"].unique()):
        ours, theirs = (weights.get((method, pattern)) for method in methods)
        if ours and theirs and ours.equals(theirs):
            equal.add((row, pattern))
    differences = {
        (row, pattern): np.array(
            [values.get((ours, pattern, s), nan) - values.get((theirs, pattern, s), nan) for s in seeds]
        )
        for row, (ours, theirs) in pairs.items()
        for pattern in runs["pattern"].unique(maintain_order=True)
    }
    return contrasts(differences, gain=gain, equal=equal)


def tables(runs: pl.DataFrame) -> str:
    """All tables in Markdown: outcomes of every setting, then tables of differences for each."""
    found = list(settings(runs))
    return "\n".join([overview(found), *(tables_of(setting) for setting in found)])


def counted(outcomes: Sequence[str]) -> str:
    """Number of comparisons per outcome, in words."""
    counts = {kind: outcomes.count(kind) for kind in OUTCOMES}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def cells_of(
    setting: Setting, row: str, part: str, *, pinned: bool | None = None, drifting: bool | None = None
) -> dict[str, Contrast]:
    """Contrasts of a row of the tables by pattern; for a tuned kappa of 1 those of published AES.

    Args:
      pinned: only where the schedule of the row is pinned, or only where its weight moves; by default both.
      drifting: only the patterns that drift, or only runs without drift; by default both.
    """
    method = setting.methods.get(row if part == "tuned" else PUBLISHED)
    cells: Mapping[_Key, Contrast] = getattr(setting, part)
    row = PUBLISHED if row == TUNED and setting.methods.get(TUNED) == setting.methods[PUBLISHED] else row
    own = {pattern: each for (label, pattern), each in cells.items() if label == row}
    return {
        at: each
        for at, each in own.items()
        if pinned in (None, (method, at) in setting.pinned) and drifting in (None, at != STEADY)
    }


def outcomes(setting: Setting, row: str, part: str, **kinds: bool | None) -> list[str]:
    """Outcomes of `cells_of` a row."""
    return [each.outcome for each in cells_of(setting, row, part, **kinds).values()]


def overview(found: Sequence[Setting]) -> str:
    """Outcomes of AES on every task and carrier, counted over patterns."""
    body = []
    for setting in found:
        cells = [counted(outcomes(setting, *contrast)) or "not in the grid" for contrast in CONTRASTS.values()]
        body.append([f"`{setting.task}` {setting.methods[BASELINE]}, {setting.steps:,} steps", *cells])
    return markdown(["AES", *CONTRASTS], body)


#: The contrasts of AES: words, then row and part of the tables.
CONTRASTS = {
    "published, against the agent alone": (BASELINE, "published"),
    "published, against a tuned constant": (PUBLISHED, "tuned"),
    "kappa tuned, against a tuned constant": (TUNED, "tuned"),
    "level: published, against its mean-matched constant": (LEVEL, "published"),
    "timing: published, against its time-permuted weights": (TIMING, "published"),
}
#: Columns of the verdict: words, then whether the weight is pinned, and whether the task is a robot.
_GROUPS = {
    "weight moves, small tasks": (False, False),
    "weight moves, robots": (False, True),
    "pinned, small tasks": (True, False),
    "pinned, robots": (True, True),
}


def verdict(found: Sequence[Setting]) -> str:
    """Outcomes under drift over carriers, patterns and tasks at their longest horizon, by moving and pinned weights."""
    body = []
    for words, (row, part) in CONTRASTS.items():
        line = [words]
        for pinned, robot in _GROUPS.values():
            chosen = []
            for setting in (each for each in longest(found) if each.is_robot == robot):
                chosen += outcomes(setting, row, part, pinned=pinned, drifting=True)
            line.append(counted(chosen) or "none")
        body.append(line)
    return markdown(["AES", *_GROUPS], body)


#: Environment steps at which agents are compared to public ones, and the share before them that is averaged.
MILESTONES, WINDOW = (26_000, 100_000, 300_000, 1_000_000), 0.1


def without_drift(runs: pl.DataFrame, task: str, carrier: str, preset: str = "quick") -> pl.DataFrame:
    """Runs of a carrier's own weight without drift, which began untrained."""
    return alone_without_drift(runs.filter(task=task, carrier=carrier, preset=preset, trained=False))


def earned(runs: pl.DataFrame, curves: pl.DataFrame, steps: int) -> np.ndarray:
    """Mean return in the tenth of ``steps`` before them, of every run that comes within 2 % of them, (runs,)."""
    enough = runs.filter(pl.col("steps") >= 0.98 * steps)
    late = pl.col("step").is_between((1 - WINDOW) * steps, steps, closed="right")
    window = curves.join(enough, on=RUN, how="semi").filter(late)
    return window.group_by(RUN, maintain_order=True).agg(pl.col("return_mean").mean())["return_mean"].to_numpy()


def reached(runs: pl.DataFrame, curves: pl.DataFrame) -> str:
    """Mean returns of agents without drift beside public ones of as many steps, in brackets; MuJoCo's robots.

    Args:
      runs, curves: of a record. A number is `earned` of all runs of as many steps, which several studies have.
    """
    body = []
    for task, carrier, preset in product(TASKS["mujoco"], ("sac", "ppo", "crossq"), ("quick", "paper")):
        trained = without_drift(runs, task, carrier, preset)
        if trained.is_empty():
            continue
        public = dict(published(task, carrier).select("steps", "return").iter_rows())
        line = [f"`{task}` {agents.CARRIERS[carrier].label}" + f", preset `{preset}`" * (preset != "quick")]
        for steps in MILESTONES:
            ours = earned(trained, curves, steps)
            text = f"{ours.mean():,.0f}" if len(ours) else "–"
            line.append(f"{text} ({public[steps]:,.0f})" if steps in public else text)
        body.append(line)
    return markdown(["ours (public)", *(f"{steps:,} steps" for steps in MILESTONES)], body)


def robots(evaluated: Sequence[Setting], online: Sequence[Setting]) -> str:
    """Differences from the tuned constant on robots that have learned, a row per pattern and kind of return.

    Args:
      evaluated, online: `settings` of `mean_return` and of `online_return`.
    """
    metrics = {"mean_return": ("evaluation", evaluated), "online_return": ("online", online)}
    columns = {"own weight": (BASELINE,), "`aes`, published": (PUBLISHED,), "`aes`, tuned": (TUNED,)}
    columns |= {"newer data (PPO: resets)": (RECENT, RESET)}
    body = []
    for metric, (words, found) in metrics.items():
        for setting in (each for each in found if each.is_robot and each.tuned):
            constant = setting.runs.filter(pl.col("seed").is_in(setting.reporting), method=setting.constant)
            for pattern in dict.fromkeys(pattern for _, pattern in setting.tuned):
                level = constant.filter(pattern=pattern).select(valid_mean(metric)).item()
                cells = [_decided(setting, names, pattern) for names in columns.values()]
                name = f"`{setting.task}` {setting.methods[BASELINE]}, {words}"
                body.append([name, "no drift" if pattern == STEADY else pattern, f"{level:,.0f}", *cells])
    return markdown(["return", "drift", "tuned constant", *columns], sorted(body, key=lambda line: line[0]))


def _decided(setting: Setting, rows: Sequence[str], pattern: str) -> str:
    """The difference of the first of these rows that a setting has, with its interval; a star where it is decided."""
    for row in rows:
        if contrast := cells_of(setting, row, "tuned").get(pattern):
            value, _, high = contrast.interval
            return f"{value:+,.0f} ± {high - value:,.0f}" + "*" * (contrast.outcome in DECIDED)
    return "no data"


def power(found: Sequence[Setting]) -> str:
    """Smallest and largest detectable difference of each contrast, in % of the agent's gain; constants left out."""
    groups: dict[str, list[Setting]] = {}
    for setting in longest(found):
        family = {"mujoco": "MuJoCo", "isaac": "Isaac"}.get(setting.runs["family"][0], f"`{setting.task}`")
        groups.setdefault(family, []).append(setting)
    body = []
    for family, own in groups.items():
        line = [family]
        for row, part in CONTRASTS.values():
            cells = (each for setting in own for each in cells_of(setting, row, part).values())
            shares = [100 * each.detectable_share for each in cells if each.gain > 0 and each.outcome != EQUAL]
            line.append(f"{min(shares):.0f} to {max(shares):.0f}" if shares else "none")
        body.append(line)
    return markdown(["detectable, % of the gain", *CONTRASTS], body)


def by_metric(runs: pl.DataFrame) -> str:
    """Outcomes in the paper's metrics, over all carriers, patterns and tasks at their longest horizon."""
    found = [longest(list(settings(runs, metric))) for metric in METRICS.values()]
    body = []
    for (words, (row, part)), (weight, pinned) in product(CONTRASTS.items(), {"moves": False, "pinned": True}.items()):
        groups = ([outcome for each in own for outcome in outcomes(each, row, part, pinned=pinned)] for own in found)
        body.append([f"{words}; {weight}", *map(counted, groups)])
    return markdown(["AES; weight", *METRICS], body)


def longest(found: Sequence[Setting]) -> list[Setting]:
    """Each task and carrier at its longest horizon."""
    return list({(each.task, each.carrier): each for each in sorted(found, key=lambda each: each.steps)}.values())


_CELLS = "± half of the 95 % t interval (smallest difference that is detected with probability 0.8)"


def tables_of(setting: Setting) -> str:
    """Differences on one task and carrier: from the chosen constant, and of published AES."""
    runs, title = setting.runs, f"`{setting.task}`, {setting.methods[BASELINE]}, {setting.steps:,} steps"
    updates = np.median(runs["gradient_steps"].to_numpy()) / setting.steps
    common = f"{setting.steps:,} steps, {updates:.2g} gradient steps per environment step."
    weights = dict(runs.group_by("method").agg(pl.col("mean_entropy_weight").mean()).iter_rows())
    head, parts = ["no drift" if pattern == STEADY else pattern for pattern in setting.patterns], [f"### {title}"]
    if setting.tuned:
        methods = methods_of(runs)
        kappa = number(kappa_of(methods[setting.methods[TUNED]]))
        rules = [name for name, method in methods.items() if method.follows("aes")]
        constants = [name for name, method in methods.items() if method.follows("fixed") and weights[name] > 0.0]
        choice = f"chose kappa {kappa}{{}} and the constant {weights[setting.constant]:.2g}{{}}."
        if setting.tuned_before:
            chosen = f"Five other seeds {choice.format('', '')} All {len(setting.reporting)} seeds are reported."
        else:
            counts = (f" of {len(own)}" for own in (rules, constants))
            chosen = f"Seeds 1 to 5 {choice.format(*counts)} Seeds 6 to 10 are reported."
        read = (
            f"read: mean return minus the chosen constant's, paired by seed, {_CELLS}. {common} "
            f"{chosen} Holm family: the {len(setting.tuned)} contrasts of this "
            f"table. {setting.margin}"
        )
        level = runs.filter(pl.col("seed").is_in(setting.reporting), method=setting.constant)
        means = dict(level.group_by("pattern").agg(valid_mean("mean_return")).iter_rows())
        body = [["mean return of the constant", *(f"{means[pattern]:.1f}" for pattern in setting.patterns)]]
        body += _rows(setting, setting.tuned, setting.methods)
        parts += [f"*{read}*", markdown(["minus the chosen constant", *head], body)]
    published = runs.filter(method=setting.methods[PUBLISHED])
    clipped = f"at its upper clip in {100 * published['saturation_max'].to_numpy().mean():.0f} % of the updates."
    count = runs["seed"].n_unique()
    seeds = f"All {'ten' if count == 10 else count} seeds"
    steady = runs.filter(method=setting.methods[BASELINE], pattern=STEADY)
    learned = f"Without drift the baseline ends at {steady['final_return'].mean():,.0f}; the random policy earns "
    read = (
        f"read: mean return of published `aes` minus each row's, paired by seed, {_CELLS}. "
        f"{common} Mean weight of `aes`: {weights[published['method'][0]]:.2g}; {clipped} "
        f"{learned}{steady['floor'][0]:,.0f}. {seeds}; nothing was chosen. "
        f"Holm family: the {len(setting.published)} contrasts of this table. "
        f"{setting.margin}"
    )
    rest = _rows(setting, setting.published, dict.fromkeys(row for row, _ in setting.published))
    parts += [f"*{read}*", markdown(["published `aes` minus", *head], rest)]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _rows(setting: Setting, cells: Mapping[_Key, Contrast], rows: Any) -> list[list[str]]:
    out = []
    for row in rows:
        line = [row]
        for pattern in setting.patterns:
            if (row, pattern) in cells:
                (value, _, high), _, outcome, detectable, _ = cells[row, pattern]
                difference = f"{value:+,.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")
                line.append(f"{difference} ± {high - value:,.1f} ({detectable:,.1f}) {outcome}")
            else:
                line.append("the constant" if setting.methods[row] == setting.constant else "as published")
        out.append(line)
    return out


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table; columns with a number in them are aligned right, but for the first."""
    numbers = [any(re.match(r"\W*\d", line[at]) for line in body) for at in range(1, len(head))]
    lines = [head, ["---", *("---:" if found else "---" for found in numbers)], *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def paper_tables(gathered: Gathered) -> str:
    """The paper's two main tables, ours beside the paper's, and the runs behind them."""
    evidence, sides, every = Evidence(gathered), (Side(("aes",)), Side((OWN,))), [STEADY, *PATTERNS]
    levels = evidence.pairs(*sides, "nauc_task_safe", expected(every))
    drops = evidence.pairs(*sides, "drop_run_safe", expected())
    times = evidence.pairs(*sides, "recovery", expected(("abrupt",)))
    parts = []
    for at, (title, found) in enumerate({"nAUC": levels, "DropRatio": drops}.items()):
        if found.is_empty():
            continue
        head, body = every[at:], []
        for family, carrier in ((family, carrier) for family in TASKS for carrier in CARRIERS):
            own = found.filter(pl.col("task").is_in(TASKS[family]), carrier=carrier)
            paper = {
                p: [(paper_nauc_drop(family, label, p) or ("", ""))[at] for label in (carrier, f"{carrier}+AES")]
                for p in head
            }
            body.append([f"{family} {carrier}", *(_beside(own.filter(pattern=p), paper[p], 1.0, 2) for p in head)])
        head = ["agent alone, then with `aes`", *("no drift" if p == STEADY else p for p in head)]
        parts.append(f"**{title}: paper; ours**\n\n{markdown(head, body)}")
    body = []
    for family, task in ((family, task) for family, tasks in TASKS.items() for task in tasks):
        line = [f"`{task}`"]
        for carrier in CARRIERS:
            name, labels = task.removeprefix("isaac_"), (carrier, f"{carrier}+AES")
            paper = [paper_recovery(family, name, label, "abrupt") for label in labels]
            line.append(_beside(times.filter(task=task, carrier=carrier), paper, 100.0, 1))
        body.append(line)
    title = "Recovery after abrupt changes, % of training: paper; ours"
    parts += [f"**{title}**\n\n{markdown(['task', *CARRIERS], body)}"] if len(times) else []
    used = pl.concat([levels, drops, times]).select("task", "carrier", "rank").unique(["task", "carrier"], keep="last")
    idle = evidence.idle.join(evidence.runs.select("rank", "task").unique(), on="rank").select(used.columns)
    behind = [
        [f"`{t}` {c}", *_scale(evidence.runs.filter(rank=rank, label=c)), "above" if learned else "not learned"]
        for frame, learned in ((used, True), (idle, False))
        for t, c, rank in frame.sort("task", "carrier", "rank").iter_rows()
    ]
    head = ["runs", "steps", "seeds", "begin", "drift", "untrained policy", "last tenth", "random policy", "tables"]
    return "\n".join([*parts, markdown(head, behind)])


def _beside(found: pl.DataFrame, paper: Sequence[Any], factor: float, places: int) -> str:
    """The paper's two numbers and ours, the carrier's before that with AES."""
    ours = "no data"
    if len(found):
        means = levels_of(found, "task", "carrier", "pattern").select(pl.col("second", "first").mean()).row(0)
        ours = " → ".join(f"{factor * mean:.{places}f}" for mean in means)
    return f"{' → '.join(str(each) for each in paper)}; {ours}"


def _scale(runs: pl.DataFrame) -> list[str]:
    first = runs.row(0, named=True)
    own = runs.filter(having(runs, lambda method: method == Method(method.carrier)), pattern=STEADY)
    names = ("untrained", "final_return")
    levels = ["" if own.is_empty() else f"{own.select(valid_mean(name)).item():,.0f}" for name in names]
    begin = "trained" if first["trained"] else "untrained"
    drift = "other ranges" if "=" in first["channels"] else "the task's"
    return [f"{first['steps']:,}", str(runs["seed"].n_unique()), begin, drift, *levels, f"{first['floor']:,.0f}"]


def _differ(evidence: Evidence, carrier: str, methods: Iterable[str]) -> bool:
    """Whether the runs of these methods differ; identical ones, of a pinned weight, would count once per row."""
    places = expected(PATTERNS, [carrier], TASKS["toy"])
    levels = (evidence.pairs(Side((text,)), NOTHING, "mean_return", places)["first"].to_list() for text in methods)
    return len(set(map(tuple, levels))) > 1


def appendix_tables(gathered: Gathered) -> str:
    """The paper's tables of Appendix B, ours beside the paper's; empty where nothing of them was trained."""
    evidence, parts = Evidence(gathered), []
    ranks = evidence.runs["rank"].unique()
    for table, rows in APPENDIX.items():
        body = []
        # Only carriers with every row in one group of runs: otherwise rows would differ in more than their method.
        full = {(c, k) for c in CARRIERS for k in ranks if all(evidence.named(k, c, text) for text in rows.values())}
        carriers = [carrier for carrier in CARRIERS if carrier in {each for each, _ in full}]
        kept = evidence.runs.filter(pl.col("rank").is_in([rank for _, rank in full])).drop("rank", "label")
        own = Evidence(gathered._replace(runs=kept))
        carriers = [carrier for carrier in carriers if _differ(own, carrier, rows.values())]
        for (name, text), printed in zip(rows.items() if carriers else (), paper_table(table), strict=bool(carriers)):
            line, count = [name], 0
            for metric, column in (("nauc_task_safe", "nauc"), ("drop_run_safe", "drop_ratio")):
                found = own.pairs(Side((text,)), NOTHING, metric, expected(PATTERNS, carriers, TASKS["toy"]))
                m, count = measure(found) if len(found) else None, found.n_unique(["task", "carrier", "pattern"])
                interval = "" if m is None or m.low is None else f" [{m.low:.2f}, {m.high:.2f}]"
                line += [str(printed[column]), "no data" if m is None else f"{m.value:.2f}{interval}"]
            body.append([*line, str(count)])
        if carriers:
            head = [table, "nAUC: paper", "ours", "DropRatio: paper", "ours", f"settings of {', '.join(carriers)}"]
            parts.append(markdown(head, body))
    return "\n".join(parts)
