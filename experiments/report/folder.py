"""Puts a report's folder in place."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.report.draw import Picture
from experiments.report.page import Page, render_html, render_markdown
from experiments.study import lock, store

if TYPE_CHECKING:
    import polars as pl


def write_folder(
    place: Path,
    page: Page,
    pictures: Mapping[str, Picture],
    frames: Mapping[str, "pl.DataFrame"],
    markdown: str = "tables.md",
) -> None:
    """Write a page, its tables and its figures; the folder appears complete or not at all and replaces an older one.

    Args:
      pictures: beside those of the page, by name without suffix.
      frames: file name -> what is written as Parquet.

    Raises:
      OwnedError: another process owns the study whose report it is.
      Unwritable: it cannot be written.
    """
    html, text = render_html(page), render_markdown(page)
    with _beside(place) as partial:
        (partial / "index.html").write_text(html, encoding="utf-8")
        (partial / markdown).write_text(text, encoding="utf-8")
        for name, frame in frames.items():
            frame.write_parquet(partial / name)
        drawn = {figure.plot.name: figure.picture for group in page.groups for figure in group.figures}
        for name, picture in (drawn | dict(pictures)).items():
            (partial / f"{name}.png").write_bytes(picture.png)
            (partial / f"{name}.svg").write_bytes(picture.svg)
        _swap(partial, place)


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """A new folder beside ``place``, gone when the block ends; in a study's folder that is owned as long."""
    partial = place.with_name(f".{place.name}-{os.getpid()}")
    with ExitStack() as stack:
        if (place.parent / store.MANIFEST).exists():
            stack.enter_context(lock.Owner(place.parent))
            lock.clean(place.parent)
        stack.callback(shutil.rmtree, partial, ignore_errors=True)
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            yield partial
        except OSError as error:
            raise store.Unwritable(f"{place} cannot be written: {store.reason(error)}") from None


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
