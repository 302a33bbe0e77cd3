"""A report as one self-contained HTML page and as Markdown, from templates and assets."""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple

import jinja2
import numpy as np
from markupsafe import Markup, escape

from experiments.report.cells import Table
from experiments.report.draw import Picture
from experiments.report.forest import Forest
from experiments.report.plots import BASELINE, DASHES, MANY, PALETTE, PALETTE_DARK, REFERENCE_INK, Line, Look, Plot
from experiments.report.verdicts import SIGNS, Verdict

_TABLES = ("main", "recovery", "paired", "weights", "returns", "paper", "custom")  # linked at the top of the page
_DIGITS = 4  # significant digits of a live chart, which is about 300 pixels high
#: Markdown characters to escape: columns, code, emphasis, tags, links.
_SPECIAL = re.compile(r"[\\|`*<]|(?<=\])\(")


class Figure(NamedTuple):
    """A plot and its still picture."""

    plot: Plot
    picture: Picture
    explained: bool = True  # whether to show its caption, only at the first of several similar figures


class Group(NamedTuple):
    """Figures under one heading."""

    title: str
    summary: str  # may be empty
    figures: tuple[Figure, ...]


class Answer(NamedTuple):
    """Verdicts on one method, one line per opponent."""

    method: str
    look: Look
    lines: tuple[Verdict, ...]


@dataclass(frozen=True)
class Page:
    """Content of a page as plain text, which the template escapes; empty fields are omitted."""

    title: str
    subtitle: str = ""  # description of the study in one line
    status: str = ""  # number of valid runs
    problems: Sequence[str] = ()  # one line per invalid run
    remarks: Sequence[str] = ()  # reservations, one sentence each
    conclusion: str = ""  # main result in one sentence
    compared: str = ""  # description of the comparisons
    answers: Sequence[Answer] = ()
    others: Sequence[str] = ()  # verdicts in further metrics, as sentences
    forests: Sequence[Forest] = ()  # the first is open, forests of other opponents are folded
    looks: Mapping[str, Look] = field(default_factory=dict)  # styles of methods and lines, which can be hidden
    seeds: Sequence[int] = ()
    segments: int = 1
    groups: Sequence[Group] = ()
    tables: Sequence[Table] = ()
    facts: Sequence[tuple[str, str]] = ()
    limits: Sequence[str] = ()  # of the numbers
    settings: str = ""
    footer: str = (
        "Links to pictures work inside the report's folder; all other content is in this page. All numbers can be "
        "recomputed from the study's curves."
    )

    @property
    def sections(self) -> list[tuple[str, str]]:
        """(anchor, name) of the sections of the page."""
        tables = {table.key for table in self.tables}
        names = {"answer": "Comparisons"} if self.answers or self.forests or self.conclusion else {}
        names |= {"figures": "Curves"} if self.groups else {}
        names |= {key: key.capitalize() for key in _TABLES if key in tables}
        ends = {"facts": "The study", "limits": "Limits", "settings": "Settings"}
        return [*names.items(), *((key, name) for key, name in ends.items() if getattr(self, key))]


@functools.cache
def _templates() -> jinja2.Environment:
    """Template environment: values are escaped in HTML, not in Markdown; undefined names are errors."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("experiments.report"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"plain": escaped, "parted": _parted}
    return environment


def escaped(value: Any) -> str:
    r"""Escape a value for Markdown: one line, special characters with a backslash.

    >>> escaped("SAC+permuted[blocks=40](aes_r|x)")
    'SAC+permuted[blocks=40]\\(aes_r\\|x)'
    """
    return _SPECIAL.sub(r"\\\g<0>", " ".join(str(value).split()))


def _parted(name: str) -> Markup:
    """Text in which names of methods may be broken between their parts only, not inside words such as AES-R."""
    parts = re.sub(r"(?<=\S)(?=[+\[(])|(?<=[,_:])(?=\S)|(?<=[a-z]\.)(?=[a-z])", "<wbr>", str(escape(name)))
    return Markup(re.sub(r"\w+(?:-\w+)+", r'<span class="whole">\g<0></span>', parts))


def _asset(name: str) -> str:
    return resources.files("experiments.report").joinpath("assets", name).read_text(encoding="utf-8")


def render_html(page: Page) -> str:
    """Render the page as one self-contained HTML file."""
    uplot, live = "", {}
    if page.groups:
        licence = f"/*\n{_asset('uPlot.LICENSE')}*/\n"
        plots = [figure.plot for group in page.groups for figure in group.figures]
        live = {"data": payload(plots), "uplot": licence + _asset("uPlot.iife.min.js")}
        uplot = _asset("uPlot.min.css")
    inks = {"base": BASELINE, "reference": REFERENCE_INK, "light": PALETTE, "dark": PALETTE_DARK}
    style = {"many": len(page.looks) >= MANY, "inks": inks, "dashes": DASHES, "signs": SIGNS, "uplot_css": uplot}
    return _templates().get_template("page.html").render(page=page, script=_asset("page.js"), **style, **live)


def render_markdown(page: Page) -> str:
    """Render comparisons and tables in Markdown; a group's title is a row above its rows."""
    return _templates().get_template("tables.md").render(page=page)


def render_table(table: Table) -> str:
    """Render one table in Markdown."""
    return _templates().get_template("table.md").render(table=table)


def payload(plots: Sequence[Plot]) -> str:
    """Data of `assets/page.js`: plots by name; lines refer to styles and horizontal grids by index.

    Values cannot end the script element or start another one.
    """
    data = {"plots": {plot.name: _chart(plot) for plot in plots if plot.panels}}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _chart(plot: Plot) -> dict[str, Any]:
    grids: dict[bytes, np.ndarray] = {}

    def line_of(line: Line) -> dict[str, Any]:
        """JSON of a line, without absent parts."""
        x = np.asarray(line.x, np.float64)
        grids.setdefault(x.tobytes(), x)
        parts = {"y": line.y, "low": line.low, "high": line.high}
        found: dict[str, Any] = {"name": line.name, "x": list(grids).index(x.tobytes())}
        found |= {key: _numbers(values) for key, values in parts.items() if values is not None}
        found |= {"regained": line.regained} if line.regained else {}
        return found | ({"seeds": {str(seed): _numbers(y) for seed, y in line.seeds.items()}} if line.seeds else {})

    panels = [{"row": p.row, "column": p.column, "lines": [line_of(line) for line in p.lines]} for p in plot.panels]
    return {
        "x": plot.axis._asdict() | {"marks": _numbers(plot.axis.marks, 9)},
        "rows": [row._asdict() for row in plot.rows],
        "columns": plot.columns,
        "looks": {name: look._asdict() | {"dash": DASHES[look.dash]} for name, look in plot.looks.items()},
        "grids": [_numbers(x, 7) for x in grids.values()],
        "panels": panels,
    }


def _numbers(values: np.ndarray, digits: int = _DIGITS) -> list[float | None]:
    """Round values; integers have no decimal point, values that are not finite are null."""
    rounded = [float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64).tolist()]
    return [None if not np.isfinite(value) else int(value) if value == int(value) else value for value in rounded]
