"""The README's picture, from the stored records: `python docs/finding.py` writes `finding.png`."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import page_tables as tables

from experiments.measure import paired_differences, t_interval

PANELS = {
    "AES minus its carrier": tables.FAMILIES["aes"].rows,
    "Newest quarter of the replay minus a constant weight": [
        row for row in tables.FAMILIES["helps"].rows if row.first.endswith(tables.RECENT)
    ],
}
COLOURS = dict(zip(tables.CARRIERS, ("#0072b2", "#d55e00", "#009e73", "#cc79a7"), strict=True))


def draw(path: Path) -> None:
    """Draw paired differences with 95 % intervals, a panel for each comparison."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
    for axis, (title, contrasts) in zip(axes, PANELS.items(), strict=True):
        for at, row in enumerate(contrasts):
            carrier = row.first.partition("+")[0]
            for place, pattern in enumerate(tables.PATTERNS):
                ours, theirs = tables.scores(row.record, row.first, pattern), tables.opponent(row, pattern)
                value, low, high = t_interval(paired_differences(ours, theirs))
                axis.errorbar(
                    place + 0.17 * (at - (len(contrasts) - 1) / 2),
                    value,
                    yerr=np.array([[value - low], [high - value]]),
                    fmt="osD^"[tables.CARRIERS.index(carrier)],
                    color=COLOURS[carrier],
                    label=carrier if place == 0 else None,
                    markersize=5,
                )
        axis.axhline(0.0, color="black", linewidth=0.8)
        axis.set_xticks(range(len(tables.PATTERNS)), ["no drift", *tables.PATTERNS[1:]])
        axis.set_title(title, fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=9, loc="upper left")
    axes[0].set_ylabel("difference in mean return")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    draw(tables.ROOT / "docs" / "finding.png")
