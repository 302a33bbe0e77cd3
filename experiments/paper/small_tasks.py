"""Tables of the records `small-tasks` and `bounds` in `experiments/results`: scores of their runs, and a page of them.

python -m experiments.paper.small_tasks DIR --studies STUDY ...   # adds scores of finished studies, writes the page
python -m experiments.paper.small_tasks DIR                       # the page alone, from the stored scores
"""

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from experiments.measure import stats
from experiments.measure.comparisons import best_of
from experiments.measure.curves import Curve, final_return, mean_return
from experiments.study import store
from experiments.study.store import open_results

RUNS, PAGE = "runs.csv", "tables.md"
PATTERNS = ("steady", "abrupt", "linear", "periodic", "mixed")
RUN = ["task", "method", "pattern", "seed"]
#: Seeds of the tables, of the choice, and of its confirmation.
SEEDS, CHOICE, CONFIRMATION = range(1, 11), range(1, 6), range(11, 21)
GRID = "best of the grid"  # the preset's constant is one of its cells
#: Methods that are judged, without their carrier's name; grid cells are opponents only.
CANDIDATES = {
    "SAC": ("", "+AES", "+fixed+recent", "+AES-C+recent", "+fixed+recent+utd", "+AES-C+burst"),
    "PPO": ("+AES", "+AES-C+refresh", "+fixed+reset[reset.every=0.2,reset.strength=0.5]"),
    "SQL": ("+AES", "+fixed+recent", "+fixed+recent+utd", "+AES-C+burst"),
    "MEow": ("+AES", "+fixed+recent", "+fixed+recent+utd", "+AES-C+burst"),
}

Setting = tuple[str, str]  # task, pattern
Scores = dict[str, dict[Setting, dict[int, float]]]  # method -> setting -> seed -> return


class Contrast(NamedTuple):
    """A paired difference in one setting."""

    method: str
    opponent: str
    setting: Setting
    interval: stats.Interval  # of the mean difference, units of return
    p: float  # two-sided, before Holm


Judged = dict[tuple[str, str, Setting], tuple[Contrast, float]]  # method, opponent, setting -> contrast, p after Holm


def constant_of(carrier: str) -> str:
    """The carrier with its preset's constant weight; SAC by itself tunes its weight."""
    return "SAC+fixed" if carrier == "SAC" else carrier


def recent_of(carrier: str) -> str:
    """The same, drawing from recent transitions only."""
    return f"{carrier}+fixed+recent"


def true_of(carrier: str) -> str:
    """The constant with the true drift in its observation: a reference, neither a method nor an upper bound."""
    return f"{constant_of(carrier)}, true drift observed"


def carrier_in(method: str) -> str:
    """The carrier's name, the first part of a method's."""
    return re.split(r"[+,]", method)[0]


def scores_of_studies(folders: Sequence[Path]) -> pl.DataFrame:
    """One row per run: task, method, pattern, seed; mean return over training and over its last tenth."""
    rows = []
    for folder in folders:
        results = open_results(folder)
        curves = store.read_rows(folder / store.CURVES, results.check(store.CURVES))
        warm = ", trained" if results.config.get("warm_start") else ""  # another setting than with new agents
        for (task, method, *rest), part in curves.group_by(RUN, maintain_order=True):
            steps, returns = (part[name].to_numpy().astype(float) for name in ("step", "return_mean"))
            curve = Curve(steps, returns, float(steps[-1]))
            if results.config.get("observe"):
                method = true_of(carrier_in(str(method)))
            scores = (mean_return(curve), final_return(curve))
            rows.append((task + warm, method, *rest, *(round(score, 4) for score in scores)))
    return pl.DataFrame(rows, [*RUN, "mean_return", "final_return"], orient="row")


def scores_of(runs: pl.DataFrame) -> Scores:
    """Mean return of every run, by method, setting and seed."""
    scores: Scores = {}
    for task, method, pattern, seed, value in runs.select(*RUN, "mean_return").iter_rows():
        scores.setdefault(method, {}).setdefault((task, pattern), {})[seed] = value
    return scores


def grid_of(scores: Scores, carrier: str, task: str) -> list[str]:
    """Cells of the stated grid that were trained on the task, the preset's constant first; empty if it is alone."""
    cells = [method for method in scores if method.startswith(f"{carrier}+fixed") and "[base=" in method]
    own = [cell for cell in cells if any(setting[0] == task for setting in scores[cell])]
    return [constant_of(carrier), *own] if own else []


def best_cell(scores: Scores, carrier: str, setting: Setting, seeds: Sequence[int]) -> str:
    """The grid cell with the highest mean score on these seeds, chosen in hindsight."""
    cells = grid_of(scores, carrier, setting[0])
    shared = {cell: {setting[1]: {seed: scores[cell][setting][seed] for seed in seeds}} for cell in cells}
    return str(best_of(shared, cells, setting[1]))


