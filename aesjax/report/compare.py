"""The tables of a report that compare: recovery with its null value, and paired differences with a baseline."""

import math
from typing import Any

from aesjax.measure.patterns import STEADY
from aesjax.measure.summary import LOWER_IS_BETTER
from aesjax.measure.tables import paper_recovery, round_half_up
from aesjax.report.cells import NONE, Cell, Lookup, Table, by_pattern, cell, counted, number
from aesjax.report.verdicts import METRIC_NAMES, opponent_of

__all__ = ["changes_table", "paired_table", "recovery_table"]


def recovery_table(look: Lookup) -> Table:
    """Literal and robust recovery with recovered fractions and null values."""
    table = Table(
        "recovery",
        "Recovery after changes",
        "Times are sums over the changes in % of training; a change that was not recovered from counts its whole "
        "window, so read every time together with the share recovered; the null column is the same measure on the "
        "method's Steady runs, where nothing changed, and only what exceeds it is recovery.",
        [
            *("method", "literal %", "paper %", "recovered", "null %", "robust %", "recovered", "null %"),
            *("vs own steady %", "immediate drop", "deficit area", "did not hurt %"),
        ],
    )

    def percent(row, places=1):
        return cell(row, places, 100)

    def plain(row):
        return Cell(cell(row, 0, 100).text, kind="muted")

    def row(scope, method, pattern):
        get = lambda name: look.get(scope, method, pattern, name)  # noqa: E731
        printed = paper_recovery(scope[0], scope[1], method, pattern)
        paper = Cell(NONE if printed is None else str(round_half_up(printed, 1)), kind="paper")
        return [
            *(Cell(method), percent(get("recovery")), paper, plain(get("recovered_fraction"))),
            Cell(cell(get("recovery_null"), 1, 100).text, kind="muted"),
            *(percent(get("recovery_robust")), plain(get("recovery_robust_fraction"))),
            Cell(cell(get("recovery_robust_null"), 1, 100).text, kind="muted"),
            *(
                percent(get("recovery_vs_steady")),
                Cell(cell(get("immediate_drop")).text),
                cell(get("deficit_area"), 3),
            ),
            plain(get("no_drop_fraction")),
        ]

    table = by_pattern(look, table, row, _measured(look, "recovery"))
    formulas = [r["value"] for (*_, m), r in look.cells.items() if m == "recovery_null_formula"]
    known = [v for v in formulas if math.isfinite(v)]
    if known:
        table.notes.append(
            f"Literal recovery of changes that do nothing is expected to be {number(known[0] * 100, 1)} % on "
            "this grid, by formula, for a curve that neither rises nor falls."
        )
    table.notes.append("Recovered is the % of changes. Test on the deficit area: it needs no crossing.")
    return table


def changes_table(look: Lookup) -> Table:
    """The recovered share and the level of each change, so that structural censoring shows."""
    count = sum(key[4].startswith("recovered@") for key in look.cells) // max(
        sum(key[4] == "recovered_fraction" for key in look.cells), 1
    )
    numbers = range(1, count + 1)
    table = Table(
        "changes",
        "Recovery of each change",
        "Share of seeds that regained 95 % of the level before the next change, and the level itself: a change from "
        "which no method recovers may have lowered the optimum, and a low level is easily regained.",
        [
            "method",
            *(f"recovered, change {i} %" for i in numbers),
            *(f"level before change {i}" for i in numbers),
        ],
    )

    def row(scope, method, pattern):
        get = lambda name: look.get(scope, method, pattern, name)  # noqa: E731
        shares = [Cell(cell(get(f"robust_recovered@{i}"), 0, 100).text) for i in numbers]
        return [Cell(method), *shares, *(Cell(cell(get(f"level@{i}")).text, kind="muted") for i in numbers)]

    return by_pattern(look, table, row, _measured(look, "level@1"), tasks=True)


def _measured(look: Lookup, metric: str) -> list[str]:
    """The patterns in which a metric has a value."""
    found = {p for (_, _, _, p, m), r in look.cells.items() if m == metric and math.isfinite(r["value"])}
    return [p for p in look.patterns if p in found]


def paired_table(look: Lookup) -> Table:
    """Differences against the carrier's baseline with equal seeds."""
    table = Table(
        "paired",
        "Paired differences against the carrier's baseline",
        "Method minus baseline at equal seed; an interval that excludes zero is marked ▲ if the method is better and "
        "▼ if it is worse (for DropRatio, recovery and deficit area lower is better, so ▲ stands beside a negative "
        "difference); P is the probability that the method is better.",
        [
            *("method", "baseline", "pairs", "mean difference", "IQM difference"),
            *("P(better)", "P(better), paired", "p (Holm)"),
        ],
        labels=2,
    )
    wanted = ["nauc_task_safe", "drop_run_safe", "recovery_robust", "deficit_area", "final_return"]
    if not any(m == "paired:nauc_task_safe" and math.isfinite(r["value"]) for (*_, m), r in look.cells.items()):
        wanted.insert(0, "mean_return")
    for scope in look.scopes():
        for metric in wanted:
            for pattern in look.patterns:
                if pattern == STEADY and metric == "drop_run_safe":
                    continue  # zero by definition
                rows = [_paired_row(look, scope, m, pattern, metric) for m in look.methods]
                if rows := [r for r in rows if r]:
                    side = "lower" if metric in LOWER_IS_BETTER else "higher"
                    table.groups.append((f"{scope[2]} · {METRIC_NAMES[metric]} ({side} is better) · {pattern}", rows))
    table.notes = [
        "On one task with fewer than 10 seeds the mean's interval is Student's t interval; the others are stratified "
        "bootstrap intervals. Holm adjusts within one metric over all comparisons of the study."
    ]
    return table


def _paired_row(look: Lookup, scope, method, pattern, metric) -> list[Cell] | None:
    get = lambda kind: look.get(scope, method, pattern, f"{kind}:{metric}")  # noqa: E731
    mean = get("paired")
    if mean is None or not math.isfinite(mean["value"]):
        return None
    places = {"final_return": 2, "mean_return": 2}.get(metric, 3)
    cells = [_marked(get(kind), metric, places) for kind in ("paired", "paired_iqm")]
    p = get("p_holm")
    shown = "< 0.001" if p is not None and p["value"] < 0.001 else number(p["value"] if p else None, 3)
    return [
        *(Cell(method), Cell(opponent_of(mean)), counted(mean), *cells, cell(get("poi"))),
        *(Cell(cell(get("poi_paired")).text), Cell(shown)),
    ]


def _verdict(row: dict[str, Any] | None, metric: str) -> int:
    """1 or -1 if the interval excludes zero in the better or the worse direction, else 0."""
    if row is None or row["low"] is None or row["n_valid"] < 2 or row["low"] <= 0 <= row["high"]:
        return 0
    return (1 if row["low"] > 0 else -1) * (-1 if metric in LOWER_IS_BETTER else 1)


def _marked(row: dict[str, Any] | None, metric: str, places: int) -> Cell:
    plain, verdict = cell(row, places), _verdict(row, metric)
    if not verdict:
        return plain
    sign, kind = ("▲ ", "better") if verdict > 0 else ("▼ ", "worse")
    return Cell(sign + plain.text, plain.interval, kind)
