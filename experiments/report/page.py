"""A report as one self-contained HTML page and as Markdown, from the templates and assets beside this file."""

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup, escape

from experiments.report.cells import Table
from experiments.report.draw import Picture
from experiments.report.forest import Forest
from experiments.report.looks import BASELINE, DASHES, MANY, PALETTE, PALETTE_DARK, REFERENCE_INK, Look
from experiments.report.markdown import escaped
from experiments.report.payload import payload
from experiments.report.plots import Plot
from experiments.report.verdicts import METRIC_NAMES, SIGNS, Verdict

_TABLES = ("main", "recovery", "paired", "weights", "returns", "paper")  # to which the page's head links


class Figure(NamedTuple):
    """A plot and its still picture."""

    plot: Plot
    picture: Picture
    explained: bool = True  # whether its caption stands below it; alike figures after the first need none


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
    """Everything that a page shows; what is empty is left out. All words are plain text, which the template escapes."""

    title: str
    subtitle: str = ""  # what was run, in a line
    status: str = ""  # how many runs are valid
    problems: Sequence[str] = ()  # one line per run that is not
    conclusion: str = ""  # the answer in a sentence
    asked: str = ""  # what the answers are about
    answers: Sequence[Answer] = ()
    others: Sequence[str] = ()  # verdicts in further metrics, as sentences
    forests: Sequence[Forest] = ()  # the first is open, the others (against further opponents) fold out
    looks: Mapping[str, Look] = field(default_factory=dict)  # of methods and lines, which can be switched on and off
    seeds: Sequence[int] = ()
    segments: int = 1
    groups: Sequence[Group] = ()
    tables: Sequence[Table] = ()
    facts: Sequence[tuple[str, str]] = ()
    limits: Sequence[str] = ()  # of the numbers
    settings: str = ""
    footer: str = (
        "Links to pictures and tables work inside the report's folder; everything else is in this page. Every number "
        "can be recomputed from the study's curves."
    )

    @property
    def sections(self) -> list[tuple[str, str]]:
        """(anchor, name) of the sections that the page has."""
        tables = {table.key for table in self.tables}
        there = {"answer": "Answer"} if self.answers or self.forests or self.conclusion else {}
        there |= {"figures": "Curves"} if self.groups else {}
        there |= {key: key.capitalize() for key in _TABLES if key in tables}
        ends = {"facts": "The study", "limits": "Limits", "settings": "Settings"}
        return [*there.items(), *((key, name) for key, name in ends.items() if getattr(self, key))]

    @property
    def plots(self) -> list[Plot]:
        """The plots of all groups."""
        return [figure.plot for group in self.groups for figure in group.figures]


@functools.cache
def _templates() -> jinja2.Environment:
    """Values are escaped in the page, not in Markdown; a name that a template misspells is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("experiments.report"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = escaped
    environment.filters["parted"] = _parted
    return environment


def _parted(name: str) -> Markup:
    """The name of a method for a narrow place: its line may end between its parts, not inside a word."""
    return Markup(re.sub(r"(?<=.)(?=[+\[(])|(?<=[,_:])", "<wbr>", str(escape(name))))


def _asset(name: str) -> str:
    return resources.files("experiments.report").joinpath("assets", name).read_text(encoding="utf-8")


def answers_of(verdicts: Sequence[Verdict], looks: Mapping[str, Look]) -> tuple[list[Answer], list[str], str]:
    """Verdicts sorted for the page.

    Returns:
      The answers in the main metric by method, the sentences in all other metrics, and the main metric as printed.
    """
    if not verdicts:
        return [], [], ""
    main = verdicts[0].metric
    lines: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.metric == main:
            lines.setdefault(verdict.method, []).append(verdict)
    found = [Answer(method, looks[method], tuple(own)) for method, own in lines.items()]
    if len(found) >= MANY:
        found.sort(key=lambda answer: not any(v.significant for v in answer.lines))
    return found, [v.sentence for v in verdicts if v.metric != main], METRIC_NAMES.get(main, main)


def render_html(page: Page) -> str:
    """The page; everything it shows is inside it."""
    live = {}
    if page.groups:
        licence = f"/*\n{_asset('uPlot.LICENSE')}*/\n"
        live = {"data": payload(page.plots), "uplot": licence + _asset("uPlot.iife.min.js")}
    inks = {"base": BASELINE, "reference": REFERENCE_INK, "light": PALETTE, "dark": PALETTE_DARK}
    return (
        _templates()
        .get_template("page.html")
        .render(
            page=page,
            many=len(page.looks) >= MANY,
            inks=inks,
            dashes=DASHES,
            signs=SIGNS,
            script=_asset("page.js"),
            uplot_css=_asset("uPlot.min.css") if page.groups else "",
            **live,
        )
    )


def render_markdown(page: Page) -> str:
    """The same answers and tables in Markdown; a group's title becomes the first column."""
    return _templates().get_template("tables.md").render(page=page)


def render_table(table: Table) -> str:
    """One table in Markdown."""
    return _templates().get_template("table.md").render(table=table)


def groups_of(figures: Sequence[Figure], summaries: Mapping[str, str]) -> Iterator[Group]:
    """The figures of each task and pattern under their heading."""
    several = len({figure.plot.task for figure in figures}) > 1
    shown: dict[tuple[str, str], list[Figure]] = {}
    captions: set[str] = set()
    for figure in figures:
        own = figure._replace(explained=figure.plot.caption not in captions)
        captions.add(figure.plot.caption)
        shown.setdefault((figure.plot.task, figure.plot.pattern), []).append(own)
    for (task, pattern), own in shown.items():
        yield Group(f"{task} · {pattern}" if several else pattern, summaries.get(pattern, ""), tuple(own))


def settings_text(config: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Configuration and environment as indented JSON, without the list of runs and the optimum over time."""
    shown = {"config": dict(config), "manifest": {k: v for k, v in manifest.items() if k not in ("runs", "oracle")}}
    return json.dumps(shown, indent=1, default=str)
