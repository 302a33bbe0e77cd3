"""What a claim is made of, and the paper's own numbers for it from the tables printed there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from experiments.audit.evidence import BASELINE, CARRIERS, PATTERNS, of
from experiments.audit.measured import FAMILY_OF, Side, methods
from experiments.measure.tables import decimal_mean, paper_table, round_half_up

#: ``mean``: the pooled difference is on the claimed side; ``every``: so is each cell; ``most``: more than half of the
#: cells, and the pooled difference; ``never_worse``: no cell is on the other side; ``question``: of ours, which way?
_Kind = Literal["mean", "every", "most", "never_worse", "question"]
NAUC, DROP, RECOVERY = "nauc_task_safe", "drop_run_safe", "recovery"
NO_NUMBER = "no number"
ABRUPT = ("abrupt",)
AES = of("aes")
BY_AES, BY_BASELINE = methods(AES), methods(BASELINE)


@dataclass(frozen=True)
class Claim:
    """One sentence: ``first`` against ``second`` in ``metric``, higher or lower, over the cells it speaks of."""

    key: str
    section: str  # of the paper
    text: str  # in our own short words
    paper: str  # the paper's number, as printed there or as its tables give it
    kind: _Kind = "mean"
    first: Side = BY_AES
    second: Side = BY_BASELINE
    metric: str = NAUC  # of `docs/metrics.md`, or `weight_noise`
    sign: int = 1  # 1: first is higher, -1: lower
    patterns: tuple[str, ...] = PATTERNS
    carriers: tuple[str, ...] = CARRIERS
    tasks: tuple[str, ...] = tuple(FAMILY_OF)
    unit: tuple[str, ...] = ("family", "carrier", "pattern")  # what makes one cell
    weigh: Literal["family", "task"] = "family"
    contrast: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # patterns with the larger effect, with the smaller
    against: tuple[str, ...] = ()  # tasks with the smaller effect
    untestable: str = ""  # why no study could decide it


def _printed(values: Iterable[Decimal]) -> Decimal:
    return round_half_up(decimal_mean(values), 2)


def main_means(column: str, patterns: Sequence[str] = PATTERNS) -> str:
    """Baseline → AES: means of the paper's main table over families and carriers."""
    rows = [row for row in paper_table("nauc_drop") if row["pattern"].lower() in patterns]
    sides = [[row[column] for row in rows if row["method"].endswith("+AES") is ours] for ours in (False, True)]
    return " → ".join(str(_printed(side)) for side in sides)


def main_wins(column: str, sign: int) -> str:
    """In how many drifting cells of the main table AES is better."""
    cells = {(r["family"], r["pattern"], r["method"]): r[column] for r in paper_table("nauc_drop")}
    pairs = [
        (value, cells[family, pattern, method.removesuffix("+AES")])
        for (family, pattern, method), value in cells.items()
        if method.endswith("+AES") and pattern.lower() in PATTERNS
    ]
    return f"{sum(sign * (a - b) > 0 for a, b in pairs)} of {len(pairs)} cells"


def recovery_means(carrier: str = "", tasks: Sequence[str] = ()) -> str:
    """Baseline → AES in percent: means over tasks, and over carriers if none is named."""
    rows = [row for row in paper_table("recovery") if row["method"].startswith(carrier)]
    rows = [row for row in rows if not tasks or row["task"] in tasks]
    column = [(row["method"].endswith("+AES"), row["recovery_percent"]) for row in rows]
    sides = [[value for is_aes, value in column if is_aes is ours] for ours in (False, True)]
    return " → ".join(f"{_printed(side)} %" for side in sides)


def row_of(table: str, column: str, *labels: str) -> str:
    """Cells of a table of Appendix B, joined by arrows: of the rows whose first column reads like the labels."""
    rows = {str(next(iter(row.values()))): row[column] for row in paper_table(table)}
    return " → ".join(str(rows[label]) for label in labels)
