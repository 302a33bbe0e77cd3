"""The tables of a report, each with one sentence on how to read it."""

import math

from aesjax.measure.study import baseline_of
from aesjax.measure.tables import paper_nauc_drop
from aesjax.report.cells import DAGGER, NONE, Cell, Lookup, Table, by_pattern, cell, counted, reasons
from aesjax.report.compare import changes_table, paired_table, recovery_table

__all__ = ["build_tables", "main_table", "paper_table", "returns_table", "weights_table"]


def main_table(look: Lookup) -> Table:
    """Safe nAUC beside safe DropRatio beside robust recovery, with intervals."""
    table = Table(
        "main",
        "Main results: safe nAUC, DropRatio, robust recovery",
        "nAUC is the area above the random policy as a share of what SAC reaches without drift (higher is better, 1.00 "
        "is SAC on Steady); DropRatio is the share of the method's own Steady area that drift costs (lower is better); "
        "recovery is the time to regain 95 % of the level after abrupt changes, summed, in % of training (lower is "
        "better); brackets are 95 % intervals over seeds.",
        ["method", "runs", "nAUC (safe)", "DropRatio (safe)", "recovery % (robust)", "recovered"],
    )

    def row(scope, method, pattern):
        get = lambda name: look.get(scope, method, pattern, name)  # noqa: E731
        drop = get("drop_nauc_task_safe")
        if drop is None or not math.isfinite(drop["value"]):
            drop = get("drop_task_safe")
        values = [cell(get("nauc_task_safe")), cell(drop), cell(get("recovery_robust"), 1, 100)]
        recovered = cell(get("recovery_robust_fraction"), 0, 100)
        share = Cell(recovered.text if recovered.text == NONE else recovered.text + " %", kind="muted")
        return [Cell(method), counted(get("mean_return")), *values, share]

    table = by_pattern(look, table, row)
    table.notes += reasons(look, ("nauc_task_safe", "drop_task_safe", "recovery_robust"))
    return table


def paper_table(look: Lookup) -> Table:
    """Literal nAUC and DropRatio in the paper's format, the paper's number beside ours where there is one."""
    table = Table(
        "paper",
        "Paper parity: literal nAUC and DropRatio",
        "Literal ratios of areas with one normaliser per family, rounded half-up as the paper prints them; the paper's "
        f"own number stands beside ours where family, method and pattern match, and {DAGGER} marks a ratio that "
        "contains a negative area and must not be read.",
        ["method", "nAUC", "paper", "DropRatio", "paper"],
    )

    def row(scope, method, pattern):
        ours = [look.get(scope, method, pattern, f"{name}_family") for name in ("nauc", "drop")]
        theirs = paper_nauc_drop(scope[0], method, pattern) or (NONE, NONE)
        cells = [Cell(method)]
        for mine, printed in zip(ours, theirs, strict=True):
            cells += [cell(mine), Cell(str(printed), kind="paper")]
        return cells

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


def weights_table(look: Lookup) -> Table:
    """Saturation and responsiveness of the entropy weight."""
    table = Table(
        "weights",
        "Entropy weight: saturation and responsiveness",
        "Saturation is the share of updates at a clip (a saturated schedule is a constant); responsiveness is the rise "
        "of the weight within 2 % of training after a change, relative to before (0 means it did not react, and the "
        "Steady rows show what it is when there is nothing to react to).",
        ["method", "mean weight", "saturation %", "at minimum %", "at maximum %", "responsiveness %"],
    )

    def row(scope, method, pattern):
        get = lambda name: look.get(scope, method, pattern, name)  # noqa: E731
        shares = [cell(get(name), 1, 100) for name in ("saturation", "saturation_min", "saturation_max")]
        weight = get("mean_entropy_weight")
        small = weight is not None and math.isfinite(weight["value"]) and abs(weight["value"]) < 0.1
        return [Cell(method), cell(weight, 4 if small else 3), *shares, cell(get("responsiveness"), 1, 100)]

    table = by_pattern(look, table, row)
    table.notes += reasons(look, ("saturation", "responsiveness"))
    return table


def returns_table(look: Lookup) -> Table:
    """Final, mean and training returns."""
    table = Table(
        "returns",
        "Returns",
        "Undiscounted return of the deterministic policy, over the last tenth of training and over all of it, and the "
        "return of the stochastic policy while training, which can move the other way when the weight rises.",
        ["method", "runs", "final return", "mean return", "mean training return"],
    )

    def row(scope, method, pattern):
        rows = [look.get(scope, method, pattern, n) for n in ("final_return", "mean_return", "mean_train_return")]
        return [Cell(method), counted(rows[1]), *map(cell, rows)]

    return by_pattern(look, table, row)


def build_tables(look: Lookup) -> list[Table]:
    """All tables of the report in order; one without any row says why."""
    tables = [main_table(look), recovery_table(look), paired_table(look)]
    tables += [weights_table(look), returns_table(look), paper_table(look)]
    if not any(baseline_of(m, look.methods) for m in look.methods):
        tables[2].notes = ["No method of this study has its carrier's baseline beside it, so there is nothing to pair."]
    elif not tables[2].rows:
        tables[2].notes = ["No method shares a valid seed and pattern with its baseline."]
    if not tables[1].rows:
        tables[1].notes = ["No valid run of a pattern that jumps and is constant in between: no recovery to measure."]
    changes = changes_table(look)
    if changes.rows:
        tables.insert(2, changes)
    return tables
