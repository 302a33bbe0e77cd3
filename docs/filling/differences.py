"""Tables of differences between methods, over all of which Holm corrects."""

from functools import partial
from typing import NamedTuple

import numpy as np

from aesjax.schedules import fixed
from agents import CarrierSpec
from experiments.measure import comparisons
from experiments.paper import record
from experiments.paper.evidence import NAMES, having
from experiments.paper.tables import markdown
from experiments.study.method import Method
from experiments.study.text import parse_method, parse_method_with_carrier
from filling.cells import starred
from filling.records import PATTERNS, runs_of
from filling.registry import TABLES

RECENT = "fixed+recent"
CHANGE = "aes_c+recent+refresh:threshold=3"
REFRESH = "aes_c+refresh:threshold=3"
RESET = "fixed+reset:every={}:strength=0.5"
THREE = ("steady", "abrupt", "periodic")
MECHANICS = ("reacher", "cartpole_swingup")


class Contrast(NamedTuple):
    """One row of a table: a method minus its opponent, pattern by pattern, on the runs of one task of a record."""

    label: str
    source: str  # RECORD/STUDY,STUDY*: of these names; * stands for any part
    task: str
    first: Method
    second: Method | tuple[Method, ...]  # several: the best of them, setting by setting, on the runs of the table
    seeds: tuple[int, ...] = ()  # some of them; empty: all


class Family(NamedTuple):
    """A table of differences, over all of which Holm corrects."""

    head: str
    rows: list[Contrast]
    patterns: tuple[str, ...] = PATTERNS
    places: int = 1


def scores(contrast: Contrast, method: Method, pattern: str) -> dict[int, float]:
    """Mean return of every run by seed; empty where the method was not trained under the pattern.

    Raises:
      ValueError: the source has several runs of a seed.
    """
    runs = runs_of(contrast.source, contrast.task)
    runs = runs.filter(having(runs, method.__eq__), pattern=pattern)
    if runs["seed"].is_duplicated().any():
        studies = ", ".join(runs["study"].unique().sort())
        raise ValueError(f"{contrast.source} has several runs of a method, pattern {pattern}, and seed: {studies}")
    returns = dict(runs.select("seed", "mean_return").iter_rows())
    return {seed: value for seed, value in returns.items() if not contrast.seeds or seed in contrast.seeds}


def tested(family: Family) -> dict[tuple[int, str], comparisons.Contrast]:
    """(row, pattern) -> difference, interval and outcome, after Holm over all of the table."""
    differences = {}
    for at, contrast in enumerate(family.rows):
        opponents = (contrast.second,) if isinstance(contrast.second, Method) else contrast.second
        for pattern in family.patterns:
            ours = scores(contrast, contrast.first, pattern)
            others = [scores(contrast, opponent, pattern) for opponent in opponents]
            if theirs := max((own for own in others if own), key=lambda own: np.mean(list(own.values())), default={}):
                common = sorted(set(ours) & set(theirs))
                differences[at, pattern] = np.array([ours[seed] - theirs[seed] for seed in common])
    return comparisons.contrasts({place: d for place, d in differences.items() if d.size})


def contrasts(family: Family) -> str:
    """The table of differences; a star is p < 0.05 after Holm."""
    values = tested(family)

    def cell(place):
        return starred(values[place], family.places) if place in values else ""

    body = [[r.label, *(cell((at, pattern)) for pattern in family.patterns)] for at, r in enumerate(family.rows)]
    return markdown([family.head, *("no drift" if p == "steady" else p for p in family.patterns)], body)


def constants(source: str, task: str, carrier: CarrierSpec) -> tuple[Method, ...]:
    """The constant weights of a carrier."""
    methods = record.methods_of(runs_of(source, task)).values()
    return tuple(method for method in methods if method.carrier == carrier and method.follows("fixed"))


def robot(label: str, names: str, task: str, first: str, second: str | None = None) -> Contrast:
    """A row of the earlier robot studies, of methods as `sac+aes`; ``second`` None: the best of their constants."""
    source = "earlier/" + ",".join(n if n.startswith("claims") else f"responses-{n}" for n in names.split())
    ours = parse_method_with_carrier(first)
    if second is not None:
        return Contrast(label, source, task, ours, parse_method_with_carrier(second))
    best = constants(source, task, ours.carrier)
    return Contrast(f"{label} {len(best)}", source, task, ours, best)


def grid(task: str, carrier: str, added: str) -> str:
    """The study of a carrier on a small task in the grid, and that of part F, whose name ends with ``added``."""
    part, steps = ("A", 100_000) if task == "toy" else ("C", 40_000)
    return f"grid/{part}-{task}-{steps}-{carrier},F-{task}-{steps}-{added}"


def small(
    label: str, first: str, second: str, tasks: tuple[str, ...] = ("toy", *MECHANICS), seeds: tuple[int, ...] = ()
) -> list[Contrast]:
    """Rows of the earlier small studies, a task each, which replaces the braces of the label."""
    ours, theirs = parse_method_with_carrier(first), parse_method_with_carrier(second)
    texts = {task: label.format(f"`{task}`") for task in tasks}
    return [Contrast(text, "earlier/small-tasks", task, ours, theirs, seeds) for task, text in texts.items()]


