"""The tables of a report, each with one sentence on how to read it."""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from experiments.measure.study import baseline_of, carrier_of
from experiments.measure.tables import paper_nauc_drop
from experiments.report.cells import DAGGER, NONE, Cell, Lookup, Table, by_pattern, cell, counted, reasons, shortened
from experiments.report.compare import changes_table, paired_table, recovery_table


def main_table(look: Lookup) -> Table:
    """Floor-corrected nAUC, floor-corrected DropRatio and robust recovery with their intervals."""
    several = any(len(tasks) > 1 for tasks in look.tasks.values())
    table = Table(
        "main",
        "Main results: floor-corrected nAUC, DropRatio, robust recovery",
        "nAUC: area above the random policy as a share of SAC's without drift on the same task, mean over tasks and "
        "seeds (higher is better, 1.00 is SAC on Steady). DropRatio: share of the method's own Steady area that drift "
        "costs (lower is better). Recovery: time to regain 95 % of the level after abrupt changes, summed, in % of "
        "training (lower is better). Brackets: 95 % intervals over seeds; n=: runs behind a value if not all count.",
        [
            *(
                "method",
                "runs",
                "nAUC (floor-corrected, per task)",
                *(["nAUC (floor-corrected, family)"] if several else []),
            ),
            *("DropRatio (floor-corrected, per task)", "recovery % (robust)", "recovered"),
        ],
    )
    if several:
        table.notes.append(
            "Per task, every task weighs the same; the family's nAUC is a ratio of sums, in which a task with large "
            "returns weighs more. The two can disagree on which method is better."
        )

    def row(get, *_):
        drop = get("drop_nauc_task_safe")
        if drop is None or not math.isfinite(drop["value"]):
            drop = get("drop_task_safe")
        family = [cell(get("nauc_family_safe"))] if several else []
        values = [cell(get("nauc_task_safe")), *family, cell(drop), cell(get("recovery_robust"), 1, 100)]
        share = cell(get("recovery_robust_fraction"), 0, 100, interval=False)
        if share.text != NONE:
            share = replace(share, text=f"{share.text} %")
        return [counted(get("mean_return")), *values, share]

    table = by_pattern(look, table, row)
    table.notes += reasons(look, ("nauc_task_safe", "drop_run_safe", "drop_task_safe", "recovery_robust"))
    table.notes += shortened(look)
    return table


def paper_table(look: Lookup) -> Table:
    """Raw nAUC and DropRatio in the paper's format, the paper's number beside ours where there is one."""
    table = Table(
        "paper",
        "Paper parity: raw nAUC and DropRatio",
        "Raw ratios of areas with one normaliser per family, rounded half-up as the paper prints them; the paper's "
        f"own number stands beside ours where family, method and pattern match, and {DAGGER} marks a ratio that "
        "contains a negative area and must not be read.",
        ["method", "nAUC", "paper", "DropRatio", "paper"],
    )

    def row(get, scope, method, pattern):
        nauc, drop = paper_nauc_drop(scope[0], method, pattern) or (NONE, NONE)
        ours, lost = (cell(get(f"{name}_family")) for name in ("nauc", "drop"))
        return [ours, Cell(str(nauc), kind="paper"), lost, Cell(str(drop), kind="paper")]

    table = by_pattern(look, table, row, tasks=False)
    sizes = {"toy": 1, "mujoco": 5, "isaac": 6}
    for family, tasks in look.tasks.items():
        whole = sizes.get(family.lower().split()[0] if family else "", 0)
        if whole > len(tasks):
            table.notes.append(
                f"The paper's {family} numbers average {whole} tasks, ours {len(tasks)}: not the same quantity."
            )
    table.notes.append("The paper states neither horizon nor spread over seeds; compare directions, not digits.")
    return table


def hindsight_table(look: Lookup, constants: Collection[str]) -> Table:
    """Of every carrier's constant weights the best under every pattern, and the best of its other methods beside it.

    Args:
      constants: methods whose entropy weight is a constant and which turn nothing else.
    """
    table = Table(
        "hindsight",
        "The best constant weight in hindsight",
        "Of each carrier's constants the one with the highest mean return over training under this pattern, which "
        "nobody knows beforehand and which a schedule has to beat; it was chosen among several on these very runs, so "
        "it looks a little better than it is.",
        ["carrier", "constants", "best constant", "mean return", "best other method", "mean return"],
    )
    carriers = dict.fromkeys(map(carrier_of, look.methods))
    for scope in look.scopes():
        for pattern in look.patterns:
            rows = []
            for carrier in carriers:
                found: dict[bool, list[tuple[str, dict]]] = {True: [], False: []}
                for method in look.methods:
                    result = look.get(scope, method, pattern, "mean_return")
                    if carrier_of(method) == carrier and result is not None and math.isfinite(result["value"]):
                        found[method in constants].append((method, result))
                if len(found[True]) > 1:
                    cells = [Cell(carrier), Cell(str(len(found[True])), kind="muted")]
                    for group in (found[True], found[False]):
                        name, result = max(group, key=lambda pair: pair[1]["value"], default=(NONE, None))
                        cells += [Cell(name), cell(result)]
                    rows.append(cells)
            if rows:
                table.groups.append((f"{scope[2]} · {pattern}", rows))
    return table