def contrast(scores: Scores, method: str, opponent: str, setting: Setting, seeds: Sequence[int]) -> Contrast:
    """``method`` less ``opponent`` (a method, or `GRID`), paired by seed."""
    other = best_cell(scores, carrier_in(method), setting, seeds) if opponent == GRID else opponent
    d = np.array([scores[method][setting][seed] - scores[other][setting][seed] for seed in seeds])
    return Contrast(method, opponent, setting, stats.t_interval(d), stats.paired_t_p(d))


def judged(contrasts: Sequence[Contrast]) -> Judged:
    """Every contrast with its p-value after Holm over all that are given."""
    adjusted = stats.holm([each.p for each in contrasts])
    return {(c.method, c.opponent, c.setting): (c, float(p)) for c, p in zip(contrasts, adjusted, strict=True)}


class Carrier(NamedTuple):
    """Scores of one carrier, and what was trained."""

    name: str
    scores: Scores
    settings: list[Setting]
    seeds: list[int]  # of the tables

    @property
    def tasks(self) -> list[str]:
        """In the order of the settings."""
        return list(dict.fromkeys(task for task, _ in self.settings))

    @property
    def patterns(self) -> list[str]:
        """In the order of the settings."""
        return list(dict.fromkeys(pattern for _, pattern in self.settings))

    @property
    def candidates(self) -> list[str]:
        """Judged methods that were trained."""
        return [m for part in CANDIDATES[self.name] if (m := self.name + part) in self.scores]

    def trained(self, method: str) -> list[Setting]:
        """Settings in which a method was trained."""
        return [setting for setting in self.settings if setting in self.scores.get(method, ())]


def carriers_of(runs: pl.DataFrame) -> list[Carrier]:
    """Every carrier of the record."""
    found = []
    for name in CANDIDATES:
        own = runs.filter(pl.col("method").map_elements(carrier_in, pl.String) == name)
        if not own.is_empty():
            patterns = [pattern for pattern in PATTERNS if pattern in set(own["pattern"])]
            settings = [(task, pattern) for task in own["task"].unique(maintain_order=True) for pattern in patterns]
            seeds = sorted(set(own["seed"]) & set(SEEDS))
            found.append(Carrier(name, scores_of(own), settings, seeds))
    return found


def chosen(carrier: Carrier, seeds: Sequence[int]) -> tuple[str, dict[str, float], set[str]]:
    """The candidate with the best mean rank, every mean rank, and the candidates that are worse somewhere.

    A candidate that is significantly worse than the constant in a setting is not chosen. Candidates that were not
    trained in every setting are left out.
    """
    constant, scores = constant_of(carrier.name), carrier.scores
    methods = [constant, *(m for m in carrier.candidates if carrier.trained(m) == carrier.settings)]
    found = judged([contrast(scores, m, constant, s, seeds) for m in methods[1:] for s in carrier.settings])
    worse = {m for (m, _, _), (c, p) in found.items() if p < 0.05 and c.interval.value < 0}
    ranks: dict[str, list[int]] = {m: [] for m in methods}
    for setting in carrier.settings:
        order = sorted(methods, key=lambda m: -np.mean([scores[m][setting][seed] for seed in seeds]))
        for m in methods:
            ranks[m].append(order.index(m) + 1)
    means = {m: float(np.mean(r)) for m, r in ranks.items()}
    return min((m for m in methods if m not in worse), key=means.__getitem__), means, worse


def family_of(carrier: Carrier) -> tuple[list[tuple[str, str]], Judged]:
    """Pairs that the record compares, and their contrasts with p-values after Holm over all of the carrier."""
    constant, recent = constant_of(carrier.name), recent_of(carrier.name)
    pairs = [(m, constant) for m in carrier.candidates]
    pairs += [(m, GRID) for m in carrier.candidates if grid_of(carrier.scores, carrier.name, carrier.settings[0][0])]
    pairs += [(m, recent) for m in carrier.candidates if "recent" in m and m != recent]
    return pairs, judged([contrast(carrier.scores, *p, s, carrier.seeds) for p in pairs for s in carrier.trained(p[0])])


def observed_of(carrier: Carrier) -> Judged:
    """The true drift observed less the constant, and less the best cell; Holm over these."""
    true = true_of(carrier.name)
    pairs = [(s, constant_of(carrier.name)) for s in carrier.trained(true)]
    pairs += [(s, GRID) for s in carrier.trained(true) if grid_of(carrier.scores, carrier.name, s[0])]
    return judged([contrast(carrier.scores, true, opponent, s, carrier.seeds) for s, opponent in pairs])


def replay_of(carrier: Carrier) -> Judged:
    """Recent less whole replay, both with four updates a step and the grid's constant, Holm over these."""
    recent, whole = (f"{carrier.name}+fixed{replay}+utd[base=0.03]" for replay in ("+recent", ""))
    return judged([contrast(carrier.scores, recent, whole, s, carrier.seeds) for s in carrier.trained(recent)])


