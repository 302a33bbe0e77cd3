"""Tables of the README and of these pages, made from stored records and from the registries.

`python docs/tables.py` rewrites everything between `<!-- table: NAME -->` and `<!-- /table -->`; a test compares.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.measure import holm, paired_differences
from experiments.measure.stats import paired_t_p

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
PATTERNS = ("steady", "abrupt", "linear", "periodic", "mixed")
TABLES: dict[str, Callable[[], str]] = {}
MARK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- /table -->)", flags=re.DOTALL)

RECENT = "fixed+recent"
CHANGE = "AES-C+refresh+recent[refresh.threshold=3]"
RESET = "fixed+reset[reset.every=0.2,reset.strength=0.5]"
TYPED = {
    RECENT: "fixed+recent",
    CHANGE: "aes_c+recent+refresh:threshold=3",
    RESET: "fixed+reset:every=0.2:strength=0.5",
}


class Contrast(NamedTuple):
    """One row of a table: a method of a record minus its opponent, pattern by pattern."""

    label: str
    record: str  # benchmarks/responses_NAME.json
    first: str
    second: str | tuple[str, ...]  # several: the best of them, setting by setting, on the runs of the table


def table(function: Callable[[], str]) -> Callable[[], str]:
    """Register a table under its function's name."""
    TABLES[function.__name__.replace("_", "-")] = function
    return function


