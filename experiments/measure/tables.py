"""The paper's printed numbers, its rounding, and means over seeds, tasks, patterns and families."""

import csv
import re
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal, getcontext
from importlib import resources
from typing import Any

PAPER_TABLES = ("nauc_drop", "recovery", "ablation", "quantile", "ema", "clip")
_RECOVERY_PATTERN = "abrupt"  # of the paper's table of recovery times
LABELS = ("family", "task", "method", "pattern", "variant", "proxy", "coupling", "clipping")


def round_half_up(value: Decimal | str | float, places: int) -> Decimal:
    """``value`` to ``places`` decimals, halves away from zero, in decimal arithmetic.

    A float is rounded as its printed decimal, so 0.125 becomes 0.13 and 2.675 becomes 2.68.

    >>> round_half_up("15.725", 2)
    Decimal('15.73')
    """
    exact = value if isinstance(value, Decimal) else Decimal(str(value))
    if exact.adjusted() + places >= getcontext().prec:  # fewer digits than requested
        return exact
    return exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP)


def decimal_mean(values: Iterable[Decimal]) -> Decimal:
    """Unweighted mean in decimal arithmetic; never through a binary float."""
    values = list(values)
    return sum(values, Decimal(0)) / len(values)


def paper_table(name: str) -> list[dict[str, Any]]:
    """A table of the AES paper, one dict per row: ``Decimal`` with the printed digits, blanks None.

    Args:
      name: one of ``PAPER_TABLES``.
    """
    if name not in PAPER_TABLES:
        raise ValueError(f"unknown paper table '{name}'; known: {', '.join(PAPER_TABLES)}")
    text = resources.files("experiments.measure").joinpath("paper", f"table_{name}.csv").read_text(encoding="utf-8")
    return [
        {key: (cell if key in LABELS else Decimal(cell)) if cell else None for key, cell in row.items()}
        for row in csv.DictReader(text.splitlines())
    ]


def _family(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return "isaac" if plain.startswith("isaac") else plain


def _task(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return "2dmultigoal" if plain in ("toy", "multigoal", "toymultigoal") else plain


def paper_nauc_drop(family: str, method: str, pattern: str) -> tuple[Decimal, Decimal] | None:
    """The paper's (nAUC, DropRatio) of a family, or None; names are compared without case and punctuation."""
    for row in paper_table("nauc_drop"):
        theirs = (_family(row["family"]), row["method"], row["pattern"].lower())
        if theirs == (_family(family), method, pattern.lower()):
            return row["nauc"], row["drop_ratio"]
    return None


def paper_recovery(family: str, task: str | None, method: str, pattern: str) -> Decimal | None:
    """The paper's recovery in percent of the horizon, or None if it has none.

    Args:
      family, method: names are compared without case and punctuation, methods exactly.
      task: None for the family's mean.
      pattern: the paper measured recovery on its Abrupt pattern only.
    """
    if pattern.lower() != _RECOVERY_PATTERN:
        return None
    rows = [
        row["recovery_percent"]
        for row in paper_table("recovery")
        if _family(row["family"]) == _family(family)
        and row["method"] == method
        and (task is None or _task(row["task"]) == _task(task))
    ]
    return decimal_mean(rows) if rows else None