_RUNS = ("mean_return", "runs", None, 1)
#: Tables of metrics as they are: key -> title, reading, (metric, head, decimals, factor) of those that the study has.
_PLAIN: dict[str, tuple[str, str, list[tuple[str, str, int | None, int]]]] = {
    "weights": (
        "Entropy weight: saturation and responsiveness",
        "Saturation is the share of updates at a clip (a saturated schedule is a constant); responsiveness is the rise "
        "of the weight within 2 % of training after a change, relative to before (0 means it did not react, and the "
        "Steady rows show what it is when there is nothing to react to).",
        [
            ("mean_entropy_weight", "mean weight", 3, 1),
            ("saturation", "saturation %", 1, 100),
            ("saturation_min", "at minimum %", 1, 100),
            ("saturation_max", "at maximum %", 1, 100),
            ("responsiveness", "responsiveness %", 1, 100),
        ],
    ),
    "levers": (
        "Levers beside the entropy weight",
        "Means over training of adaptations: the drift ratio (1: calm), the share of the stored transitions "
        "that batches are drawn from, the factor of the learning rates; how often parameters were "
        "refreshed, and gradient steps per run.",
        [
            ("mean_response_ratio", "ratio", 3, 1),
            ("mean_window_share", "window", 3, 1),
            ("refreshes", "refreshes", 1, 1),
            ("mean_rate_factor", "rate factor", 3, 1),
            ("gradient_steps", "gradient steps", 0, 1),
        ],
    ),
    "elsewhere": (
        "Returns under drift that is not in force",
        "Mean over training of the same policies' returns under the values in force, the nominal ones, those before "
        "the last change (what is forgotten), those after the next (what carries over), and the ends of the range.",
        [
            (f"mean_return_{where}", where.replace("_", " "), 2, 1)
            for where in ("in_force", "nominal", "previous", "next", "low", "high")
        ],
    ),
    "returns": (
        "Returns",
        "Undiscounted return of the deterministic policy, over the last tenth of training, over all of it, and over "
        "what comes after the first change, leaving out how fast the undrifted task was learned; and the return of "
        "the stochastic policy while training, which can move the other way when the weight rises.",
        [
            _RUNS,
            ("final_return", "final return", 2, 1),
            ("mean_return", "mean return", 2, 1),
            ("later_return", "after the first change", 2, 1),
            ("mean_train_return", "mean training return", 2, 1),
        ],
    ),
}


def plain_tables(look: Lookup) -> list[Table]:
    """The tables of `_PLAIN` that the study has values for."""
    tables, known = [], {metric for *_, metric in look.cells}
    for key, (title, reading, columns) in _PLAIN.items():
        present = [column for column in columns if column[0] in known]
        if present:
            table = Table(key, title, reading, ["method", *(head for _, head, *_ in present)])

            def row(get, *_, present=present):
                return [_plain(metric, get(metric), places, scale) for metric, _, places, scale in present]

            tables.append(by_pattern(look, table, row))
    tables[0].notes += reasons(look, ("saturation", "responsiveness"))
    return tables


def _plain(metric: str, row: dict[str, Any] | None, places: int | None, scale: float) -> Cell:
    if places is None:
        return counted(row)
    small = metric == "mean_entropy_weight" and row is not None and abs(row["value"]) < 0.1
    return cell(row, 4 if small else places, scale)


def build_tables(look: Lookup, constants: Collection[str] = ()) -> list[Table]:
    """All tables of the report in order; one without any row says why, or is left out.

    Args:
      constants: as in `hindsight_table`.
    """
    recovery, changes, paired = recovery_table(look), changes_table(look), paired_table(look)
    if not any(baseline_of(m, look.methods) for m in look.methods):
        paired.notes = ["No method of this study has its carrier's baseline beside it, so there is nothing to pair."]
    elif not paired.rows:
        paired.notes = ["No method shares a valid seed and pattern with its baseline."]
    if not recovery.rows:
        recovery.notes = ["No valid run of a pattern that jumps and is constant in between: no recovery to measure."]
    hindsight = hindsight_table(look, constants)
    tables = [main_table(look), recovery, changes, paired, hindsight, *plain_tables(look), paper_table(look)]
    return [table for table in tables if table.rows or table not in (changes, hindsight)]
