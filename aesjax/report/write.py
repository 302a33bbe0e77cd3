"""Turns a study's folder into its report: a self-contained page, Markdown tables, tidy metrics and figures."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aesjax.lab import store
from aesjax.measure.opponents import asides_of, constants_of
from aesjax.measure.study import RecordedStudy, load_study
from aesjax.measure.summary import summarise
from aesjax.report import overview
from aesjax.report.cells import Lookup
from aesjax.report.draw import Picture, draw
from aesjax.report.exports import write_tables
from aesjax.report.figures import plots_of
from aesjax.report.forest import draw_forest, forest_of
from aesjax.report.looks import looks
from aesjax.report.page import (
    Figure,
    Page,
    answers_of,
    groups_of,
    render_html,
    render_markdown,
    render_table,
    settings_text,
)
from aesjax.report.tables import build_tables
from aesjax.report.verdicts import verdicts

if TYPE_CHECKING:
    import polars as pl

__all__ = ["write_report"]


def write_report(directory: str | Path, *, replicates: int = 10_000) -> Path:
    """Write ``directory/report`` and return the path of its ``index.html``.

    Reads ``config.json``, ``manifest.json`` and ``curves.parquet``; writes ``index.html``, ``tables.md``,
    ``metrics.parquet`` and the figures. The folder appears complete or not at all; an older report is replaced.

    Args:
      directory: a study's folder.
      replicates: bootstrap replicates of the intervals.

    Raises:
      ValueError: a file is missing or broken; one sentence that names it.
    """
    directory = Path(directory)
    config, manifest = (_read_object(directory / name) for name in (store.CONFIG, store.MANIFEST))
    curves = _read_curves(directory / store.CURVES)
    try:
        study = load_study(curves, config, manifest)
        frame = summarise(curves, config, manifest, replicates=replicates)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{directory}: config, manifest and curves do not fit together ({error!r})") from error
    look = Lookup(frame, study.patterns, manifest.get("inert"), asides_of(study))
    page, forest = _page(study, look, frame, curves, config, manifest)
    html, markdown = render_html(page), render_markdown(page)
    partial = directory / f".report-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        (partial / "tables").mkdir()
        (partial / "index.html").write_text(html, encoding="utf-8")
        (partial / "tables.md").write_text(markdown, encoding="utf-8")
        frame.write_parquet(partial / "metrics.parquet")
        write_tables(page.tables, partial / "tables", {table.key: render_table(table) for table in page.tables})
        pictures = {figure.plot.name: figure.picture for group in page.groups for figure in group.figures}
        for name, picture in (pictures | ({} if forest is None else {"forest": forest})).items():
            (partial / f"{name}.png").write_bytes(picture.png)
            (partial / f"{name}.svg").write_bytes(picture.svg)
        _swap(partial, directory / "report")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory / "report" / "index.html"


def _page(
    study: RecordedStudy,
    look: Lookup,
    frame: "pl.DataFrame",
    curves: "pl.DataFrame",
    config: Mapping[str, Any],
    manifest: Mapping[str, Any],
) -> tuple[Page, Picture | None]:
    """The page of a study and the picture of its forest."""
    colours = looks(look.methods)
    found = verdicts(look)
    answers, others, metric = answers_of(found, colours)
    forest = forest_of(look, frame, found[0].metric) if found else None
    plots = plots_of(study, curves, manifest)
    dpi = 140 if len(plots) <= 20 else 80  # keeps the page below 3 MB
    figures = [Figure(plot, draw(plot, dpi)) for plot in plots]
    status, problems = overview.status(study, manifest)
    facts = overview.facts(study, look, config, manifest)
    page = Page(
        title=overview.title(study),
        subtitle=_subtitle(study, look, dict(facts)),
        status=status,
        problems=problems,
        asked=f"{metric[:1].upper()}{metric[1:]} of each method against its opponents on equal seeds; decided at 5 % "
        "after Holm's correction for all the tests.",
        answers=answers,
        others=others,
        forest=forest,
        looks=colours,
        seeds=study.seeds(),
        segments=study.segments,
        groups=list(groups_of(figures, {name: pattern.summary for name, pattern in study.patterns.items()})),
        tables=build_tables(look, constants_of(study)),
        facts=facts,
        limits=overview.limits(study, manifest),
        settings=settings_text(config, manifest),
    )
    return page, None if forest is None else draw_forest(forest)


def _subtitle(study: RecordedStudy, look: Lookup, facts: Mapping[str, str]) -> str:
    """What was run, in a line."""
    counts = (("method", look.methods), ("pattern", look.patterns), ("seed", study.seeds()))
    parts = [f"{len(names)} {what}{'s' if len(names) > 1 else ''}" for what, names in counts]
    parts += [f"{facts['steps']} steps"] if "steps" in facts else []
    parts += [f"preset {facts['preset']}"] if "preset" in facts else []
    return " · ".join(parts)


def _swap(new: Path, place: Path) -> None:
    """Put ``new`` at ``place``; a folder cannot be replaced in one rename, so the old one steps aside first."""
    aside = place.with_name(f".{place.name}-old-{os.getpid()}")
    if place.exists():
        os.replace(place, aside)
    try:
        os.replace(new, place)
    except OSError:
        if aside.exists():
            os.replace(aside, place)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _read_object(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ValueError(f"{path} does not exist; is this the folder of a finished study?")
    data = store.read_json(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path} must hold a JSON object")
    return data


def _read_curves(path: Path) -> "pl.DataFrame":
    curves = store.read_rows(path)
    if curves.is_empty():
        raise ValueError(f"{path} holds no evaluations")
    return curves
