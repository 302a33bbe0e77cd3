"""Every method against the best constant in hindsight, a row of panels per record of `responses_table.py`.

Usage: python experiments/responses_figure.py ANSWERS.json... [--out responses.png]
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.cli.errors import DONE, WRONG
from experiments.study import store

INK = {"better": "#009E73", "worse": "#D55E00", "undecided": "#666666"}


@dataclass(frozen=True)
class Figure:
    """Draw the contrasts of records that are there."""

    answers: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files ``answers.json`` of `experiments/responses_table.py`, one per carrier."""
    out: Path = Path("responses.png")
    """PNG to write."""


def read(path: Path) -> dict[str, Any]:
    """One record.

    Raises:
      ValueError: it cannot be read, or holds no contrasts with the best constant.
    """
    try:
        record = json.loads(path.read_text())
        if record["contrasts"]["hindsight"]:
            return record
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no answers of responses_table.py: {error}") from None
    raise ValueError(f"{path} holds no contrast with the best constant")


def draw(records: list[dict[str, Any]]) -> Any:
    """The difference to the best constant of the cell, 95 % intervals; best methods on top."""
    from matplotlib import pyplot as plt

    patterns = list(dict.fromkeys(c["pattern"] for r in records for c in r["contrasts"]["hindsight"]))
    heights = [len({c["first"] for c in r["contrasts"]["hindsight"]}) for r in records]
    figure, axes = plt.subplots(
        len(records),
        len(patterns),
        figsize=(2.3 * len(patterns) + 2.5, 0.2 * sum(heights) + 0.9 * len(records)),
        height_ratios=heights,
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for row, record in zip(axes, records, strict=True):
        found = record["contrasts"]["hindsight"]
        methods = list(dict.fromkeys(c["first"] for c in found))
        mean = {m: sum(c["difference"][0] for c in found if c["first"] == m) for m in methods}
        methods.sort(key=mean.__getitem__)
        for axis, pattern in zip(row, patterns, strict=True):
            axis.axvline(0.0, color="#222222", linewidth=0.8)
            for c in found:
                if c["pattern"] != pattern:
                    continue
                value, low, high = c["difference"]
                at, ink = methods.index(c["first"]), INK[c["verdict"]]
                axis.plot([low, high], [at, at], color=ink, linewidth=1.4)
                axis.plot(value, at, "o", color=ink, markersize=3.5)
            axis.set_title(f"{record['carrier']}, {pattern}", fontsize=9)
            axis.set_yticks(range(len(methods)), methods, fontsize=7)
            axis.tick_params(axis="x", labelsize=7)
            axis.grid(axis="y", alpha=0.25)
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
    told = (
        "mean return minus that of the best constant of the cell in hindsight (green: better, red: worse, after Holm)"
    )
    figure.supxlabel(told, fontsize=9)
    return figure


def main(options: Figure) -> int:
    """Read, draw, write."""
    try:
        records = [read(path) for path in options.answers]
    except ValueError as error:
        print(f"aesjax: {error}", file=sys.stderr)
        return WRONG
    import matplotlib

    matplotlib.use("Agg")
    with store.replacing(options.out) as partial:
        draw(records).savefig(partial, dpi=110, format="png")
    print(f"figure: {options.out}")
    return DONE


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Figure, description=__doc__)))
