"""Turns a study's folder into its report: a self-contained page, Markdown tables, tidy metrics and figures."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aesjax.lab import ownership, store
from aesjax.lab.results import open_results
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
    pass

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
    results = open_results(directory)
    config, manifest, curves = results.config, results.manifest, results.rows(store.CURVES)
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
    with _folder(directory) as partial:
        (partial / "index.html").write_text(page, encoding="utf-8")
        (partial / "tables.md").write_text(render_markdown(**shared), encoding="utf-8")
        frame.write_parquet(partial / "metrics.parquet")
        for figure in figures:
            (partial / figure.name).write_bytes(figure.png)
        _swap(partial, directory / "report")
    return directory / "report" / "index.html"


@contextmanager
def _folder(directory: Path) -> Iterator[Path]:
    """A new folder inside a study's, which is owned as long as the block lasts.

    Raises:
      OwnedError: another process owns the study. Unwritable: it cannot be written.
    """
    with ownership.Owner(directory):
        ownership.clean(directory)
        partial = directory / f".report-{os.getpid()}"
        try:
            partial.mkdir()
            yield partial
        except OSError as error:
            raise store.Unwritable(f"the report in {directory} cannot be written: {store.reason(error)}") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)


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
