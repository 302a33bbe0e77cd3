"""Two versions of a study side by side: equal methods, or what replaced them, on equal tasks, patterns and seeds."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.measure.runs import run_metrics
from experiments.measure.stats import holm, paired_t_p, t_interval
from experiments.measure.study import RecordedStudy, RunKey, baseline_of, carrier_of
from experiments.report.cells import Cell, Table, number
from experiments.report.draw import draw
from experiments.report.figures import time_axis
from experiments.report.folder import Loaded, load, write_folder
from experiments.report.forest import Comparison, Point, Row, draw_forest, scaled
from experiments.report.looks import Look
from experiments.report.page import Answer, Figure, Page, groups_of
from experiments.report.plots import Panel, Plot, file_stem
from experiments.report.plots import Row as PanelRow
from experiments.report.series import line_of, read
from experiments.report.verdicts import METRIC_NAMES, Verdict, outcome_of
from experiments.study import store

if TYPE_CHECKING:
    import polars as pl


_MAIN = "mean_return"  # needs no Steady runs and no floor, so every study has it
_METRICS = (_MAIN, "final_return", "recovery_robust", "deficit_area")
A, B = "A", "B"
_LOOKS = {A: Look(-1), B: Look(0, 1)}


class _Pair(NamedTuple):
    """A method of A and what stands for it in B."""

    first: str
    second: str

    @property
    def name(self) -> str:
        """As printed."""
        return self.first if self.first == self.second else f"{self.first} → {self.second}"


_Found = dict[str, dict[tuple[str, _Pair, str], Comparison]]  # metric -> (task, pair, pattern) -> how it went


def write_comparison(first: str | Path, second: str | Path, out: str | Path) -> Path:
    """Write the comparison of the studies in ``first`` (A) and ``second`` (B) into ``out``; returns its ``index.html``.

    Every method of both is compared with itself, B minus A, over the tasks, patterns and seeds that both have. Where
    the two share no method, the only one of a carrier beside its baseline is compared with the only one of the other.

    Raises:
      ValueError: a file is missing or broken, the studies have nothing in common, their horizons or segments differ, or
        ``out`` is not a new or empty folder.
    """
    out = Path(out)
    store.check_new(out, "--out")
    a, b = load(Path(first)), load(Path(second))
    pairs = _pairs(a.study, b.study)
    _check_alike(a, b)
    found = _compare(a.study, b.study, pairs)
    if not found[_MAIN]:
        raise ValueError(f"{first} and {second} have no finished run with equal method, task, pattern and seed")
    page, forest = _page(a, b, pairs, found)
    write_folder(out, page, {"forest": draw_forest(forest)}, {})
    return out / "index.html"


def _pairs(a: RecordedStudy, b: RecordedStudy) -> list[_Pair]:
    ours, theirs = a.methods(), b.methods()
    if common := [m for m in ours if m in theirs]:
        new = [m for m in ours if m not in theirs], [m for m in theirs if m not in ours]
        return [_Pair(m, m) for m in common] + _only(*new)
    if found := _only(*([m for m in x if baseline_of(m, x) or len(x) == 1] for x in (ours, theirs))):
        return found
    raise ValueError(
        f"the studies share no method to compare (A: {', '.join(ours)}; B: {', '.join(theirs)}), and no carrier has "
        "exactly one in each"
    )


def _only(ours: Sequence[str], theirs: Sequence[str]) -> list[_Pair]:
    """The methods that are alone on their carrier on both sides."""
    found = []
    for carrier in dict.fromkeys(map(carrier_of, ours)):
        sides = [[m for m in side if carrier_of(m) == carrier] for side in (ours, theirs)]
        if [len(side) for side in sides] == [1, 1]:
            found.append(_Pair(sides[0][0], sides[1][0]))
    return found


def _check_alike(a: Loaded, b: Loaded) -> None:
    tasks = [task for task in a.study.horizons if task in b.study.horizons]
    if not tasks:
        raise ValueError(
            f"the studies share no task (A: {', '.join(a.study.horizons)}; B: {', '.join(b.study.horizons)})"
        )
    for task in tasks:
        lengths = a.study.horizons[task], b.study.horizons[task]
        if lengths[0] != lengths[1]:
            raise ValueError(
                f"A trained {task} for {lengths[0]:g} steps, B for {lengths[1]:g}; runs of one length compare"
            )
    if a.study.segments != b.study.segments:
        raise ValueError(f"A has {a.study.segments} segments, B {b.study.segments}; runs with equal changes compare")


def _compare(a: RecordedStudy, b: RecordedStudy, pairs: Sequence[_Pair]) -> _Found:
    """Per metric all comparisons, adjusted together by Holm."""
    scores = [{k: run_metrics(s, k) for k, run in s.runs.items() if run.curve is not None} for s in (a, b)]
    return {metric: _in_metric(a, scores, pairs, metric) for metric in _METRICS}


def _in_metric(
    a: RecordedStudy, scores: Sequence[Mapping[RunKey, Mapping[str, Any]]], pairs: Sequence[_Pair], metric: str
) -> dict[tuple[str, _Pair, str], Comparison]:
    found: dict[tuple[str, _Pair, str], Comparison] = {}
    for task in dict.fromkeys(k.task for k in a.runs):
        for pair in pairs:
            for pattern in a.patterns:
                ours = [k for k in a.runs if (k.task, k.method, k.pattern) == (task, pair.first, pattern)]
                points = []
                for key in ours:
                    twin = key._replace(method=pair.second)
                    if key in scores[0] and twin in scores[1]:
                        apart = scores[1][twin][metric].value - scores[0][key][metric].value
                        points += [Point(f"seed {key.seed}", apart)] if math.isfinite(apart) else []
                if points:
                    apart = np.array([point.value for point in points])
                    value, low, high = t_interval(apart)
                    ends = (low, high) if math.isfinite(low) else (None, None)
                    p = paired_t_p(apart)
                    found[task, pair, pattern] = Comparison(
                        pattern, value, *ends, len(points), len(ours), p, "undecided", tuple(points)
                    )
    adjusted = holm([c.p for c in found.values()])
    return {
        key: c._replace(p=float(p), outcome=outcome_of(c.value, float(p), metric))
        for (key, c), p in zip(found.items(), adjusted, strict=True)
    }


def _page(a: Loaded, b: Loaded, pairs: Sequence[_Pair], found: _Found):
    """The page of a comparison and its forest."""
    patterns = tuple(p for p in a.study.patterns if any(key[2] == p for key in found[_MAIN]))
    tasks = list(dict.fromkeys(key[0] for key in found[_MAIN]))
    several = len(tasks) > 1
    shown = [pair for pair in pairs if any(key[1] == pair for key in found[_MAIN])]
    rows = [
        Row(pair.name, A, task if several else "", tuple(found[_MAIN].get((task, pair, p)) for p in patterns))
        for task in tasks
        for pair in shown
    ]
    forest = scaled(_MAIN, patterns, rows)
    looks = {pair.name: _LOOKS[B] for pair in shown}
    answers = [Answer(pair.name, _LOOKS[B], (_verdict(pair, found[_MAIN], several),)) for pair in shown]
    figures = [Figure(plot, draw(plot)) for plot in _plots(a, b, shown, tasks, patterns)]
    page = Page(
        title=f"B against A: {', '.join(tasks)}",
        subtitle=f"A: {_named(a)} · B: {_named(b)}",
        status=_same(found[_MAIN]),
        asked="Mean return over training, B minus A on equal task, pattern and seed; decided at 5 % after Holm's "
        "correction for all the tests.",
        answers=answers,
        forests=[forest],
        looks=_LOOKS,
        forest_looks=looks,
        seeds=a.study.seeds(),
        segments=a.study.segments,
        figures_title="Learning curves",
        groups=list(groups_of(figures, {name: facts.summary for name, facts in a.study.patterns.items()})),
        tables=[_table(found, tasks)],
        facts=[("A", _named(a)), ("B", _named(b)), *_differences(a, b)],
        limits=[
            "Runs are paired by seed: the drift is the same, the random numbers of training need not be.",
            "A difference between two versions may come from anything that differs in the list above.",
        ],
    )
    return page, forest


def _named(loaded: Loaded) -> str:
    commit = str(loaded.manifest.get("commit") or "")[:12]
    return f"{loaded.directory}" + (f", commit {commit}" if commit else "")


def _verdict(pair: _Pair, found: Mapping[tuple[str, _Pair, str], Comparison], several: bool) -> Verdict:
    groups: dict[str, list[str]] = {"better": [], "worse": [], "undecided": []}
    own = {key: c for key, c in found.items() if key[1] == pair}
    for (task, _, pattern), c in own.items():
        groups[c.outcome].append(f"{task} {pattern}" if several else pattern)
    n = min(c.pairs for c in own.values())
    said = "; ".join(f"{outcome} on {', '.join(names)}" for outcome, names in groups.items() if names)
    sentence = f"{pair.name}, B against A, {METRIC_NAMES[_MAIN]}: {said} ({n} pairs of runs, after Holm)"
    better, worse, undecided = (tuple(names) for names in groups.values())
    return Verdict(pair.name, A, _MAIN, better, worse, undecided, n, sentence)


def _same(found: Mapping[tuple[str, _Pair, str], Comparison]) -> str:
    """How many runs gave the same number to the last bit."""
    apart = [point.value for c in found.values() for point in c.points]
    same = sum(value == 0.0 for value in apart)
    if same == len(apart):
        return f"All {len(apart)} pairs of runs have the same mean return to the last bit."
    return f"{len(apart)} pairs of runs; {same or 'none'} with the same mean return to the last bit."


def _table(found: _Found, tasks: Sequence[str]) -> Table:
    table = Table(
        "versions",
        "Paired differences, B minus A",
        "Student's 95 % interval over seeds; p is adjusted by Holm within a metric over all comparisons.",
        ["method", "pairs", "mean difference", "p (Holm)", "B is"],
    )
    for metric, comparisons in found.items():
        for task in tasks:
            for pattern in dict.fromkeys(key[2] for key in comparisons if key[0] == task):
                own = [(key[1], c) for key, c in comparisons.items() if (key[0], key[2]) == (task, pattern)]
                title = f"{task} · {METRIC_NAMES[metric]} · {pattern}"
                table.groups.append((title, [_cells(pair, c) for pair, c in own]))
    return table


def _cells(pair: _Pair, c: Comparison) -> list[Cell]:
    interval = "" if c.low is None else f"[{number(c.low, 3)}, {number(c.high, 3)}]"
    p = "< 0.001" if c.p < 0.001 else number(c.p, 3)
    kind = "" if c.outcome == "undecided" else c.outcome
    counts = Cell(f"{c.pairs}/{c.runs}", kind="worse" if c.pairs < c.runs else "muted")
    return [Cell(pair.name), counts, Cell(number(c.value, 3), interval, kind), Cell(p), Cell(c.outcome, kind=kind)]


def _plots(a: Loaded, b: Loaded, pairs: Sequence[_Pair], tasks: Sequence[str], patterns: Sequence[str]) -> list[Plot]:
    """Both versions of every method in a panel of its own."""
    plots = []
    for task in tasks:
        for pattern in patterns:
            panels = []
            for column, pair in enumerate(pairs):
                lines = []
                for label, loaded, method in ((A, a, pair.first), (B, b, pair.second)):
                    rows: pl.DataFrame = loaded.curves.filter(task=task, pattern=pattern)
                    if line := line_of(method, read(rows, method, "return_mean")):
                        lines.append(line._replace(name=label))
                panels.append(Panel(0, column, tuple(lines)))
            if any(panel.lines for panel in panels):
                plots.append(
                    Plot(
                        file_stem("curves", task, pattern),
                        "curves",
                        task,
                        pattern,
                        "Return",
                        "Evaluation return, mean over seeds with a 95 % bootstrap band; black: A, coloured: B",
                        f"Learning curves of A and B under {pattern} drift on {task}. {_ends(panels, pairs)}",
                        time_axis(a.study, task, pattern),
                        (PanelRow("return", 2.9),),
                        tuple(pair.name for pair in pairs),
                        tuple(panels),
                        _LOOKS,
                    )
                )
    return plots


def _ends(panels: Sequence[Panel], pairs: Sequence[_Pair]) -> str:
    """Where the two lines of every panel end."""
    said = []
    for panel, pair in zip(panels, pairs, strict=True):
        ends = [f"{x.name} {number(float(x.y[-1]), 1)}" for x in panel.lines if x.y is not None]
        said.append(f"{pair.name} ends at {', '.join(ends) or 'nothing'}")
    return "; ".join(said) + "."


def _differences(a: Loaded, b: Loaded) -> list[tuple[str, str]]:
    """What the two files of each study say differently."""
    skipped = {"runs", "oracle", "wall_seconds", "parts", "floors", "files"}
    found = [("configuration", "; ".join(store.differing_fields(a.config, b.config)) or "the same")]
    for key in [k for k in {**a.manifest, **b.manifest} if k not in skipped]:
        ours, theirs = a.manifest.get(key), b.manifest.get(key)
        if ours != theirs and not isinstance(ours, list | dict) and not isinstance(theirs, list | dict):
            found.append((key.replace("_", " "), f"{ours} → {theirs}"))
    return found