def rows(header: list[str], body: list[list[str]]) -> str:
    """A Markdown table; all columns but the first are aligned right if their first cell is a number."""
    right = ["---:" if re.match(r"[-+]?[\d.]", cell) else "---" for cell in body[0]]
    lines = [header, ["---", *right[1:]], *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


@cache
def record(name: str) -> dict:
    """A stored record of `aesjax table responses`."""
    return json.loads((BENCHMARKS / f"responses_{name}.json").read_text())


def scores(name: str, method: str, pattern: str) -> np.ndarray | None:
    """Mean return of every run, (1, seeds), or None where the method was not trained under the pattern."""
    own = record(name)["scores"][method].get(pattern)
    return None if own is None else np.array([[own[seed] for seed in sorted(own, key=int)]])


def opponent(contrast: Contrast, pattern: str) -> np.ndarray | None:
    """The opponent's scores: of several constants those of the largest mean."""
    names = (contrast.second,) if isinstance(contrast.second, str) else contrast.second
    found = [own for own in (scores(contrast.record, name, pattern) for name in names) if own is not None]
    return max(found, key=np.mean) if found else None


def tested(contrasts: list[Contrast], patterns: tuple[str, ...]) -> dict[tuple[int, str], tuple[float, float]]:
    """(row, pattern) -> difference and p-value of the paired t test after Holm over all of the table."""
    differences = {}
    for at, contrast in enumerate(contrasts):
        for pattern in patterns:
            ours, theirs = scores(contrast.record, contrast.first, pattern), opponent(contrast, pattern)
            if ours is not None and theirs is not None:
                differences[at, pattern] = paired_differences(ours, theirs)[0]
    adjusted = holm([paired_t_p(d) for d in differences.values()])
    return {key: (float(np.mean(d)), float(p)) for (key, d), p in zip(differences.items(), adjusted, strict=True)}


def contrasts(rows_: list[Contrast], patterns: tuple[str, ...], places: int, head: str) -> str:
    """The table of differences; a star is p < 0.05 after Holm."""
    values = tested(rows_, patterns)

    def cell(at, pattern):
        if (at, pattern) not in values:
            return ""
        difference, p = values[at, pattern]
        return f"{difference:+,.{places}f}" + ("*" if p < 0.05 else "")

    body = [[r.label, *(cell(at, pattern) for pattern in patterns)] for at, r in enumerate(rows_)]
    return rows([head, *("no drift" if p == "steady" else p for p in patterns)], body)


CARRIERS = ("SAC", "PPO", "SQL", "MEow")
AES = [Contrast(c, f"toy_{c.lower()}", f"{c}+AES", c) for c in CARRIERS]


@table
def aes() -> str:
    """AES minus its carrier on the toy task."""
    return contrasts(AES, PATTERNS, 1, "AES minus its carrier")


def constants(carrier: str) -> tuple[str, ...]:
    """The constant weights of a carrier's record: its grid."""
    return tuple(record(f"toy_{carrier.lower()}")["constants"])


HELPS = [
    *(
        Contrast(f"{c} `{TYPED[m]}`", f"toy_{c.lower()}", f"{c}+{m}", constants(c))
        for c in ("SAC", "SQL", "MEow")
        for m in (RECENT, CHANGE)
    ),
    Contrast(f"PPO `{TYPED[RESET]}`", "toy_ppo", f"PPO+{RESET}", constants("PPO")),
]


@table
def helps() -> str:
    """Adaptations minus the best constant weight of a grid."""
    return contrasts(HELPS, PATTERNS, 1, "return minus a constant weight's")


ROBOTS = [
    Contrast("HalfCheetah SAC", "halfcheetah_sac", "SAC+AES", "SAC"),
    Contrast("HalfCheetah PPO", "halfcheetah_ppo", "PPO+AES", "PPO"),
    Contrast("Hopper SAC", "hopper_sac", "SAC+AES", "SAC"),
    Contrast("Hopper PPO", "hopper_ppo", "PPO+AES", "PPO"),
    Contrast("Walker2d SAC", "walker2d_sac", "SAC+AES", "SAC"),
    Contrast("Isaac Ant PPO", "isaac_ant_ppo", "PPO+AES", "PPO"),
    Contrast("Isaac Ant SAC", "isaac_ant_sac", "SAC+AES", "SAC"),
    Contrast("FrankaCabinet PPO", "franka_cabinet_ppo", "PPO+AES", "PPO"),
    Contrast("Ingenuity PPO", "ingenuity_ppo", "PPO+AES", "PPO"),
]
THREE = ("steady", "abrupt", "periodic")


@table
def robots() -> str:
    """AES minus its carrier on robot tasks."""
    return contrasts(ROBOTS, THREE, 0, "AES minus its carrier")


HC, HT, HO = "halfcheetah_sac", "halfcheetah_sac_threshold", "hopper_sac_threshold"
REFRESH = "AES-C+refresh[refresh.threshold=3]"
#: Only opponents that were trained under every pattern of the row count as its grid.
ROBOT_ADAPTATIONS = [
    Contrast("HalfCheetah SAC, optimiser state loaded: `fixed+recent`", HC, f"SAC+{RECENT}", "SAC+fixed"),
    Contrast("the same: `aes_c+refresh`", HC, "SAC+AES-C+refresh", "SAC+fixed"),
    Contrast("the same: `oracle+window`", HC, "SAC+oracle+window", "SAC+fixed"),
    Contrast("HalfCheetah SAC: `fixed+recent`", HT, f"SAC+{RECENT}", "SAC+fixed"),
    Contrast("the same: `aes_c+refresh:threshold=3`", HT, f"SAC+{REFRESH}", "SAC+fixed"),
    Contrast("the same: `aes_c+recent+refresh:threshold=3`", HT, f"SAC+{CHANGE}", "SAC+fixed"),
    Contrast("the same: `budget`", HT, "SAC+budget", "SAC+fixed"),
    Contrast("Hopper SAC: `aes_c+refresh:threshold=3`", HO, f"SAC+{REFRESH}", "SAC+fixed"),
    Contrast("the same: `aes_c+recent+refresh:threshold=3`", HO, f"SAC+{CHANGE}", "SAC+fixed"),
    Contrast("Walker2d SAC: `aes_c+recent+refresh:threshold=3`", "walker2d_sac", f"SAC+{CHANGE}", "SAC+fixed"),
    Contrast("Isaac Ant PPO: `aes_c+refresh:threshold=3`", "isaac_ant_ppo", f"PPO+{REFRESH}", "PPO"),
    Contrast(f"HalfCheetah PPO: `{TYPED[RESET]}`", "halfcheetah_ppo", f"PPO+{RESET}", "PPO"),
    Contrast("Hopper PPO: the same", "hopper_ppo", f"PPO+{RESET}", "PPO"),
    Contrast("Ingenuity PPO: the same", "ingenuity_ppo", f"PPO+{RESET}", "PPO"),
]


@table
def robot_adaptations() -> str:
    """Adaptations minus the carrier's default constant on robot tasks."""
    return contrasts(ROBOT_ADAPTATIONS, THREE, 0, "return minus the default constant's")


TIMING = [
    Contrast("SAC `aes` minus mean-matched", "toy_sac", "SAC+AES", "SAC+constant_at_mean(aes)"),
    Contrast("SAC `aes` minus time-permuted", "toy_sac", "SAC+AES", "SAC+permuted(aes)"),
    Contrast("PPO `aes` minus mean-matched", "toy_ppo", "PPO+AES", "PPO+constant_at_mean(aes)"),
    Contrast("PPO `aes` minus time-permuted", "toy_ppo", "PPO+AES", "PPO+permuted(aes)"),
    Contrast("SAC `aes_r` minus its base", "toy_sac", "SAC+AES-R", "SAC+fixed"),
    Contrast("PPO `aes_r` minus its base", "toy_ppo", "PPO+AES-R", "PPO"),
    Contrast("SQL `aes_r` minus its base", "toy_sql", "SQL+AES-R", "SQL"),
    Contrast("MEow `aes_r` minus its base", "toy_meow", "MEow+AES-R", "MEow"),
    Contrast("SAC `oracle` minus its base", "toy_sac", "SAC+oracle", "SAC+fixed"),
    Contrast("PPO `oracle` minus its base", "toy_ppo", "PPO+oracle", "PPO"),
    Contrast("SQL `oracle` minus its base", "toy_sql", "SQL+oracle", "SQL"),
    Contrast("MEow `oracle` minus its base", "toy_meow", "MEow+oracle", "MEow"),
]


@table
def timing() -> str:
    """Schedules minus controls of their timing."""
    return contrasts(TIMING, PATTERNS, 1, "toy task")


SIGNAL = [
    Contrast("`aes_r+window` minus `aes_r`", "toy_sac", "SAC+AES-R+window", "SAC+AES-R"),
    Contrast("`aes_r+window` minus time-permuted", "toy_sac", "SAC+AES-R+window", "SAC+permuted(aes_r+window)"),
    Contrast("`oracle+window` minus `fixed`", "toy_sac", "SAC+oracle+window", "SAC+fixed"),
    Contrast("`aes_c+refresh` minus `aes_c`", "toy_sac", "SAC+AES-C+refresh", "SAC+AES-C"),
    Contrast("`fixed+reset:strength=0.5` minus `fixed`", "toy_sac", "SAC+fixed+reset[reset.strength=0.5]", "SAC+fixed"),
    Contrast("`fixed+ere` minus `fixed`", "toy_sac", "SAC+fixed+ere", "SAC+fixed"),
    Contrast("`fixed+redo` minus `fixed`", "toy_sac", "SAC+fixed+redo", "SAC+fixed"),
    Contrast("`fixed+forget` minus `fixed`", "toy_sac", "SAC+fixed+forget", "SAC+fixed"),
    Contrast(f"`{TYPED[CHANGE]}` minus `fixed+recent`", "toy_sac", f"SAC+{CHANGE}", f"SAC+{RECENT}"),
    Contrast(
        "the same minus time-permuted", "toy_sac", f"SAC+{CHANGE}", "SAC+permuted(aes_c+recent+refresh:threshold=3)"
    ),
    Contrast("the same on ten new seeds, minus `fixed+recent`", "confirm_sac", f"SAC+{CHANGE}", f"SAC+{RECENT}"),
]


@table
def signal() -> str:
    """Adaptations of SAC one part at a time."""
    return contrasts(SIGNAL, PATTERNS, 1, "toy task, SAC")


LEVEL = [
    Contrast("SAC, tuned", "toy_sac", "SAC", constants("SAC")),
    Contrast("SAC `budget`", "toy_sac", "SAC+budget", constants("SAC")),
    Contrast("SAC `auto_floor`", "toy_sac", "SAC+auto-F", constants("SAC")),
    Contrast("SQL `budget`", "toy_sql", "SQL+budget", constants("SQL")),
    Contrast("PPO `budget`", "toy_ppo", "PPO+budget", constants("PPO")),
    Contrast("MEow `budget`", "toy_meow", "MEow+budget", constants("MEow")),
]


@table
def level() -> str:
    """Weights without a number to tune, minus the best constant."""
    return contrasts(LEVEL, PATTERNS, 1, "return minus a constant weight's")


@table
def audit() -> str:
    """Each task family alone, as the audit judges it."""
    from experiments.paper.audit import FAMILIES, families

    return rows(FAMILIES, families(json.loads((ROOT / "experiments" / "results" / "audit.json").read_text())))


def filled(text: str) -> str:
    """A page with its tables made again."""
    return MARK.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def pages() -> list[Path]:
    """Pages that may have tables."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text()))
