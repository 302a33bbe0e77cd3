"""The tables of a report that compare: recovery with its null value, and paired differences with a baseline."""

import math
from dataclasses import replace
from typing import Any

from experiments.measure.comparisons import LOWER_IS_BETTER, NOT_SIGNIFICANT
from experiments.measure.tables import paper_recovery, round_half_up
from experiments.report.cells import NONE, Cell, Lookup, Table, by_pattern, cell, counted, number, reasons
from experiments.report.looks import MANY
from experiments.report.verdicts import METRIC_NAMES, SIGNS, Compared, compared, was_compared


def recovery_table(look: Lookup) -> Table:
    """Raw and robust recovery with recovered fractions, null values, and the changes that are left out."""
    table = Table(
        "recovery",
        "Recovery after changes",
        "Times are sums over the changes in % of training; a change that was not recovered from counts its whole "
        "window, so read every time together with the share recovered; the null column is the same measure on the "
        "method's Steady runs, where nothing changed, and only what exceeds it is recovery; n/a counts the changes "
        "before which nothing had been learned, which the robust columns leave out.",
        [
            *(
                "method",
                "runs",
                "raw %",
                "paper %",
                "recovered",
                "null %",
                "robust %",
                "recovered",
                "n/a",
                "null %",
            ),
            *("vs own steady %", "immediate drop", "deficit area", "did not hurt %"),
        ],
    )
    changes = _changes(look)

    def row(get, scope, method, pattern):
        def muted(name, places=0):
            return cell(get(name), places, 100, interval=False)

        printed = paper_recovery(scope[0], scope[1], method, pattern)
        return [
            *(counted(get("mean_return")), cell(get("recovery"), 1, 100)),
            Cell(NONE if printed is None else str(round_half_up(printed, 1)), kind="paper"),
            *(muted("recovered_fraction"), muted("recovery_null", 1)),
            *(cell(get("recovery_robust"), 1, 100), muted("recovery_robust_fraction")),
            *(_left_out(get("n_not_applicable"), changes), muted("recovery_robust_null", 1)),
            *(cell(get("recovery_vs_steady"), 1, 100), replace(cell(get("immediate_drop"), interval=False), kind="")),
            *(cell(get("deficit_area"), 3), muted("no_drop_fraction")),
        ]

    table = by_pattern(look, table, row, _measured(look, "recovery"))
    formulas = [r["value"] for (*_, m), r in look.cells.items() if m == "recovery_null_formula"]
    known = [v for v in formulas if math.isfinite(v)]
    if known:
        table.notes.append(
            f"Raw recovery of changes that do nothing is expected to be {number(known[0] * 100, 1)} % on "
            "this grid, by formula, for a curve that neither rises nor falls."
        )
    table.notes.append("Recovered is the % of changes. Test on the deficit area: it needs no crossing.")
    table.notes += reasons(look, ("recovery_null", "recovery_robust", "recovery_vs_steady"))
    return table


def _changes(look: Lookup) -> int:
    """Changes within a run."""
    return max((int(key[4].partition("@")[2]) for key in look.cells if key[4].startswith("recovered@")), default=0)


def _left_out(row: dict[str, Any] | None, changes: int) -> Cell:
    """How many changes of all valid runs together are not applicable."""
    if row is None or not math.isfinite(row["value"]):
        return Cell(NONE, kind="muted")
    count, total = round(row["value"] * row["n_valid"]), changes * row["n_valid"]
    return Cell(f"{count}/{total}", kind="worse" if count else "muted")


def changes_table(look: Lookup) -> Table:
    """The recovered share and the level of each change, so that structural censoring shows."""
    numbers = range(1, _changes(look) + 1)
    table = Table(
        "changes",
        "Recovery of each change",
        "Share of seeds that regained 95 % of the level before the next change, and the level itself: a change from "
        "which no method recovers may have lowered the optimum, and a low level is easily regained.",
        ["method", *(f"recovered, change {i} %" for i in numbers), *(f"level before change {i}" for i in numbers)],
    )

    def row(get, *_):
        shares = [replace(cell(get(f"robust_recovered@{i}"), 0, 100, interval=False), kind="") for i in numbers]
        return [*shares, *(cell(get(f"level@{i}"), interval=False) for i in numbers)]

    return by_pattern(look, table, row, _measured(look, "level@1"))


def _measured(look: Lookup, metric: str) -> list[str]:
    """The patterns in which a metric has a value."""
    found = {p for (_, _, _, p, m), r in look.cells.items() if m == metric and math.isfinite(r["value"])}
    return [p for p in look.patterns if p in found]


def paired_table(look: Lookup) -> Table:
    """Differences at equal seeds against the carrier's baseline, constants and controls."""
    table = Table(
        "paired",
        "Paired differences at equal seeds",
        "Method minus opponent at equal seed: the carrier's baseline, and where the study has them constants and the "
        "method's own controls; a difference of at least five pairs that is below 5 % after Holm's correction is "
        "marked ▲ if the method is better and ▼ if it is worse (for DropRatio, recovery and deficit area lower is "
        "better, so ▲ stands beside a negative difference); P is the probability that the method is better.",
        [
            *("method", "opponent", "pairs", "mean difference", "IQM difference"),
            *("P(better)", "P(better), paired", "p (Holm)"),
        ],
        labels=2,
    )
    wanted = ["nauc_task_safe", "later_return", "drop_run_safe", "recovery_robust", "deficit_area", "final_return"]
    if not was_compared(look, "nauc_task_safe"):
        wanted.insert(0, "mean_return")
    for scope in look.scopes():
        for metric in wanted:
            for pattern in look.patterns:
                asked = [(m, kind) for m in look.methods for kind in ("", *look.opponents)]
                found = [(m, kind, compared(look, scope, m, pattern, metric, kind)) for m, kind in asked]
                rows = [_paired_row(look, scope, m, pattern, metric, kind, c) for m, kind, c in found if c]
                if rows:
                    if len(look.methods) >= MANY:  # significant ones first
                        rows.sort(key=lambda row: not row[3].kind)
                    side = "lower" if metric in LOWER_IS_BETTER else "higher"
                    table.groups.append((f"{scope[2]} · {METRIC_NAMES[metric]} ({side} is better) · {pattern}", rows))
    table.notes = [
        "On one task with fewer than 10 seeds the mean's interval is Student's t interval; the others are stratified "
        "bootstrap intervals. Holm adjusts within one metric and kind of opponent over all methods and patterns of the "
        "study, constants and controls by themselves."
    ]
    return table


def _paired_row(look: Lookup, scope, method, pattern, metric: str, kind: str, found: Compared) -> list[Cell]:
    get = lambda what: look.get(scope, method, pattern, f"{what}:{metric}" + (f":vs={kind}" if kind else ""))  # noqa: E731
    places = 2 if metric.endswith("_return") else 3
    mean = cell(found.row, places)
    if found.outcome != NOT_SIGNIFICANT:
        mean = Cell(f"{SIGNS[found.outcome]} {mean.text}", mean.interval, found.outcome)
    opponent = f"{kind.replace('_', ' ')}: {found.opponent}" if kind == "best_constant" else found.opponent
    return [
        *(Cell(method), Cell(opponent), counted(found.row), mean, cell(get("paired_iqm"), places), cell(get("poi"))),
        *(Cell(cell(get("poi_paired")).text), Cell("< 0.001" if found.p < 0.001 else number(found.p, 3))),
    ]
