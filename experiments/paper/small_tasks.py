"""Tables of the record `experiments/results/small-tasks-sac`: its per-run scores, and the page made from them.

python -m experiments.paper.small_tasks DIR --studies STUDY ...   # scores of finished studies, and the page
python -m experiments.paper.small_tasks DIR                       # the page alone, from the stored scores
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from experiments.measure import stats
from experiments.measure.curves import Curve, final_return, mean_return
from experiments.measure.opponents import best_of
from experiments.study import store
from experiments.study.results import open_results

RUNS, PAGE = "runs.csv", "tables.md"
FIXED, RECENT = "SAC+fixed", "SAC+fixed+recent"
TRUE = "SAC+fixed, true drift observed"  # an upper bound, not a method
UTD, BURST, SIGNAL = "SAC+fixed+recent+utd", "SAC+AES-C+burst", "SAC+AES-C+recent"
#: Methods that are judged; grid cells are opponents only.
CANDIDATES = ("SAC", "SAC+AES", RECENT, SIGNAL, UTD, BURST)
GRID = "best of the grid"
CHOICE, CONFIRMATION = range(1, 6), range(6, 11)

Setting = tuple[str, str]  # task, pattern
Scores = dict[str, dict[Setting, dict[int, float]]]  # method -> setting -> seed -> mean return over training


class Contrast(NamedTuple):
    """A paired difference in one setting."""

    method: str
    opponent: str
    setting: Setting
    interval: stats.Interval  # of the mean difference, units of return
    p: float  # two-sided, before Holm


Judged = dict[tuple[str, str, Setting], tuple[Contrast, float]]  # method, opponent, setting -> contrast, p after Holm


def scores_of_studies(folders: Sequence[Path]) -> pl.DataFrame:
    """One row per run: task, method, pattern, seed, mean return over training and over its last tenth."""
    rows = []
    keys = ["task", "method", "pattern", "seed"]
    for folder in folders:
        results = open_results(folder)
        curves = store.rows_from(folder / store.CURVES, results.check(store.CURVES))
        for key, part in curves.group_by(keys, maintain_order=True):
            steps, returns = (part[name].to_numpy().astype(float) for name in ("step", "return_mean"))
            curve = Curve(steps, returns, float(steps[-1]))
            task, method, *rest = key
            rows.append(
                (
                    task,
                    TRUE if results.config.get("observe") else method,
                    *rest,
                    round(mean_return(curve), 4),
                    round(final_return(curve), 4),
                )
            )
    return pl.DataFrame(rows, [*keys, "mean_return", "final_return"], orient="row").sort(keys)


def scores_of(runs: pl.DataFrame) -> Scores:
    """Mean return over training by method, setting and seed."""
    scores: Scores = {}
    for task, method, pattern, seed, score, _ in runs.iter_rows():
        scores.setdefault(method, {}).setdefault((task, pattern), {})[seed] = score
    return scores


def grid_of(scores: Scores) -> list[str]:
    """Cells of the stated grid that were trained: constants with their number in the label."""
    return [method for method in scores if method.startswith("SAC+fixed") and "base=" in method]


def best_cell(scores: Scores, setting: Setting, seeds: Sequence[int]) -> str:
    """The grid cell with the highest mean score on these seeds, chosen in hindsight."""
    shared = {
        c: {setting[1]: {k: scores[c][setting][k] for k in seeds}} for c in grid_of(scores) if setting in scores[c]
    }
    return str(best_of(shared, list(shared), setting[1]))


def contrast(scores: Scores, method: str, opponent: str, setting: Setting, seeds: Sequence[int]) -> Contrast:
    """``method`` less ``opponent`` (a method, or `GRID`), paired by seed."""
    other = best_cell(scores, setting, seeds) if opponent == GRID else opponent
    d = np.array([scores[method][setting][seed] - scores[other][setting][seed] for seed in seeds])
    return Contrast(method, opponent, setting, stats.t_interval(d), stats.paired_t_p(d))


def judged(contrasts: Sequence[Contrast]) -> Judged:
    """Every contrast with its p-value after Holm over all that are given."""
    adjusted = stats.holm([each.p for each in contrasts])
    return {(c.method, c.opponent, c.setting): (c, float(p)) for c, p in zip(contrasts, adjusted, strict=True)}


def chosen(scores: Scores, settings: Sequence[Setting], seeds: Sequence[int]) -> tuple[str, dict[str, float], set[str]]:
    """The candidate with the best mean rank that is nowhere significantly worse than `FIXED`; ranks; those that are.

    Candidates that were not trained in every setting are left out.
    """
    candidates = [FIXED, *(c for c in CANDIDATES if set(settings) <= set(scores.get(c, ())))]
    found = judged([contrast(scores, m, FIXED, s, seeds) for m in candidates[1:] for s in settings])
    worse = {m for (m, _, _), (c, p) in found.items() if p < 0.05 and c.interval.value < 0}
    ranks: dict[str, list[int]] = {m: [] for m in candidates}
    for setting in settings:
        order = sorted(candidates, key=lambda m: -np.mean([scores[m][setting][seed] for seed in seeds]))
        for m in candidates:
            ranks[m].append(order.index(m) + 1)
    means = {m: float(np.mean(r)) for m, r in ranks.items()}
    return min((m for m in candidates if m not in worse), key=means.__getitem__), means, worse


def family_of(
    scores: Scores, settings: Sequence[Setting], seeds: Sequence[int]
) -> tuple[list[tuple[str, str]], Judged]:
    """Pairs that the record compares, and every contrast of them with its p-value after Holm over all."""
    candidates = [c for c in CANDIDATES if c in scores]
    pairs = [(m, FIXED) for m in candidates] + [(m, GRID) for m in candidates]
    pairs += [(m, RECENT) for m in candidates if m in (UTD, BURST, SIGNAL)]
    family = judged([contrast(scores, *pair, s, seeds) for pair in pairs for s in settings if s in scores[pair[0]]])
    return pairs, family


def page(runs: pl.DataFrame, head: str = "") -> str:
    """The record's page in Markdown."""
    scores = scores_of(runs)
    tasks = list(dict.fromkeys(runs["task"]))
    patterns = [p for p in ("steady", "abrupt", "linear", "periodic", "mixed") if p in set(runs["pattern"])]
    settings = [(task, pattern) for task in tasks for pattern in patterns]
    seeds = sorted(set(runs["seed"]))
    pairs, family = family_of(scores, settings, seeds)
    best, ranks, worse = chosen(scores, settings, CHOICE)
    lines = [head.rstrip(), ""] if head else []
    for task in tasks:
        lines += [f"## {task}: mean return over training", ""]
        present = [m for m in scores if (task, patterns[0]) in scores[m]]
        lines += _table("method", patterns, present, lambda m, p, task=task: _mean(scores[m][task, p]))
        cells = ", ".join(f"{p}: {best_cell(scores, (task, p), seeds)}" for p in patterns)
        lines += ["", f"Best cells of the grid, chosen in hindsight: {cells}.", ""]
    lines += [f"## Contrasts: p after Holm over all {len(family)} of this section", ""]
    for task in tasks:
        lines += [f"### {task}", ""]
        labels = {f"{m} - {o}": (m, o) for m, o in pairs if (task, patterns[0]) in scores[m]}
        rows = {(n, p): _cell(*family[(*pair, (task, p))]) for n, pair in labels.items() for p in patterns}
        lines += _table("difference", patterns, labels, lambda n, p, rows=rows: rows[n, p])
        lines.append("")
    if all(setting in scores.get(TRUE, ()) for setting in settings):
        bound = judged([contrast(scores, TRUE, FIXED, s, seeds) for s in settings])
        lines += [f"## Upper bound: {TRUE} - {FIXED}, p after Holm over {len(bound)}", ""]
        lines += [*_table("task", patterns, tasks, lambda t, p: _cell(*bound[TRUE, FIXED, (t, p)])), ""]
    lines += [f"## Choice on seeds {CHOICE[0]} to {CHOICE[-1]}, confirmation on {CONFIRMATION[0]} to {seeds[-1]}", ""]
    lines += ["| method | mean rank | worse than fixed in some setting |", "| --- | ---: | --- |"]
    lines += [
        f"| {m} | {r:.2f} | {'yes' if m in worse else 'no'} |" for m, r in sorted(ranks.items(), key=lambda x: x[1])
    ]
    lines += ["", f"Chosen: {best}.", ""]
    if best != FIXED:
        held = judged([contrast(scores, best, FIXED, s, CONFIRMATION) for s in settings])
        lines += [f"Confirmation, {best} - {FIXED}, p after Holm over {len(held)}:", ""]
        lines += [*_table("task", patterns, tasks, lambda task, p: _cell(*held[best, FIXED, (task, p)])), ""]
    return "\n".join(lines)


def _mean(by_seed: dict[int, float]) -> str:
    return f"{np.mean(list(by_seed.values())):.2f}"


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
        scores_of_studies(given.studies).write_csv(runs)
    head = text.read_text().partition("\n## ")[0] if text.exists() else "# Small tasks, SAC"
    text.write_text(page(pl.read_csv(runs), head))


if __name__ == "__main__":
    main()
