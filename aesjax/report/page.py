"""A report as one self-contained HTML page and as Markdown, from the templates beside this file."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jinja2

from aesjax.report.cells import Table
from aesjax.report.figures import Figure, colours
from aesjax.report.markdown import escaped

__all__ = ["render_html", "render_markdown", "settings_text"]

SECTIONS = (
    ("status", "Status"),
    ("main", "Main"),
    ("figures", "Curves"),
    ("recovery", "Recovery"),
    ("paired", "Paired"),
    ("weights", "Weights"),
    ("returns", "Returns"),
    ("paper", "Paper"),
    ("honesty", "Limits"),
    ("settings", "Settings"),
)


@dataclass(frozen=True)
class Panel:
    """The figures of one task and pattern under their heading."""

    title: str
    summary: str  # of the pattern; may be empty
    figures: list[Figure] = field(default_factory=list)


@functools.cache
def _templates() -> jinja2.Environment:
    """Values are escaped in the page, not in Markdown; a name that a template misspells is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("aesjax.report"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = escaped
    return environment


def render_html(
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    status: str,
    problems: Sequence[str],
    verdicts: Sequence[str],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    summaries: Mapping[str, str],
    honesty: Sequence[str],
    methods: Sequence[str],
    settings: str,
) -> str:
    """The page; everything it shows is inside it.

    Args:
      title: plain text, like every text below; the template escapes it.
      facts: (name, value) of what was run.
      status: how many runs are valid.
      problems: one line per run that is not.
      verdicts: one line per metric, how its comparisons went.
      tables: the first stands above the figures.
      figures: those of one task and pattern follow one another.
      summaries: pattern to one line on it, which may be empty.
      honesty: what the numbers do not say.
      methods: for the legend of colours.
      settings: configuration and environment, shown as they are.
    """
    return (
        _templates()
        .get_template("page.html")
        .render(
            title=title,
            sections=SECTIONS,
            facts=facts,
            colours=colours(methods),
            status=status,
            problems=problems,
            verdicts=verdicts,
            tables=tables,
            panels=list(_panels(figures, summaries)),
            honesty=honesty,
            settings=settings,
        )
    )


def _panels(figures: Sequence[Figure], summaries: Mapping[str, str]) -> Iterator[Panel]:
    several = len({figure.task for figure in figures}) > 1
    shown: dict[tuple[str, str], Panel] = {}
    for figure in figures:
        title = f"{figure.task} · {figure.pattern}" if several else figure.pattern
        shown.setdefault((figure.task, figure.pattern), Panel(title, summaries[figure.pattern])).figures.append(figure)
    yield from shown.values()


def render_markdown(
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    status: str,
    problems: Sequence[str],
    verdicts: Sequence[str],
    tables: Sequence[Table],
    honesty: Sequence[str],
) -> str:
    """The same tables in Markdown; the group's title becomes the first column. Arguments as in `render_html`."""
    return (
        _templates()
        .get_template("tables.md")
        .render(
            title=title,
            facts=facts,
            status=status,
            problems=problems,
            verdicts=verdicts,
            tables=tables,
            honesty=honesty,
        )
    )


def settings_text(config: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Configuration and environment as indented JSON, without the list of runs and the optimum over time."""
    shown = {
        "config": dict(config),
        "manifest": {k: v for k, v in manifest.items() if k not in ("runs", "oracle")},
    }
    return json.dumps(shown, indent=1, default=str)
