"""The tables of a report, each described by its columns and an explanation."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from experiments.measure.catalog import CATALOG, FALLBACK, MAIN, SENTENCE, TABLE
from experiments.measure.comparisons import DECIDED, best_of, scores_of
from experiments.measure.study import LOGS
from experiments.measure.tables import paper_nauc_drop, paper_recovery, round_half_up
from experiments.report.cells import DAGGER, NONE, Cell, Lookup, Table, cell, counted, marked, number
from experiments.report.plots import MANY
from experiments.report.verdicts import SIGNS, Compared, compared, has_verdicts


class Column(NamedTuple):
    """One column: the first of its metrics in the tidy frame with a value is printed."""

    head: str
    metrics: Sequence[str]
    show: str = "interval"  # or "value", "muted", "runs" (valid of all), "left out", "paper" (the printed number)


class Spec(NamedTuple):
    """Description of a table with a group per scope and pattern and a row per method."""

    title: str
    reading: str
    columns: Sequence[Column]
    where: str = "mean_return"  # a pattern is shown if this metric has a value
    notes: Sequence[str] = ()
    empty: str = ""  # note of a table without rows; "": the table is omitted
    families: bool = False  # rows of families only, not of their tasks


_RUNS = Column("runs", ["mean_return"], show="runs")
_ELSEWHERE = ("in_force", "nominal", "previous", "next", "low", "high")

TABLES: dict[str, Spec] = {
    "main": Spec(
        "Main results: floor-corrected nAUC, DropRatio, robust recovery",
        "nAUC: area above the random policy as a share of SAC's area without drift on the same task, mean over tasks "
        "and seeds (higher is better, 1.00 is SAC on Steady). DropRatio: share of the method's own Steady area lost "
        "under drift (lower is better). Recovery: time to regain 95 % of the level after abrupt changes, summed, in % "
        "of training (lower is better). Brackets: 95 % intervals over seeds; n=: number of runs if not all are valid.",
        [
            _RUNS,
            Column("nAUC (floor-corrected, per task)", ["nauc_task_safe"]),
            Column("nAUC (floor-corrected, family)", ["nauc_family_safe"]),
            Column("DropRatio (floor-corrected, per task)", ["drop_nauc_task_safe", "drop_task_safe"]),
            Column("recovery % (robust)", ["recovery_robust"]),
            Column("recovered", ["recovery_robust_fraction"], "muted"),
        ],
        notes=[
            "Per task: all tasks have equal weight. Family: a ratio of sums, in which a task with large returns has "
            "more weight."
        ],
    ),
    "recovery": Spec(
        "Recovery after changes",
        "Times are sums over the changes, in % of training. A change without recovery counts with its complete window, "
        "so read times together with the share of recovered changes. Null: the same measure on the method's Steady "
        "runs, without changes; compare each time with it. n/a: changes before which nothing was learned, which the "
        "robust columns exclude.",
        [
            _RUNS,
            Column("raw %", ["recovery"]),
            Column("paper %", ["recovery"], show="paper"),
            Column("recovered", ["recovered_fraction"], "muted"),
            Column("null %", ["recovery_null"], "muted"),
            Column("robust %", ["recovery_robust"]),
            Column("recovered", ["recovery_robust_fraction"], "muted"),
            Column("n/a", ["n_not_applicable"], show="left out"),
            Column("null %", ["recovery_robust_null"], "muted"),
            Column("vs own steady %", ["recovery_vs_steady"]),
            Column("immediate drop", ["immediate_drop"], show="value"),
            Column("shortfall", ["deficit_area"]),
            Column("no drop %", ["no_drop_fraction"], "muted"),
        ],
        where="recovery",
        notes=["Recovered: % of changes. For tests use the shortfall, which needs no threshold crossing."],
        empty="No valid run of a pattern that is constant between jumps, so recovery is not defined.",
    ),
    "weights": Spec(
        "Entropy weight: saturation and responsiveness",
        "Saturation: share of updates at a clip (a saturated schedule is a constant). Responsiveness: relative rise of "
        "the weight within 2 % of training after a change (0: no response; the Steady rows are the null value).",
        [
            Column("mean weight", ["mean_entropy_weight"]),
            Column("saturation %", ["saturation"]),
            Column("at minimum %", ["saturation_min"]),
            Column("at maximum %", ["saturation_max"]),
            Column("responsiveness %", ["responsiveness"]),
        ],
    ),
    "adaptations": Spec(
        "Adaptations",
        "Means over training: the drift ratio (1: stationary), the window as a share of the stored transitions (of "
        "weights by age: the effective size, exp of their entropy), and the factor of the learning rates. Totals per "
        "run: parameter refreshes (shrink-and-perturb, FIRE), gradient steps.",
        [
            Column("ratio", ["mean_response_ratio"]),
            Column("window", ["mean_window_share"]),
            Column("refreshes", ["refreshes"]),
            Column("rate factor", ["mean_rate_factor"]),
            Column("gradient steps", ["gradient_steps"]),
        ],
    ),
    "elsewhere": Spec(
        "Returns under drift that is not in force",
        "Mean return under other drift values: in force, nominal, before the last change (forgetting), "
        "after the next change (transfer), and the ends of the range.",
        [Column(where.replace("_", " "), [f"mean_return_{where}"]) for where in _ELSEWHERE],
    ),
    "returns": Spec(
        "Returns",
        "Undiscounted return of the deterministic policy: in the last tenth of training, over all of it, and after the "
        "first change. The training return is that of the stochastic policy, which may fall when the weight rises; "
        "the online return counts unfinished episodes, too.",
        [
            _RUNS,
            Column("final return", ["final_return"]),
            Column("mean return", ["mean_return"]),
            Column("after the first change", ["later_return"]),
            Column("mean training return", ["mean_train_return"]),
            Column("online return", ["online_return"]),
        ],
    ),
    "paper": Spec(
        "Paper parity: raw nAUC and DropRatio",
        "Raw ratios of areas with one normaliser per family, rounded half-up as in the paper. The column paper has the "
        "paper's number if family, method and pattern match.",
        [
            Column("nAUC", ["nauc_family"]),
            Column("paper", ["nauc_family"], show="paper"),
            Column("DropRatio", ["drop_family"]),
            Column("paper", ["drop_family"], show="paper"),
        ],
        notes=["The paper states neither horizon nor spread over seeds; compare directions, not digits."],
        families=True,
    ),
}
_MARKED = f"{DAGGER} No verdict: the denominator is not clearly positive, or an area of a raw ratio is negative."
_SIZES = {"toy": 1, "mujoco": 5, "isaac": 6}  # tasks of the paper's families
#: Explanations of missing values.
_REASONS = {
    "no_steady_sac_runs": "nAUC needs SAC on Steady, which this study does not contain.",
    "no_steady_run": "DropRatio and comparisons with Steady need the method's own Steady runs, which are missing.",
    "steady_run": "A run without a valid Steady run of its seed has no DropRatio and no comparison with Steady.",
    "no_floor": "Floor-corrected and robust values need the random policy's return, which the manifest lacks.",
    "normaliser_not_above_floor": "Dash: SAC on Steady, or the method's own Steady run, is not above the random "
    "policy, so the ratio is undefined.",
    "level_not_above_floor": "Dash: nothing was learned before a change.",
    "no_change_points": "Dash: the pattern states no change points.",
    "not_logged": "Dash: the weight was not logged.",
    "too_few_evaluations_after_a_change": "Fewer than two evaluations fall within 2 % of the horizon after a change, "
    "so responsiveness cannot be measured.",
}


def custom_spec(look: Lookup) -> Spec:
    """Description of the table of metrics that are not built in."""
    rows = [row for row in look.catalog.values() if row.name not in CATALOG]
    columns = [Column(f"{row.title}{' %' if row.percent else ''}", [row.name]) for row in rows]
    return Spec("Custom metrics", "Metrics of installed packages, or of the call that wrote this report.", columns)


def table_of(look: Lookup, key: str, spec: Spec) -> Table:
    """A table with the columns available in the study."""
    known = {metric for *_, metric in look.cells}
    several = any(len(tasks) > 1 for tasks in look.tasks.values())
    hidden = "paper" if LOGS in look.tasks else ""
    columns = [column for column in spec.columns if known.intersection(column.metrics) and column.show != hidden]
    if not several:  # a family's ratio is its task's
        columns = [column for column in columns if column.metrics != ["nauc_family_safe"]]
    valued = {p for (_, _, _, p, m), r in look.cells.items() if m == spec.where and math.isfinite(r["value"])}
    patterns = look.patterns if spec.where == "mean_return" else [p for p in look.patterns if p in valued]
    table = Table(key, spec.title, spec.reading, ["method", *(column.head for column in columns)])
    for scope in look.scopes():
        for pattern in patterns if scope[1] is None or not spec.families else ():
            methods = [m for m in look.methods if look.get(scope, m, pattern, "mean_return") is not None]
            rows = [[Cell(m), *(_shown(look, scope, m, pattern, column) for column in columns)] for m in methods]
            if rows and columns:
                table.groups.append((f"{scope[2]} · {pattern}", rows))
    if not table.rows:
        return replace(table, notes=[spec.empty] if spec.empty else [])
    table.notes += spec.notes if key != "main" or several else ()
    if key == "paper":
        sizes = [(f, _SIZES.get(f.lower().split()[0] if f else "", 0), len(tasks)) for f, tasks in look.tasks.items()]
        text = "The paper's {} numbers average {} tasks, these {}, so they are different quantities."
        table.notes += [text.format(*size) for size in sizes if size[1] > size[2]]
    wanted = {metric for column in columns for metric in column.metrics}
    missing = {
        "steady_run" if reason.startswith("steady_run_") else reason
        for (*_, metric), row in look.cells.items()
        if metric in wanted and row["n_valid"] < row["n_total"]
        for reason in row["reason"].split(", ")
    }
    table.notes += [text for reason, text in _REASONS.items() if reason in missing]
    return table


def _shown(look: Lookup, scope: tuple, method: str, pattern: str, column: Column) -> Cell:
    rows = [look.get(scope, method, pattern, metric) for metric in column.metrics]
    row = next((row for row in rows if row and math.isfinite(row["value"])), rows[0])
    metric = look.metric(column.metrics[0])
    if column.show == "runs":
        return counted(row)
    if column.show == "paper":
        nauc, drop = paper_nauc_drop(scope[0], method, pattern) or (None, None)
        time = paper_recovery(scope[0], scope[1], method, pattern)
        time = None if time is None else round_half_up(time, 1)
        printed = {"nauc_family": nauc, "drop_family": drop, "recovery": time}[column.metrics[0]]
        return Cell(NONE if printed is None else str(printed), kind="paper")
    if column.show == "left out":  # changes of all valid runs together
        if row is None or not math.isfinite(row["value"]):
            return Cell(NONE, kind="muted")
        names = {key[4] for key in look.cells if key[4].startswith("recovered@")}
        changes = [look.get(scope, method, pattern, name) for name in names]
        count, total = round(row["value"] * row["n_valid"]), sum(known["n_valid"] for known in changes if known)
        return Cell(f"{count}/{total}", kind="worse" if count else "muted")
    shown = cell(row, metric.digits, 100 if metric.percent else 1, interval=column.show == "interval")
    return replace(shown, kind="muted") if column.show == "muted" else shown


def hindsight_table(look: Lookup) -> Table:
    """Best constant weight of every carrier under every pattern of a task, and the best of its other methods."""
    table = Table(
        "hindsight",
        "Best constant weight, chosen in hindsight",
        "Per carrier the constant with the highest mean return on this task under this pattern, at the "
        "seeds that all constants have. It is the opponent 'best constant' of the paired differences. The column "
        "constants has the size of the grid. The choice is made on these runs, so the mean return, over all seeds, is "
        "biased upwards.",
        ["carrier", "constants", "best constant", "mean return", "best other method", "mean return"],
    )
    for family, task, title in look.scopes():
        if task is None and len(look.tasks[family]) > 1:  # each of its tasks has its own choice
            continue
        scores = scores_of(look.study, task or look.tasks[family][0])
        for pattern in look.patterns:
            rows = []
            for carrier in dict.fromkeys(look.carriers.values()):
                methods = [method for method, of in look.carriers.items() if of == carrier]
                constants = [method for method in methods if method in look.constants]
                others = [method for method in methods if method not in constants]
                best = best_of(scores, constants, pattern)
                if len(constants) > 1 and best is not None:
                    row = [Cell(carrier), Cell(str(len(constants)), kind="muted")]
                    for name in (best, best_of(scores, others, pattern) or NONE):
                        row += [Cell(name), cell(look.get((family, task), name, pattern, "mean_return"))]
                    rows.append(row)
            if rows:
                table.groups.append((f"{title} · {pattern}", rows))
    return table


def paired_table(look: Lookup) -> Table:
    """Differences at equal seeds with the baseline, constants and controls."""
    table = Table(
        "paired",
        "Paired differences at equal seeds",
        "Method minus opponent at equal seed. Opponents: the carrier's baseline, constants and the method's own "
        "controls. ▲ better, ▼ worse: p < 5 % after Holm's correction; ≈ equivalent: else, interval within 5 % of the "
        "agent's gain over random actions; = equal: no differences, or constants of equal weight; ○ undecided; · no "
        "data: fewer than five seeds. Detectable: smallest difference that is detected with probability 0.8 at Holm's "
        "first step. For DropRatio, "
        "recovery and shortfall lower is better, so ▲ marks a negative difference. P: probability that the method is "
        "better.",
        [
            "method",
            "opponent",
            "pairs",
            "mean difference",
            "detectable",
            "IQM difference",
            "P(better)",
            "P(better), paired",
            "p (Holm)",
        ],
        notes=[
            "On one task with fewer than 10 seeds the interval of the mean is Student's t interval; other intervals "
            "are stratified bootstrap intervals. A Holm family is one metric and kind of opponent over all methods and "
            "patterns of the study; constants and controls are a separate family."
        ],
        labels=2,
    )
    clear = any(has_verdicts(look, name) for name in look.verdict(MAIN))
    wanted = look.verdict(MAIN, *(() if clear else (FALLBACK,)), SENTENCE, TABLE)
    wanted.sort(key=look.is_marked)
    for scope in look.scopes():
        for metric in wanted:
            title = f"{look.metric(metric).title} ({look.metric(metric).side} is better)"
            for pattern in look.patterns:
                pairs = [(m, kind) for m in look.methods for kind in ("", *look.opponents)]
                both = [(m, kind, compared(look, scope, m, pattern, metric, kind)) for m, kind in pairs]
                rows = [_paired_row(look, scope, m, metric, kind, c) for m, kind, c in both if c]
                if rows:
                    if len(look.methods) >= MANY:  # significant rows first
                        rows.sort(key=lambda row: not row[3].kind)
                    table.groups.append((f"{scope[2]} · {title} · {pattern}", rows))
    return table if table.rows else replace(table, notes=["No method shares a valid seed and pattern with a baseline."])


def _paired_row(look: Lookup, scope: tuple, method: str, metric: str, kind: str, c: Compared) -> list[Cell]:
    places, suffix = look.metric(metric).difference_digits, f":vs={kind}" if kind else ""
    iqm, poi, paired = (
        cell(look.get(scope, method, c.pattern, f"{of}:{metric}{suffix}"), places if of == "paired_iqm" else 2)
        for of in ("paired_iqm", "poi", "poi_paired")
    )
    mean = cell(c.row, places)
    mean = Cell(f"{SIGNS[c.outcome]} {mean.text}", mean.interval, c.outcome if c.outcome in DECIDED else "")
    detectable = Cell(number(c.detectable, places), f"{100 * c.detectable / c.gain:.0f} %" if c.gain > 0 else "")
    opponent = f"{kind.replace('_', ' ')}: {c.opponent}" if kind == "best_constant" else c.opponent
    p = Cell(NONE if marked(c.row) else "< 0.001" if c.p < 0.001 else number(c.p, 3))
    return [Cell(method), Cell(opponent), counted(c.row), mean, detectable, iqm, poi, Cell(paired.text), p]


def build_tables(look: Lookup) -> list[Table]:
    """All tables of the report in order, without tables that have neither rows nor notes."""
    first, *others = (table_of(look, key, spec) for key, spec in (TABLES | {"custom": custom_spec(look)}).items())
    tables = [first, others[0], paired_table(look), hindsight_table(look), *others[1:]]
    if any(map(look.is_marked, look.verdict(MAIN))):  # mean returns first, ratios last
        tables.sort(key=lambda table: (table.key != "returns", table is first))
    for table in tables:
        if any(DAGGER in shown.text for row in table.rows for shown in row):
            table.notes.append(_MARKED)
    return [table for table in tables if table.rows or table.notes]
