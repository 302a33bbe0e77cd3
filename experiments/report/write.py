"""Writing of a study's report: a self-contained page, tables, tidy metrics and figures."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.measure.catalog import Metric
from experiments.measure.profiles import profiles
from experiments.measure.remarks import remarks
from experiments.measure.study import LOGS, STEADY, RecordedStudy, axes_of, load_study
from experiments.measure.summary import summarise
from experiments.report.cells import Lookup, number, spaced
from experiments.report.draw import canvas_to_files, draw, sketch_profiles, sketch_sweep
from experiments.report.figures import plots_of
from experiments.report.forest import forest_of
from experiments.report.page import Answer, Figure, Group, Page, render_html, render_markdown
from experiments.report.plots import MANY, Axis, Look, Plot, looks, time_axis
from experiments.report.tables import build_tables
from experiments.report.verdicts import Verdict, verdicts
from experiments.study import folder, store
from experiments.study.config import OBSERVED
from experiments.study.store import open_results

if TYPE_CHECKING:
    import polars as pl


#: Explanations of metrics.
_MEANINGS = {
    "floor-corrected nAUC": " (the area under the learning curve above the random policy, 1 is SAC without drift)"
}

_FEW = 8  # numbers of a sweep whose learning curves are drawn

_PROBLEMS = {"off_grid": "lacks evaluations of the other runs"}


def write_report(directory: str | Path, *, replicates: int = 10_000, metrics: Iterable[Metric] = ()) -> Path:
    """Write ``directory/report`` and return the path of its ``index.html``.

    The page, ``tables.md``, ``metrics.parquet``, and every figure as PNG and SVG. An older report is replaced once the
    new one is complete; a process that is killed between the two renames leaves none.

    Args:
      replicates: bootstrap replicates of the intervals.
      metrics: custom metrics, besides the built-in and installed ones.

    Raises:
      ValueError: a metric fails; a file is missing or damaged; one sentence that names it.
      ValueError, Unwritable: another process owns the study, or the folder cannot be written.
    """
    results = open_results(Path(directory))
    return write_results(results, results.directory / "report", replicates=replicates, metrics=metrics)


def write_results(results: store.Results, place: Path, *, replicates: int = 10_000, metrics: Iterable[Metric]) -> Path:
    """Write the report of a study, of joined studies or of logs into ``place``, as `write_report`."""
    curves = results.rows(store.CURVES)
    custom = tuple(metrics)
    frame = summarise(curves, results.config, results.manifest, replicates=replicates, custom=custom)
    write_folder(place, _page(results.config, results.manifest, curves, frame, custom), frame)
    return place / "index.html"


def write_folder(place: Path, page: Page, frame: "pl.DataFrame") -> None:
    """Write a page, its tables, its figures and the tidy frame into a new folder, which then replaces an older one."""
    html, text = render_html(page), render_markdown(page)
    partial, aside = (place.with_name(f".{place.name}-{kind}{os.getpid()}") for kind in ("", "old-"))
    with ExitStack() as stack:
        if (place.parent / store.MANIFEST).exists():
            stack.enter_context(folder.Owner(place.parent))
            folder.clean(place.parent)
        stack.callback(shutil.rmtree, partial, ignore_errors=True)
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            (partial / "index.html").write_text(html, encoding="utf-8")
            (partial / "tables.md").write_text(text, encoding="utf-8")
            frame.write_parquet(partial / "metrics.parquet")
            for figure in (figure for group in page.groups for figure in group.figures):
                (partial / f"{figure.plot.name}.png").write_bytes(figure.picture.png)
                (partial / f"{figure.plot.name}.svg").write_bytes(figure.picture.svg)
            if place.exists():  # a folder cannot be replaced in one rename
                os.replace(place, aside)
            os.replace(partial, place)
            shutil.rmtree(aside, ignore_errors=True)
        except OSError as error:
            raise store.Unwritable(f"{place} cannot be written: {store.reason(error)}") from None


def _page(
    config: Mapping[str, Any],
    manifest: Mapping[str, Any],
    curves: "pl.DataFrame",
    frame: "pl.DataFrame",
    custom: Sequence[Metric],
) -> Page:
    """The page of a study."""
    import polars as pl

    study = load_study(curves, config, manifest)
    look = Lookup(frame, study, custom)
    found = verdicts(look)
    drawn = [forest_of(look, frame, found[0].metric, kind) for kind in ("", *look.opponents)] if found else []
    forests = [forest for forest in drawn if forest is not None]
    conclusion, strong = "", []
    if len(look.methods) >= MANY and forests:
        conclusion, forests = forests[0].conclusion, [forest.ordered for forest in forests]
        strong = [row.method for row in sorted(forests[0].rows, key=forests[0].gain)[-3:]]
    colours, metric = looks(look.carriers, strong), found[0].title if found else ""
    swept = list(_sweeps(study, config, frame))
    if swept:  # curves of a few settings only
        shown = {*strong, *frame.filter(pl.all_horizontal(pl.col(axes_of(config)).is_null()))["method"]}
        curves = curves.filter(pl.col("method").is_in(shown)) if shown else curves
    plots = plots_of(study, curves, manifest, strong)
    dpi = 140 if len(plots) <= 20 and len(look.methods) <= 8 else 80  # keeps the page below 3 MB
    status, problems = status_of(study, manifest)
    facts = facts_of(study, config, manifest)
    # Without the list of runs and the optimum over time.
    shown = {"config": dict(config), "manifest": {k: v for k, v in manifest.items() if k not in ("runs", "oracle")}}
    return Page(
        title=("Comparison of logs" if LOGS in config else "Entropy schedules under drift")
        + ": "
        + ", ".join(filter(None, [dict(facts)["task"], *dict.fromkeys(look.carriers.values())])),
        subtitle=_subtitle(study, dict(facts)),
        status=status,
        problems=problems,
        remarks=remarks(study),
        conclusion=conclusion,
        compared=f"{metric[:1].upper()}{metric[1:]}{_MEANINGS.get(metric, '')} of each method compared with its "
        "opponents at equal seeds. Better and worse: significant at 5 % with at least five seeds, after Holm's "
        "correction over all methods and patterns for each kind of opponent.",
        answers=_answers(found, colours),
        others=[v.sentence for v in found if v.metric != found[0].metric],
        forests=forests,
        looks=colours,
        seeds=study.seeds(),
        segments=1 if config.get("onset") else study.segments,
        groups=[
            *_profiles(study, strong or look.methods),
            *_groups(study, [*swept, *(Figure(plot, draw(plot, dpi)) for plot in plots)]),
        ],
        tables=build_tables(look),
        facts=facts,
        limits=limits_of(study, manifest),
        settings=json.dumps(shown, indent=1, default=str),
    )


def _answers(found: Sequence[Verdict], colours: Mapping[str, Look]) -> list[Answer]:
    """Verdicts in the main metric by method; with many methods, significant ones first."""
    lines: dict[str, list[Verdict]] = {}
    for verdict in found:
        if verdict.metric == found[0].metric:
            lines.setdefault(verdict.method, []).append(verdict)
    answers = [Answer(method, colours[method], tuple(own)) for method, own in lines.items()]
    many = len(answers) >= MANY
    return sorted(answers, key=lambda answer: many and not any(v.significant for v in answer.lines))


def _sweeps(study: RecordedStudy, config: Mapping[str, Any], frame: "pl.DataFrame") -> Iterator[Figure]:
    """Mean return against the finest axis of a sweep, by task and pattern, if it has more than `_FEW` numbers."""
    axes = axes_of(config)
    if not axes or frame[axis := max(axes, key=lambda name: frame[name].n_unique())].drop_nulls().n_unique() <= _FEW:
        return
    rows = frame.filter(level="method", metric="mean_return").drop_nulls("task")
    caption = f"Mean return over training against {axis}, with its 95 % interval"
    for (task, pattern), part in rows.partition_by("task", "pattern", as_dict=True, maintain_order=True).items():
        text = f"Mean return by {axis}", caption, f"{caption}, under {pattern} drift on {task}."
        plot = Plot("sweep", task, pattern, *text, time_axis(study, task, pattern), (), (), (), {})
        yield Figure(plot, canvas_to_files(sketch_sweep(study, config, part, axis, "mean_return"), 110))


def _profiles(study: RecordedStudy, methods: Sequence[str]) -> Iterator[Group]:
    """The performance profiles of several methods under one heading."""
    found = profiles(study, methods)
    if len(found) < 2:
        return
    settings = next(iter(found.values())).settings
    levels = [f"{method} {number(p.mean)} and {number(p.worst)}" for method, p in found.items()]
    caption = f"Share of runs whose normalised return over training exceeds a threshold, over {settings} settings of "
    caption += "task and pattern, with a 95 % band over seeds. Mean and worst run: " + "; ".join(levels)
    nothing = Axis(0.0, 1.0, np.zeros(0), False)
    plot = Plot("profiles", "", "", "Performance profiles", caption, caption, nothing, (), (), (), {})
    yield Group("All settings", "", (Figure(plot, canvas_to_files(sketch_profiles(study, found), 110)),))


def _groups(study: RecordedStudy, figures: Sequence[Figure]) -> Iterator[Group]:
    """Figures of each task and pattern; a caption is shown once."""
    captions: set[str] = set()
    for task, pattern in dict.fromkeys((figure.plot.task, figure.plot.pattern) for figure in figures):
        own = [figure for figure in figures if (figure.plot.task, figure.plot.pattern) == (task, pattern)]
        title = f"{task} · {pattern}" if len(study.horizons) > 1 else pattern
        shown = tuple(figure._replace(explained=figure.plot.caption not in captions) for figure in own)
        captions |= {figure.plot.caption for figure in own}
        yield Group(title, study.patterns[pattern].summary, shown)


def _subtitle(study: RecordedStudy, facts: Mapping[str, str]) -> str:
    """The study in one line."""
    counts = (("method", study.methods()), ("pattern", study.patterns), ("seed", study.seeds()))
    parts = [f"{len(names)} {kind}{'s' if len(names) > 1 else ''}" for kind, names in counts]
    parts += [f"{facts['steps']} steps"] if "steps" in facts else []
    parts += [f"preset {facts['preset']}"] if "preset" in facts else []
    return " · ".join([*parts, *([f"observations {facts['observations']}"] if "observations" in facts else [])])


def facts_of(study: RecordedStudy, config: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, value) of the study and the machine, as printed; missing fields are omitted."""
    seeds, warm = study.seeds(), config.get("warm_start") or {}
    first, last = ([s for s in seeds if s + way not in seeds] for way in (-1, 1))
    ranges = ", ".join(str(a) if a == b else f"{a}:{b}" for a, b in zip(first, last, strict=True))
    lines = [("task", ", ".join(sorted(study.horizons))), ("patterns", ", ".join(study.patterns))]
    lines += [("seeds", f"{ranges} ({len(seeds)})"), ("methods", ", ".join(study.methods()))]
    lines += [("observations", f"with {OBSERVED[config['observe']]}")] if config.get("observe") else []
    lines += [("smallest window", line) for line in manifest.get("small_windows", [])]
    lines += [("tuned", line) for line in manifest.get("tuning", [])]
    for key, value in config.items():
        if key not in ("task", "format", "observe") and isinstance(value, int | float | str) and value is not True:
            lines.append((key.replace("_", " "), spaced(value) if isinstance(value, int) else str(value)))
    if warm:
        replay = "with" if warm.get("replay") else "without"
        lines.append(("runs begin with trained agents", f"{replay} their replays; SHA-256 {str(warm['sha256'])[:12]}"))
    options = config.get("options") or {}
    lines += [(name, ", ".join(v) if isinstance(v, list | tuple) else str(v)) for name, v in options.items()]
    floors = [f"{number(b)} ({t})" if len(study.floors) > 1 else number(b) for t, b in study.floors.items()]
    lines.append(("floor (random policy)", ", ".join(floors) or "not measured"))
    machine = ("device", "num_devices", "matmul_precision", "wall_seconds", "commit", "command")
    return lines + [(name.replace("_", " "), str(manifest[name])) for name in machine if manifest.get(name)]


