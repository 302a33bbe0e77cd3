"""The paper's main table of one family, and its table of recovery times."""

from collections.abc import Sequence

from experiments.audit.claim import ABRUPT, BY_AES, BY_BASELINE
from experiments.audit.evidence import CARRIERS, PATTERNS, TASKS, gather
from experiments.audit.measured import atoms, expected, missing
from experiments.measure.patterns import STEADY
from experiments.paper.printing import look_of, show
from experiments.paper.studies import Made, main_studies, run_table
from experiments.report.compare import recovery_table
from experiments.report.tables import main_table, paper_table


def family(name: str, description: str | None, argv: Sequence[str] | None = None) -> int:
    """nAUC and DropRatio of one family beside the paper's; returns the exit code."""
    return _table(f"{name}_table", (name,), description, argv)


def recovery(description: str | None, argv: Sequence[str] | None = None) -> int:
    """Times of recovery on the twelve tasks beside the paper's; returns the exit code."""
    return _table("recovery_table", tuple(TASKS), description, argv)


def _table(name: str, families: tuple[str, ...], description: str | None, argv: Sequence[str] | None) -> int:
    times = name == "recovery_table"
    patterns = ABRUPT if times else (STEADY, *PATTERNS)
    metric = "recovery" if times else "mean_return"
    title = "Recovery after abrupt changes" if times else f"nAUC and DropRatio: {families[0]}"

    def tell(made: Made) -> None:
        look, _ = look_of(made.folders)
        places = expected(patterns, CARRIERS, [task for family in families for task in TASKS[family]])
        lacking = missing(places, atoms(gather(made.folders), BY_AES, BY_BASELINE, metric, places))
        tables = [recovery_table(look)] if times else [paper_table(look), main_table(look)]
        show(made.options.out, name, title, tables, lacking, made.folders)

    only = f"{STEADY},abrupt" if times else None
    return run_table(lambda options: main_studies(options, families, only), tell, description, argv)
