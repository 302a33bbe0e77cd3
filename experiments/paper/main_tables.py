"""The paper's main table of one family, and its table of recovery times."""

from experiments.measure.study import STEADY
from experiments.paper.evidence import CARRIERS, PATTERNS, TASKS, gather, of
from experiments.paper.measured import Side, atoms, expected, missing
from experiments.paper.printing import look_of, show
from experiments.paper.studies import Made, PaperTable, main_studies
from experiments.report.tables import table_of


def family(name: str) -> PaperTable:
    """nAUC and DropRatio of one family compared with the paper's."""
    return _table(f"{name}_table", (name,))


def recovery() -> PaperTable:
    """Times of recovery on the twelve tasks compared with the paper's."""
    return _table("recovery_table", tuple(TASKS))


def _table(name: str, families: tuple[str, ...]) -> PaperTable:
    times = name == "recovery_table"
    patterns = ("abrupt",) if times else (STEADY, *PATTERNS)
    metric = "recovery" if times else "mean_return"
    title = "Recovery after abrupt changes" if times else f"nAUC and DropRatio: {families[0]}"

    def shown(made: Made) -> None:
        look = look_of(made.folders)
        places = expected(patterns, CARRIERS, [task for family in families for task in TASKS[family]])
        lacking = missing(places, atoms(gather(made.folders), Side((of("aes"),)), Side((of(""),)), metric, places))
        tables = [table_of(look, key) for key in (("recovery",) if times else ("paper", "main"))]
        show(made.options.out, name, title, tables, lacking, made.folders)

    only = f"{STEADY},abrupt" if times else None
    return PaperTable(title, lambda options: main_studies(options, families, only), shown)
