"""Fills README and pages from the stored records: tables, sentences with numbers, pictures.

`python docs/fill_pages.py` rewrites everything between `<!-- table: NAME -->` and `<!-- /table -->`, and between
`<!-- text: NAME -->` and `<!-- /text -->`; a test compares.
"""

import re
from collections.abc import Callable
from pathlib import Path

from experiments.paper import figures
from filling import TABLES, TEXTS
from filling.records import BENCHMARKS, RESULTS, ROOT, grid, stored

MARK = re.compile(r"(<!-- (table|text): ([\w-]+) -->\n).*?(<!-- /\2 -->)", flags=re.DOTALL)
FILLING = {"table": TABLES, "text": TEXTS}
#: Pictures of the grid by file name.
PICTURES: dict[str, Callable[[Path], None]] = {
    "front": lambda path: figures.front(grid(), stored().curves, path),
    "overview": lambda path: figures.overview(grid(), figures.OPPONENTS, path),
    "controls": lambda path: figures.overview(grid(), figures.CONTROLS, path),
    "kappa": lambda path: figures.kappa(grid(), path),
    "response": lambda path: figures.response(grid(), stored().curves, path),
}


def filled(text: str) -> str:
    """A page with its tables and sentences made again."""
    return MARK.sub(lambda mark: mark[1] + FILLING[mark[2]][mark[3]]() + mark[4], text)


def pages() -> list[Path]:
    """Pages that may have tables."""
    return [ROOT / "README.md", BENCHMARKS / "README.md", RESULTS / "tables.md", *sorted((ROOT / "docs").glob("*.md"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text()))
    for name, draw in PICTURES.items():
        draw(ROOT / "docs" / f"{name}.png")
