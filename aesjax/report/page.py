"""A report as one self-contained HTML page and as Markdown."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from aesjax.report.cells import Cell, Table
from aesjax.report.figures import Figure, colours

__all__ = ["render_html", "render_markdown"]

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f24; --soft: #5d6673; --line: #d9dee5; --paper: #ffffff;
    --card: #f6f8fa;
  --good: #0b6e4f; --bad: #b3261e; --warn: #fff4e0; --warnline: #e0a030; --ok: #e9f6ef; --okline:
    #58a97f; --link: #0b57d0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #353c47; --paper:
    #14171c;
  --card: #1c2128; --good: #5fd0a2; --bad: #ff8a80; --warn: #33280f; --warnline: #a8781f; --ok: #13291f;
    --okline: #3b7d5c;
  --link: #8ab4f8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI",
    Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 44px 0 6px; padding-top: 14px; border-top: 1px solid var(--line); }
h3 { font-size: 15px; margin: 26px 0 6px; }
p { margin: 6px 0; max-width: 86ch; }
.sub, .read, .notes, figcaption { color: var(--soft); }
.read { margin-bottom: 12px; }
nav { margin: 14px 0 0; font-size: 14px; } nav a { color: var(--link); text-decoration: none;
    margin-right: 14px; white-space: nowrap; }
dl.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: 10px 22px;
    margin: 18px 0;
  padding: 14px 16px; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
dl.facts div { min-width: 0; } dl.facts .wide { grid-column: 1 / -1; }
dt { font-size: 12px; color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.box { border: 1px solid var(--okline); border-left-width: 5px; background: var(--ok); border-radius:
    6px; padding: 10px 14px; margin: 14px 0; }
.box.warn { background: var(--warn); border-color: var(--warnline); }
.box ul { margin: 6px 0 2px; padding-left: 20px; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px;
    border: 1px solid var(--soft); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 10px; text-align: right; white-space: nowrap; }
th.name, td.name { text-align: left; }
thead th { background: var(--card); color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom;
    border-bottom: 1px solid var(--line); padding: 7px 10px; line-height: 1.25; }
tbody tr + tr td { border-top: 1px solid var(--line); }
tr.group th { text-align: left; background: var(--card); font-size: 12.5px; padding: 6px 10px;
    border-top: 1px solid var(--line);
  border-bottom: 1px solid var(--line); }
.ci { color: var(--soft); font-size: 12px; font-weight: 400; margin-left: 4px; }
.better { color: var(--good); font-weight: 600; } .worse { color: var(--bad); font-weight: 600; }
.paper { font-style: italic; } .muted { color: var(--soft); }
ul.notes { font-size: 13.5px; padding-left: 20px; margin: 8px 0 0; max-width: 100ch; }
figure { margin: 10px 0 18px; } figure img { max-width: 100%; height: auto; background: #fff; border: 1px
    solid var(--line); border-radius: 8px;
  display: block; padding: 6px; }
figcaption { font-size: 13px; margin-top: 4px; }
details { margin: 10px 0; } summary { cursor: pointer; color: var(--soft); }
pre { font-size: 12px; overflow-x: auto; background: var(--card); border: 1px solid var(--line);
    border-radius: 8px; padding: 12px; }
@media print { body { font-size: 11px; } .scroll { overflow: visible; } }
"""


