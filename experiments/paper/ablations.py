"""The paper's tables of Appendix B: ablation, quantile, smoothing and clip range."""

from typing import NamedTuple

from experiments.measure.tables import paper_table
from experiments.paper.audit import interval_of
from experiments.paper.evidence import Evidence, Spec, gather, of
from experiments.paper.measured import NOTHING, Measured, Side, atoms, expected, measure, missing
from experiments.paper.printing import show
from experiments.paper.sizes import tasks_of
from experiments.paper.studies import Made, Options, PaperTable, Study, named_studies
from experiments.report.cells import NONE, Cell, Table, number

_AES, _COUPLED = of("aes"), of("aes", coupling=1)  # in the ablation learning rates follow the weight
#: Rows of the paper's ablation -> the method that is trained for them.
_VARIANTS: dict[str, Spec] = {
    "AES (Default)": _COUPLED,
    "Fixed lambda (No AES)": of("fixed"),
    "AES w/o coupling": _AES,
    "AES w/o clipping": of("aes", lambda_min=0, lambda_max="inf", coupling=1),
    "AES (TD mean)": of("aes", proxy="td_mean", coupling=1),
    "AES (value loss)": of("aes", proxy="value_loss", coupling=1),
    "Heuristic linear schedule": of("linear"),
    "AES (critic drift)": of("aes", proxy="critic_drift", coupling=1),
}
#: Rows of the paper's table over the clip range.
_CLIPS = (("1e-5", "2"), ("1e-4", "1"), ("1e-5", "1"), ("1e-5", "0.5"), ("1e-4", "0.5"))


class _Row(NamedTuple):
    """One row of a table: its name, what we train for it, and the paper's two numbers."""

    name: str
    spec: Spec
    nauc: str
    drop: str


def _rows(table: str) -> list[_Row]:
    found = []
    for at, row in enumerate(paper_table(table)):
        first = str(next(iter(row.values())))
        if table == "ablation":
            name, spec = first, _VARIANTS[first]
        elif table == "clip":
            low, high = _CLIPS[at]
            name, spec = f"[{low}, {high}]", of("aes", lambda_min=low, lambda_max=high)
        else:
            axis = "q" if table == "quantile" else "beta"
            name, spec = f"{axis} = {first}", of("aes", **{axis: first})
        found.append(_Row(name, spec, str(row["nauc"]), str(row["drop_ratio"])))
    return found


def appendix(table: str, study: str, title: str) -> PaperTable:
    """One table: every variant's nAUC and DropRatio compared with the paper's.

    Args:
      table: of `experiments.measure.tables.PAPER_TABLES`.
      study: of `aesjax list`.
    """

    def wanted(options: Options) -> list[Study]:
        return named_studies(options, study, _families(options))

    return PaperTable(title, wanted, lambda made: _show(table, title, made))


def _families(options: Options) -> tuple[str, ...]:
    return ("toy", "mujoco", "isaac") if options.preset == "paper" else ("toy",)


def _show(table: str, title: str, made: Made) -> None:
    options, evidence, rows = made.options, gather(made.folders), _rows(table)
    shown = Table(
        table,
        title,
        "Means over families, carriers and the four drifting patterns, families weighing equally; the offset-safe "
        "number with its 95 % interval over seeds, the literal one beside it, and the paper's; cells says how many "
        "of the paper's cells there are.",
        ["variant", "nAUC (safe)", "literal", "paper", "DropRatio (safe)", "literal", "paper", "cells"],
        [("all carriers, drifting patterns", [_cells(evidence, row) for row in rows])],
    )
    places = expected()
    lacking = {missing(places, atoms(evidence, Side((row.spec,)), NOTHING, "mean_return", places)) for row in rows}
    asked = options.tasks.split(",") if options.tasks else tasks_of(_families(options), options.preset)
    shown.notes.append(f"Asked for: {', '.join(asked)}.")
    show(options.out, f"{table}_table", title, [shown], max(lacking, key=len), made.folders)


def _cells(evidence: Evidence, row: _Row) -> list[Cell]:
    places, cells = expected(), [Cell(row.name)]
    count = 0
    for metric, printed in (("nauc_task", row.nauc), ("drop_run", row.drop)):
        for name in (f"{metric}_safe", metric):
            found = atoms(evidence, Side((row.spec,)), NOTHING, name, places)
            count = len(found)
            cells.append(_level(measure(found) if found else None, interval=name != metric))
        cells.append(Cell(printed, kind="paper"))
    return [*cells, Cell(f"{count}/{len(places)}", kind="muted" if count == len(places) else "worse")]


def _level(m: Measured | None, *, interval: bool) -> Cell:
    if m is None:
        return Cell(NONE, kind="muted")
    return Cell(number(m.value), interval_of(m, 1.0, 2) if interval else "")
