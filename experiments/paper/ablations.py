"""The paper's tables of Appendix B: ablation, quantile, smoothing and clip range."""

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.measure.tables import paper_table
from experiments.paper.audit import interval_of
from experiments.paper.evidence import TASKS, Spec, gather, of
from experiments.paper.measured import NOTHING, Atom, Side, atoms, expected, measure, missing
from experiments.paper.printing import show
from experiments.paper.studies import Made, Options, PaperTable, Part, named_studies, tasks_of
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
_METRICS = ("nauc_task_safe", "nauc_task", "drop_run_safe", "drop_run")
_PRINTED = {"nauc_task": "nauc", "drop_run": "drop_ratio"}  # the paper's numbers, which are literal
#: Rows of the paper's table over the clip range.
_CLIPS = (("1e-5", "2"), ("1e-4", "1"), ("1e-5", "1"), ("1e-5", "0.5"), ("1e-4", "0.5"))


def _rows(table: str) -> Iterator[tuple[str, Spec, Mapping[str, Any]]]:
    """Name of a row, what we train for it, and the paper's row."""
    for at, row in enumerate(paper_table(table)):
        first = str(next(iter(row.values())))
        if table == "ablation":
            yield first, _VARIANTS[first], row
        elif table == "clip":
            low, high = _CLIPS[at]
            yield f"[{low}, {high}]", of("aes", lambda_min=low, lambda_max=high), row
        else:
            axis = "q" if table == "quantile" else "beta"
            yield f"{axis} = {first}", of("aes", **{axis: first}), row


def appendix(table: str, study: str, title: str) -> PaperTable:
    """One table: every variant's nAUC and DropRatio compared with the paper's.

    Args:
      table: of `experiments.measure.tables.PAPER_TABLES`.
      study: of `aesjax list`.
    """

    def wanted(options: Options) -> list[Part]:
        return named_studies(options, study, _families(options))

    return PaperTable(title, wanted, lambda made: _show(table, title, made))


def _families(options: Options) -> tuple[str, ...]:
    return tuple(TASKS) if options.preset == "paper" else ("toy",)


def _show(table: str, title: str, made: Made) -> None:
    options, evidence, places = made.options, gather(made.folders), expected()
    body, lacking = [], []
    for name, spec, printed in _rows(table):
        found = {m: atoms(evidence, Side((spec,)), NOTHING, m, places) for m in ("mean_return", *_METRICS)}
        lacking.append(missing(places, found["mean_return"]))
        body.append([Cell(name), *_cells(found, printed, len(places))])
    shown = Table(
        table,
        title,
        "Means over families, carriers and the four drifting patterns, families weighing equally; the offset-safe "
        "number with its 95 % interval over seeds, the literal one beside it, and the paper's; cells says how many "
        "of the paper's cells there are.",
        ["variant", "nAUC (safe)", "literal", "paper", "DropRatio (safe)", "literal", "paper", "cells"],
        [("all carriers, drifting patterns", body)],
        notes=[f"Asked for: {', '.join(tasks_of(options, _families(options)))}."],
    )
    show(options.out, f"{table}_table", title, [shown], max(lacking, key=len), made.folders)


def _cells(found: Mapping[str, list[Atom]], printed: Mapping[str, Any], places: int) -> list[Cell]:
    cells = []
    for metric in _METRICS:
        if not found[metric]:
            cells.append(Cell(NONE, kind="muted"))
        else:
            m = measure(found[metric])
            cells.append(Cell(number(m.value), interval_of(m, 1.0, 2) if metric.endswith("_safe") else ""))
        if metric in _PRINTED:
            cells.append(Cell(str(printed[_PRINTED[metric]]), kind="paper"))
    count = len(found[_METRICS[-1]])
    return [*cells, Cell(f"{count}/{places}", kind="muted" if count == places else "worse")]