HC, HT = (
    "halfcheetah-sac-calm halfcheetah-sac-drift halfcheetah-sac-controls halfcheetah-sac-refresh",
    "halfcheetah-sac-threshold",
)
HC_PPO, HO = "halfcheetah-ppo*", "hopper-sac*"
SMALL_TASKS = ("toy", "reacher", "cartpole_swingup", "pendulum")
CHOICE, CONFIRMATION = tuple(range(1, 11)), tuple(range(11, 21))
_REFRESH, _CHANGE = {"`aes_c+refresh:threshold=3` †": REFRESH}, {"`aes_c+recent+refresh:threshold=3` †": CHANGE}
_LOADED = {"`fixed+recent`": RECENT, "`aes_c+refresh` †": "aes_c+refresh", "`oracle+window`": "oracle+window"}
_RESETS = {"`fixed+reset:every=0.2:strength=0.5`, at changes": RESET.format(0.2)}
#: Label, carrier, studies, task, opponent, label -> method.
_ON_ROBOTS = [
    ("HalfCheetah SAC, Adam loaded", "sac", HC, "halfcheetah", "sac+fixed", _LOADED),
    ("HalfCheetah SAC", "sac", HT, "halfcheetah", "sac+fixed", {"`fixed+recent`": RECENT, **_REFRESH, **_CHANGE}),
    ("Hopper SAC", "sac", HO, "hopper", "sac+fixed", _REFRESH | _CHANGE),
    ("HalfCheetah PPO", "ppo", HC_PPO, "halfcheetah", "ppo", _RESETS),
]
_RELEASE, _STARTS_LOW = "grid/B-toy_multigoal_classic-4000-meow", "meow+aes:base=0.0001"
#: The tables of differences, by name.
FAMILIES = {
    "robots": Family(
        "AES minus the agent alone",
        [
            robot("HalfCheetah SAC", HC, "halfcheetah", "sac+aes", "sac"),
            robot("HalfCheetah SAC, against the best constant of up to", HC, "halfcheetah", "sac+aes"),
            robot("HalfCheetah PPO", HC_PPO, "halfcheetah", "ppo+aes", "ppo"),
            robot("Humanoid PPO", "claims-humanoid-ppo", "humanoid", "ppo+aes", "ppo"),
        ],
        THREE,
        0,
    ),
    "robot-adaptations": Family(
        "return minus the default constant's",
        [
            robot(f"{head}: {label}", names, task, f"{carrier}+{method}", default)
            for head, carrier, names, task, default, methods in _ON_ROBOTS
            for label, method in methods.items()
        ],
        THREE,
        0,
    ),
    "release": Family(
        "MEow, AES minus a constant",
        [
            Contrast(
                f"constant {weight:g}",
                _RELEASE,
                "toy_multigoal_classic",
                parse_method_with_carrier(_STARTS_LOW),
                Method("meow", fixed(weight)),
            )
            for weight in (1.0, 0.3)
        ],
        ("steady", "abrupt", "sawtooth", "periodic", "mixed_release"),
        0,
    ),
    "recent-toy": Family(
        "return minus a constant weight's",
        [
            Contrast(
                f"{ours.carrier.label} `fixed+recent`", source, "toy", ours, constants(source, "toy", ours.carrier)
            )
            for ours in (parse_method(RECENT, "sql"), parse_method(RECENT, "meow"))
            for source in (f"earlier/responses-toy-{ours.carrier.name}",)
        ],
    ),
    "recent": Family(
        "SAC `fixed+recent` minus `fixed`",
        [
            Contrast(
                f"`{task}`", grid(task, "sac", "sac-recent"), task, parse_method(RECENT, "sac"), Method("sac", "fixed")
            )
            for task in SMALL_TASKS
        ],
        (*PATTERNS, "sawtooth"),
    ),
    "recent-small": Family(
        "SAC `fixed+recent` minus `fixed`",
        [
            *small("{} 1:1", "sac+fixed:base=0.03+recent+utd", "sac+fixed:base=0.03+utd", seeds=CHOICE),
            *small("{} 1:4", f"sac+{RECENT}", "sac+fixed", seeds=CHOICE),
            *small("{} 1:4, new seeds", f"sac+{RECENT}", "sac+fixed", seeds=CONFIRMATION),
        ],
    ),
    "steps-small": Family(
        "SAC `fixed`: 1:1 minus 1:4",
        small("{}", "sac+fixed:base=0.03+utd", "sac+fixed:base=0.03", seeds=CHOICE),
    ),
    "resets": Family(
        "PPO `fixed+reset` minus PPO",
        [
            Contrast(
                f"`{task}`, every {every * 100:.0f} %",
                grid(task, "ppo", "ppo"),
                task,
                parse_method(RESET.format(every), "ppo"),
                Method("ppo"),
            )
            for task in SMALL_TASKS
            for every in (0.2, 0.17, 0.23)
        ],
        (*PATTERNS, "sawtooth"),
    ),
    "resets-detected": Family(
        "PPO `aes_c+refresh` minus PPO",
        [
            Contrast(f"`{task}`", grid(task, "ppo", "ppo"), task, parse_method("aes_c+refresh", "ppo"), Method("ppo"))
            for task in SMALL_TASKS
        ],
        (*PATTERNS, "sawtooth"),
    ),
    "small-tasks-others": Family(
        "return minus a constant weight's, 1:4",
        [
            *small("SQL, {} `fixed`, 1:1", "sql+fixed:base=0.03+utd", "sql", ("reacher",)),
            *(
                row
                for carrier in ("SQL", "MEow")
                for method, ratio in ((RECENT, "1:4"), ("fixed+recent+utd", "1:1"))
                for row in small(
                    f"{carrier}, {{}} `fixed+recent`, {ratio}",
                    f"{NAMES[carrier]}+{method}",
                    NAMES[carrier],
                    ("reacher",),
                )
            ),
        ],
    ),
}


TABLES.update({name: partial(contrasts, family) for name, family in FAMILIES.items()})
