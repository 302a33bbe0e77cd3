"""Turns a study's folder into its report: a self-contained page, tables as files, tidy metrics and figures."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.measure.study import STEADY, RecordedStudy, carrier_of, load_study
from experiments.measure.summary import summarise
from experiments.report.cells import Lookup, number, spaced
from experiments.report.draw import draw
from experiments.report.figures import plots_of
from experiments.report.forest import forest_of
from experiments.report.page import Answer, Figure, Group, Page, render_html, render_markdown
from experiments.report.plots import MANY, Look, looks
from experiments.report.tables import build_tables
from experiments.report.verdicts import METRIC_NAMES, Verdict, verdicts
from experiments.study import folder, store
from experiments.study.config import OBSERVED
from experiments.study.store import open_results

if TYPE_CHECKING:
    import polars as pl


#: Explanations of metrics whose names are not enough.
_MEANINGS = {
    "floor-corrected nAUC": " (the area under the learning curve above the random policy, 1 is SAC without drift)"
}

_PROBLEMS = {"off_grid": "lacks evaluations of the other runs"}


def write_report(directory: str | Path, *, replicates: int = 10_000) -> Path:
    """Write ``directory/report`` and return the path of its ``index.html``.

    The page, ``tables.md``, ``metrics.parquet``, and every figure as PNG and SVG. The folder appears complete or not at
    all; an older report is replaced.

    Args:
      replicates: bootstrap replicates of the intervals.

    Raises:
      ValueError: a file is missing or broken; one sentence that names it.
      ValueError, Unwritable: another process owns the study, or the folder cannot be written.
    """
    results = open_results(Path(directory))
    curves = results.rows(store.CURVES)
    frame = summarise(curves, results.config, results.manifest, replicates=replicates)
    write_folder(results.directory / "report", _page(results.config, results.manifest, curves, frame), frame)
    return results.directory / "report" / "index.html"


def write_folder(place: Path, page: Page, frame: "pl.DataFrame") -> None:
    """Write a page, its tables, its figures and the tidy frame; an older folder is replaced in one step."""
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
    config: Mapping[str, Any], manifest: Mapping[str, Any], curves: "pl.DataFrame", frame: "pl.DataFrame"
) -> Page:
    """The page of a study."""
    study = load_study(curves, config, manifest)
    look = Lookup(frame, study)
    found = verdicts(look)
    drawn = [forest_of(look, frame, found[0].metric, kind) for kind in ("", *look.opponents)] if found else []
    forests = [forest for forest in drawn if forest is not None]
    conclusion, strong = "", []
    if len(look.methods) >= MANY and forests:
        conclusion, forests = forests[0].conclusion, [forest.ordered for forest in forests]
        strong = [row.method for row in sorted(forests[0].rows, key=forests[0].gain)[-3:]]
    colours, metric = looks(look.methods, strong), METRIC_NAMES[found[0].metric] if found else ""
    plots = plots_of(study, curves, manifest, strong)
    dpi = 140 if len(plots) <= 20 and len(look.methods) <= 8 else 80  # keeps the page below 3 MB
    status, problems = status_of(study, manifest)
    facts = facts_of(study, config, manifest)
    # Neither the list of runs nor the optimum over time.
    shown = {"config": dict(config), "manifest": {k: v for k, v in manifest.items() if k not in ("runs", "oracle")}}
    return Page(
        title=f"Entropy schedules under drift: {dict(facts)['task']}, "
        + ", ".join(dict.fromkeys(map(carrier_of, look.methods))),
        subtitle=_subtitle(study, dict(facts)),
        status=status,
        problems=problems,
        conclusion=conclusion,
        asked=f"{metric[:1].upper()}{metric[1:]}{_MEANINGS.get(metric, '')}, of each method against its opponents on "
        "equal seeds; significant at 5 % after Holm's correction, opponent by opponent, over all methods and patterns, "
        "with at least five pairs.",
        answers=_answers(found, colours),
        others=[v.sentence for v in found if v.metric != found[0].metric],
        forests=forests,
        looks=colours,
        seeds=study.seeds(),
        segments=study.segments,
        groups=list(_groups(study, [Figure(plot, draw(plot, dpi)) for plot in plots])),
        tables=build_tables(look),
        facts=facts,
        limits=limits_of(study, manifest),
        settings=json.dumps(shown, indent=1, default=str),
    )


def _answers(found: Sequence[Verdict], colours: Mapping[str, Look]) -> list[Answer]:
    """The verdicts in the main metric by method; of many methods those with significant ones first."""
    lines: dict[str, list[Verdict]] = {}
    for verdict in found:
        if verdict.metric == found[0].metric:
            lines.setdefault(verdict.method, []).append(verdict)
    answers = [Answer(method, colours[method], tuple(own)) for method, own in lines.items()]
    many = len(answers) >= MANY
    return sorted(answers, key=lambda answer: many and not any(v.significant for v in answer.lines))


def _groups(study: RecordedStudy, figures: Sequence[Figure]) -> Iterator[Group]:
    """The figures of each task and pattern under their heading; a caption stands where it is first needed."""
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
    """(name, value) of the study and the machine, as printed; what neither file contains is left out."""
    seeds, warm = study.seeds(), config.get("warm_start") or {}
    first, last = ([s for s in seeds if s + way not in seeds] for way in (-1, 1))
    ranges = ", ".join(str(a) if a == b else f"{a}:{b}" for a, b in zip(first, last, strict=True))
    lines = [("task", ", ".join(sorted(study.horizons))), ("patterns", ", ".join(study.patterns))]
    lines += [("seeds", f"{ranges} ({len(seeds)})"), ("methods", ", ".join(study.methods()))]
    lines += [("observations", f"with {OBSERVED}")] if config.get("observe") else []
    lines += [("smallest window", line) for line in manifest.get("small_windows", [])]
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
    """The headline of the status box and one line per run that could not be measured."""
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
    return head + (". The others count in no mean." if lines else ": all finished, none diverged."), lines


def limits_of(study: RecordedStudy, manifest: Mapping[str, Any]) -> list[str]:
    """Limits of this study's numbers, one or two sentences each."""
    n, inert = len(study.seeds()), {task: names for task, names in manifest.get("inert", {}).items() if names}
    seeds = "intervals are over seeds; evaluation episodes and steps are never counted as replicates."
    if n < 10:
        seeds = "percentile intervals of so few runs are too narrow (84 % instead of 95 % at five seeds on one task), "
        seeds += "so they are stretched by √(n/(n−1)); even so, a single interval is a hint. A claim needs ten seeds."
    lines = [
        f"{n} seeds: {seeds}" if n > 1 else "1 seed: there is no interval and no claim can be made.",
        "DropRatio is anchored at the method's own Steady level: a lower level lowers the ratio. Read it beside nAUC "
        "only.",
        "A method that learned little regains its level easily; the recovery against its own Steady run removes this.",
        "The optimum after a change can lie below the level before it; then no method can recover.",
        "Evaluation is deterministic and hides the cost of entropy; the training return shows it.",
        "Many comparisons are shown. About one in twenty intervals excludes zero by chance; Holm's p accounts for it.",
    ]
    lines += [f"In {task} the drift of {', '.join(names)} changes nothing." for task, names in inert.items()]
    if STEADY not in study.patterns:
        lines.append("Steady was not run: nAUC, DropRatio and the null values of recovery are missing.")
    known = {STEADY, *(manifest.get("patterns") or {})}
    if unknown := [name for name in study.patterns if name not in known]:
        text = "shown as gradual drift, without times of recovery."
        lines.append(f"The manifest does not describe {', '.join(unknown)}: {text}")
    return lines
