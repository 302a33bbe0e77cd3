"""Turns a study's folder into its report: a self-contained page, Markdown tables, tidy metrics and figures."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aesjax.lab import store
from aesjax.measure.opponents import asides_of, constants_of
from aesjax.measure.study import load_study
from aesjax.measure.summary import summarise
from aesjax.report import overview
from aesjax.report.cells import Lookup
from aesjax.report.figures import draw_figures
from aesjax.report.page import render_html, render_markdown, settings_text
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
    figures = draw_figures(curves, config, manifest)
    status, problems = overview.status(study, manifest)
    shared: dict[str, Any] = {
        "title": overview.title(study),
        "facts": overview.facts(study, look, config, manifest),
        "status": status,
        "problems": problems,
        "verdicts": [verdict.sentence for verdict in verdicts(look)],
        "tables": build_tables(look, constants_of(study), study.floors),
        "honesty": overview.limits(study, manifest),
    }
    page = render_html(
        **shared,
        figures=figures,
        summaries={name: facts.summary for name, facts in study.patterns.items()},
        methods=look.methods,
        settings=settings_text(config, manifest),
    )
    partial = directory / f".report-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        (partial / "index.html").write_text(page, encoding="utf-8")
        (partial / "tables.md").write_text(render_markdown(**shared), encoding="utf-8")
        frame.write_parquet(partial / "metrics.parquet")
        for figure in figures:
            (partial / figure.name).write_bytes(figure.png)
        _swap(partial, directory / "report")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory / "report" / "index.html"


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