def status_of(study: RecordedStudy, manifest: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Headline of the status box, and one line per invalid run."""
    recorded = {(r.get("task"), r.get("method"), r.get("pattern"), r.get("seed")): r for r in manifest.get("runs", ())}
    lines = []
    for key, run in ((key, run) for key, run in study.runs.items() if run.problem):
        entry = recorded.get(key[1:], {})
        text = f"{key.method}, {key.task}, {key.pattern}, seed {key.seed}: {_PROBLEMS.get(run.problem, run.problem)}"
        if run.problem == "diverged" and entry.get("diverged_at") is not None:
            text += f" at step {spaced(entry['diverged_at'])}"
        elif run.problem == "incomplete" and len(run.steps):
            text += f", last evaluation at step {spaced(int(run.steps[-1]))}"
        lines.append(text + (f" ({entry['reason']})" if entry.get("reason") else ""))
    head = f"{len(study.runs) - len(lines)}/{len(study.runs)} runs are valid"
    return head + (". The others are excluded from means." if lines else ": all finished, none diverged."), lines


def limits_of(study: RecordedStudy, manifest: Mapping[str, Any]) -> list[str]:
    """Limits of this study's numbers, one or two sentences each."""
    n, inert = len(study.seeds()), {task: names for task, names in manifest.get("inert", {}).items() if names}
    seeds = "intervals are over seeds, not over evaluation episodes or steps."
    if n < 10:
        seeds = "bootstrap percentile intervals of so few seeds are too narrow (84 % coverage instead of 95 % at five "
        seeds += "seeds on one task), so they are stretched by √(n/(n−1)). Ten seeds are recommended."
    lines = [
        f"{n} seeds: {seeds}" if n > 1 else "1 seed: there are no intervals and no tests.",
        "DropRatio is relative to the method's own Steady level, so a lower level gives a lower ratio. Read it with "
        "nAUC.",
        "A method that learned little regains its level easily; the recovery relative to its Steady run corrects "
        "for this.",
        "If the optimum after a change is below the level before it, no method can recover.",
        "Returns are those of the logs; runs of equal seed are paired."
        if LOGS in {key.family for key in study.runs}
        else "Evaluation is deterministic and excludes the cost of entropy, which the training return includes.",
        "About one in twenty intervals excludes zero by chance; p after Holm's correction accounts for this.",
    ]
    lines += [f"In {task} the drift of {', '.join(names)} has no effect." for task, names in inert.items()]
    if STEADY not in study.patterns:
        lines.append("Steady was not run, so nAUC, DropRatio and the null values of recovery are missing.")
    for name in sorted({key.pattern for key in study.runs if study.segments > 1 and not len(study.changes(key))}):
        lines.append(f"The pattern {name} states no change points: no change lines, recovery and responsiveness.")
    known = {STEADY, *(manifest.get("patterns") or {})}
    if unknown := [name for name in study.patterns if name not in known]:
        text = "shown as gradual drift, without recovery times."
        lines.append(f"The manifest does not describe {', '.join(unknown)}: {text}")
    return lines