def render_html(
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    status: str,
    problems: Sequence[str],
    verdicts: Sequence[str],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    honesty: Sequence[str],
    methods: Sequence[str],
    settings: str,
) -> str:
    """The page; everything it shows is inside it."""
    sections = [("status", "Status"), ("main", "Main"), ("figures", "Curves"), ("recovery", "Recovery")]
    sections += [("paired", "Paired"), ("weights", "Weights"), ("returns", "Returns"), ("paper", "Paper")]
    sections += [("honesty", "Limits"), ("settings", "Settings")]
    body = [
        f"<h1>{escape(title)}</h1>",
        '<p class="sub">Every number below can be recomputed from the study\'s curves.</p>',
        "<nav>" + "".join(f'<a href="#{key}">{escape(name)}</a>' for key, name in sections) + "</nav>",
        '<dl class="facts">' + "".join(_fact(*fact) for fact in facts) + "</dl>",
        _legend(methods),
        _status(status, problems, verdicts),
        _table(tables[0]),
        _figures(figures),
        *map(_table, tables[1:]),
        '<h2 id="honesty">What these numbers do not say</h2>',
        _notes(honesty),
        '<h2 id="settings">All settings</h2>',
        f"<details><summary>Configuration and environment</summary><pre>{escape(settings)}</pre></details>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _fact(name: str, value: str) -> str:
    wide = ' class="wide"' if len(value) > 60 else ""
    return f"<div{wide}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _legend(methods: Sequence[str]) -> str:
    marks = [
        f'<span style="white-space:nowrap;margin-right:14px"><span class="swatch" style="background:{colour}"></span>'
        f"{escape(method)}</span>"
        for method, colour in colours(methods).items()
    ]
    return f"<p>{' '.join(marks)}</p>"


def _status(status: str, problems: Sequence[str], verdicts: Sequence[str]) -> str:
    listed = "".join(f"<li>{escape(line)}</li>" for line in problems)
    box = f'<div class="box{" warn" if problems else ""}" id="status"><strong>{escape(status)}</strong>'
    box += f"<ul>{listed}</ul></div>" if listed else "</div>"
    if verdicts:
        lines = "".join(f"<li>{escape(line)}</li>" for line in verdicts)
        box += f"<p><strong>At a glance</strong> (95 % interval of the paired mean difference)</p><ul>{lines}</ul>"
    return box


def _table(table: Table) -> str:
    parts = [
        f'<h2 id="{table.key}">{escape(table.title)}</h2>',
        f'<p class="read">{escape(table.reading)}</p>',
    ]
    if table.rows:
        head = "".join(f"<th{_name(i, table)} scope='col'>{escape(text)}</th>" for i, text in enumerate(table.header))
        parts.append(f'<div class="scroll"><table id="table-{table.key}"><thead><tr>{head}</tr></thead>')
        for group, rows in table.groups:
            parts.append(f'<tbody><tr class="group"><th colspan="{len(table.header)}">{escape(group)}</th></tr>')
            parts += ["<tr>" + "".join(_td(i, c, table) for i, c in enumerate(row)) + "</tr>" for row in rows]
            parts.append("</tbody>")
        parts.append("</table></div>")
    parts.append(_notes(table.notes))
    return "\n".join(part for part in parts if part)


def _name(position: int, table: Table) -> str:
    return ' class="name"' if position < table.labels else ""


def _td(position: int, cell: Cell, table: Table) -> str:
    kinds = " ".join(k for k in ("name" if position < table.labels else "", cell.kind) if k)
    interval = f'<span class="ci">{escape(cell.interval)}</span>' if cell.interval else ""
    return f"<td{f' class={chr(34)}{kinds}{chr(34)}' if kinds else ''}>{escape(cell.text)}{interval}</td>"


def _notes(notes: Sequence[str]) -> str:
    return '<ul class="notes">' + "".join(f"<li>{escape(n)}</li>" for n in notes) + "</ul>" if notes else ""


def _figures(figures: Sequence[Figure]) -> str:
    parts = ['<h2 id="figures">Learning curves and entropy weights</h2>']
    parts.append(
        '<p class="read">One panel per carrier. Dashed lines are abrupt changes, dotted lines the segments of gradual '
        "drift.</p>"
    )
    tasks = dict.fromkeys(f.task for f in figures)
    titled = None
    for figure in figures:
        if (figure.task, figure.pattern) != titled:
            titled = (figure.task, figure.pattern)
            parts.append(f"<h3>{escape(f'{figure.task} · ' if len(tasks) > 1 else '')}{escape(figure.pattern)}</h3>")
        data = base64.b64encode(figure.png).decode()
        parts.append(
            f'<figure><img alt="{escape(figure.kind)}, {escape(figure.task)}, {escape(figure.pattern)}" '
            f'width="{figure.width}" src="data:image/png;base64,{data}">'
            f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
        )
    return "\n".join(parts)


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
    """The same tables in Markdown; the group's title becomes the first column."""
    out = [f"# {title}", "", *(f"- **{name}**: {value}" for name, value in facts), "", f"**{status}**", ""]
    out += [*(f"- {line}" for line in problems), ""] if problems else []
    out += ["At a glance (95 % interval of the paired mean difference):", ""] if verdicts else []
    out += [*(f"- {line}" for line in verdicts), ""] if verdicts else []
    for table in tables:
        out += [f"## {table.title}", "", table.reading, ""]
        if table.rows:
            names = ["", *table.header]
            out.append("| " + " | ".join(names) + " |")
            out.append("|" + "|".join("---" if i <= table.labels else "---:" for i in range(len(names))) + "|")
            for group, rows in table.groups:
                out += ["| " + " | ".join(_plain(x) for x in (group, *row)) + " |" for row in rows]
            out.append("")
        out += [*(f"- {note}" for note in table.notes), ""] if table.notes else []
    out += ["## What these numbers do not say", "", *(f"- {line}" for line in honesty)]
    return "\n".join(out) + "\n"


def _plain(value: Any) -> str:
    return str(value).replace("|", "\\|")


def settings_text(config: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Configuration and environment as indented JSON, without the list of runs."""
    import json

    shown = {
        "config": dict(config),
        "manifest": {k: v for k, v in manifest.items() if k not in ("runs", "oracle")},
    }
    return json.dumps(shown, indent=1, default=str)
