"""Puts a report's folder in place."""

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.report.draw import Picture
from experiments.report.page import Page, render_html, render_markdown
from experiments.study import folder, store

if TYPE_CHECKING:
    import polars as pl


def write_folder(
    place: Path, page: Page, pictures: Mapping[str, Picture], frames: Mapping[str, "pl.DataFrame"]
) -> None:
    """Write a page, its tables and its figures; the folder appears complete or not at all and replaces an older one.

    Args:
      pictures: beside those of the page, by name without suffix.
      frames: file name -> what is written as Parquet.

    Raises:
      ValueError: another process owns the study whose report it is.
      Unwritable: it cannot be written.
    """
    html, text = render_html(page), render_markdown(page)
    drawn = {figure.plot.name: figure.picture for group in page.groups for figure in group.figures}
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
            for name, frame in frames.items():
                frame.write_parquet(partial / name)
            for name, picture in (drawn | dict(pictures)).items():
                (partial / f"{name}.png").write_bytes(picture.png)
                (partial / f"{name}.svg").write_bytes(picture.svg)
            if place.exists():  # a folder cannot be replaced in one rename
                os.replace(place, aside)
            os.replace(partial, place)
            shutil.rmtree(aside, ignore_errors=True)
        except OSError as error:
            raise store.Unwritable(f"{place} cannot be written: {store.reason(error)}") from None
