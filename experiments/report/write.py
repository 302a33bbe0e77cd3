"""Turns a study's folder into its report: a self-contained page, tables as files, tidy metrics and figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.measure.opponents import asides_of, constants_of
from experiments.measure.study import RecordedStudy, load_study
from experiments.measure.summary import summarise
from experiments.report import overview
from experiments.report.cells import Lookup
from experiments.report.draw import draw
from experiments.report.figures import plots_of
from experiments.report.folder import write_folder
from experiments.report.forest import draw_forest, forest_of
from experiments.report.looks import MANY, looks
from experiments.report.page import Figure, Page, answers_of, groups_of, settings_text
from experiments.report.tables import build_tables
from experiments.report.verdicts import verdicts
from experiments.study import store
from experiments.study.store import open_results

if TYPE_CHECKING:
    import polars as pl


#: Explanations of metrics whose names are not enough.
_MEANINGS = {
    "floor-corrected nAUC": " (the area under the learning curve above the random policy, 1 is SAC without drift)"
}


def write_report(directory: str | Path, *, replicates: int = 10_000) -> Path:
    """Write ``directory/report`` and return the path of its ``index.html``.

    The page, ``tables.md``, ``metrics.parquet``, and every figure as PNG and SVG. The folder appears complete or not at
    all; an older report is replaced.

    Args:
      replicates: bootstrap replicates of the intervals.

    Raises:
      ValueError: a file is missing or broken; one sentence that names it.
    """
    results = open_results(Path(directory))
    curves = results.rows(store.CURVES)
    frame = summarise(curves, results.config, results.manifest, replicates=replicates)
    page = _page(results.config, results.manifest, curves, frame)
    pictures = {forest.name: draw_forest(forest) for forest in page.forests}
    place = results.directory / "report"
    write_folder(place, page, pictures, {"metrics.parquet": frame})
    return place / "index.html"


def _page(
    config: Mapping[str, Any], manifest: Mapping[str, Any], curves: "pl.DataFrame", frame: "pl.DataFrame"
) -> Page:
    """The page of a study."""
    study = load_study(curves, config, manifest)
    look = Lookup(frame, study.patterns, manifest.get("inert"), asides_of(study))
    found = verdicts(look)
    drawn = [forest_of(look, frame, found[0].metric, kind) for kind in ("", *look.opponents)] if found else []
    forests = [forest for forest in drawn if forest is not None]
    conclusion, strong = "", []
    if len(look.methods) >= MANY and forests:
        conclusion, forests = forests[0].conclusion, [forest.ordered for forest in forests]
        strong = [row.method for row in sorted(forests[0].rows, key=forests[0].gain)[-3:]]
    colours = looks(look.methods, strong)
    plots = plots_of(study, curves, manifest, strong)
    answers, others, metric = answers_of(found, colours)
    dpi = 140 if len(plots) <= 20 and len(look.methods) <= 8 else 80  # keeps the page below 3 MB
    figures = [Figure(plot, draw(plot, dpi)) for plot in plots]
    status, problems = overview.status(study, manifest)
    facts = overview.facts(study, look, config, manifest)
    return Page(
        title=overview.title(study),
        subtitle=_subtitle(study, look, dict(facts)),
        status=status,
        problems=problems,
        conclusion=conclusion,
        asked=f"{metric[:1].upper()}{metric[1:]}{_MEANINGS.get(metric, '')}, of each method against its opponents on "
        "equal seeds; significant at 5 % after Holm's correction, opponent by opponent, over all methods and patterns, "
        "with at least five pairs.",
        answers=answers,
        others=others,
        forests=forests,
        looks=colours,
        seeds=study.seeds(),
        segments=study.segments,
        groups=list(groups_of(figures, {name: pattern.summary for name, pattern in study.patterns.items()})),
        tables=build_tables(look, constants_of(study)),
        facts=facts,
        limits=overview.limits(study, manifest),
        settings=settings_text(config, manifest),
    )


def _subtitle(study: RecordedStudy, look: Lookup, facts: Mapping[str, str]) -> str:
    """The study in one line."""
    counts = (("method", look.methods), ("pattern", look.patterns), ("seed", study.seeds()))
    parts = [f"{len(names)} {what}{'s' if len(names) > 1 else ''}" for what, names in counts]
    parts += [f"{facts['steps']} steps"] if "steps" in facts else []
    parts += [f"preset {facts['preset']}"] if "preset" in facts else []
    parts += [f"observations {facts['observations']}"] if "observations" in facts else []
    return " · ".join(parts)
