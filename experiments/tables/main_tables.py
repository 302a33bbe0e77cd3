"""The paper's main table of one family, and its table of recovery times."""

from collections.abc import Sequence

from aesjax.audit.claim import ABRUPT, BY_AES, BY_BASELINE
from aesjax.audit.evidence import CARRIERS, PATTERNS, TASKS, gather
from aesjax.audit.measured import atoms, expected, missing
from aesjax.measure.patterns import STEADY
from aesjax.report.compare import recovery_table
from aesjax.report.tables import main_table, paper_table
from experiments.cli.errors import DIVERGED, DONE, guarded, refusing
from experiments.tables.printing import look_of, show
from experiments.tables.studies import main_studies, parsed, train

__all__ = ["family", "recovery"]


def family(name: str, description: str | None, argv: Sequence[str] | None = None) -> int:
    """nAUC and DropRatio of one family beside the paper's; returns the exit code."""
    return guarded(lambda: _table(f"{name}_table", (name,), description, argv))


def recovery(description: str | None, argv: Sequence[str] | None = None) -> int:
    """Times of recovery on the twelve tasks beside the paper's; returns the exit code."""
    return guarded(lambda: _table("recovery_table", tuple(TASKS), description, argv))


def _table(name: str, families: tuple[str, ...], description: str | None, argv: Sequence[str] | None) -> int:
    options, rest = parsed(description, argv)
    times = name == "recovery_table"
    studies = main_studies(options, families, f"{STEADY},abrupt" if times else None)
    with refusing():
        code = train(options, studies, rest)
        if code not in (DONE, DIVERGED):
            return code
        folders = [options.out / study.name for study in studies]
        look, _ = look_of(folders)
        patterns = ABRUPT if times else (STEADY, *PATTERNS)
        places = expected(patterns, CARRIERS, [task for family in families for task in TASKS[family]])
        metric = "recovery" if times else "mean_return"
        lacking = missing(places, atoms(gather(folders), BY_AES, BY_BASELINE, metric, places))
        tables = [recovery_table(look)] if times else [paper_table(look), main_table(look)]
        title = "Recovery after abrupt changes" if times else f"nAUC and DropRatio: {families[0]}"
        show(options.out, name, title, tables, lacking, folders)
    return code