def confirmed(carrier: Carrier) -> Judged:
    """Methods that were trained on the seeds of the confirmation less the constant on them, Holm over these."""
    constant, scores = constant_of(carrier.name), carrier.scores
    new = [(m, s) for m in scores for s in carrier.settings if set(CONFIRMATION) <= scores[m].get(s, {}).keys()]
    pairs = [(m, s) for m, s in new if m != constant and (constant, s) in new]
    return judged([contrast(scores, m, constant, s, CONFIRMATION) for m, s in pairs])


def page(runs: pl.DataFrame, head: str = "") -> str:
    """The record's page in Markdown."""
    lines = [head.rstrip(), ""] if head else []
    for carrier in carriers_of(runs):
        lines += _carrier(carrier)
    return "\n".join(lines)


def _carrier(carrier: Carrier) -> list[str]:
    name, scores, seeds, patterns = carrier.name, carrier.scores, carrier.seeds, carrier.patterns
    lines = []
    for task in carrier.tasks:
        lines += [f"## {name}, {task}: mean return over training", ""]
        present = sorted(m for m in scores if (task, patterns[0]) in scores[m])
        means = {(m, p): np.mean([scores[m][task, p][seed] for seed in seeds]) for m in present for p in patterns}
        lines += [*_table("method", patterns, present, lambda m, p, means=means: f"{means[m, p]:.2f}"), ""]
        if grid_of(scores, name, task):
            cells = ", ".join(f"{p}: {best_cell(scores, name, (task, p), seeds)}" for p in patterns)
            lines += [f"Best cells of the grid, chosen in hindsight: {cells}.", ""]
    pairs, family = family_of(carrier)
    if family:
        lines += [f"## {name}, contrasts: p after Holm over all {len(family)} of this section", ""]
    for task in carrier.tasks if family else ():
        labels = {f"{m} - {o}": (m, o) for m, o in pairs if (task, patterns[0]) in scores[m]}
        rows = {(n, p): _cell(*family[(*pair, (task, p))]) for n, pair in labels.items() for p in patterns}
        lines += [f"### {task}", "", *_table("difference", patterns, labels, lambda n, p, rows=rows: rows[n, p]), ""]
    for title, found in (
        ("recent replay, four updates a step", replay_of(carrier)),
        ("true drift observed", observed_of(carrier)),
    ):
        if found:
            lines += [f"## {name}, {title}: p after Holm over {len(found)}", "", *_differences(found, patterns)]
    return [*lines, *(_choice(carrier) if family else ())]


def _choice(carrier: Carrier) -> list[str]:
    best, ranks, worse = chosen(carrier, CHOICE)
    lines = [f"## {carrier.name}, choice on seeds {CHOICE[0]} to {CHOICE[-1]}", ""]
    lines += ["| method | mean rank | worse than the constant in some setting |", "| --- | ---: | --- |"]
    for method, rank in sorted(ranks.items(), key=lambda item: item[1]):
        lines.append(f"| {method} | {rank:.2f} | {'yes' if method in worse else 'no'} |")
    lines += ["", f"Chosen: {best}.", ""]
    if held := confirmed(carrier):
        lines += [f"Seeds {CONFIRMATION[0]} to {CONFIRMATION[-1]}, p after Holm over {len(held)}:", ""]
        lines += _differences(held, carrier.patterns)
    return lines


def _differences(found: Judged, patterns: Sequence[str]) -> list[str]:
    """A table with a row per task and pair."""
    cells = {(f"{task}: {m} - {o}", p): _cell(*c) for (m, o, (task, p)), c in found.items()}
    return [*_table("difference", patterns, dict.fromkeys(n for n, _ in cells), lambda n, p: cells[n, p]), ""]


def _cell(found: Contrast, p: float) -> str:
    value, low, high = found.interval
    mark = ("**" if value > 0 else "*") if p < 0.05 else ""
    return f"{mark}{value:+.2f}{mark} [{low:+.2f}, {high:+.2f}] p {f'{p:.2g}' if p >= 1e-4 else '<1e-4'}"


def _table(corner: str, columns: Sequence[str], rows: Iterable[str], cell: Callable[[str, str], str]) -> list[str]:
    head = [f"| {corner} | {' | '.join(columns)} |", "| --- |" + " ---: |" * len(columns)]
    return head + [f"| {row} | {' | '.join(cell(row, c) for c in columns)} |" for row in rows]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the scores, where studies are given, and the page; the page's text above its first table stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="folder of the record")
    parser.add_argument("--studies", type=Path, nargs="*", default=[], help="folders of finished studies")
    given = parser.parse_args(arguments)
    given.record.mkdir(parents=True, exist_ok=True)
    runs, text = given.record / RUNS, given.record / PAGE
    if given.studies:
        scores = scores_of_studies(given.studies)
        if runs.exists():
            scores = pl.concat([scores, pl.read_csv(runs)], how="diagonal_relaxed")
        scores.unique(RUN, keep="first").sort(RUN).write_csv(runs)
    head = text.read_text().partition("\n## ")[0] if text.exists() else f"# {given.record.name}"
    text.write_text(page(pl.read_csv(runs), head))


if __name__ == "__main__":
    main()
