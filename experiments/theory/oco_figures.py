"""Tables and figures of the online-learning study."""

from typing import Any

import numpy as np

from experiments.theory.findings import log_log_slope
from experiments.theory.oco_grid import NO_ENTROPY, RATE_METHODS, hindsight, theory
from experiments.theory.oco_methods import METHODS


def tables(data: dict[str, Any]) -> str:
    """Markdown: mean regret of every method at the theory's tuning and at the best scale in hindsight."""
    grid = data["grid"]
    counts = grid["switches"]
    head = "| method | " + " | ".join(f"S={s}" for s in counts) + " |"
    text = [
        f"Mean regret over the seeds, K = 10, T = {grid['rounds']}, fixed gap: tuned in hindsight (theory's tuning).",
        "",
        head,
        "|---" * (len(counts) + 1) + "|",
    ]
    for name, regret in grid["regret"].items():
        best, set_ = hindsight(regret).mean(1), theory(regret).mean(1)
        cells = [f"{b:.1f} ({t:.1f})" for b, t in zip(best, set_, strict=True)]
        text.append(f"| {METHODS[name].label} | " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def draw(data: dict[str, Any], traces: dict[str, np.ndarray]) -> dict[str, Any]:
    """Figures by name: rates in log-log with fitted slopes, weights over time, the main grid."""
    return {"theory_oco_rates": _rates(data["rates"]), "theory_oco_weights": _weights(traces), **_grid(data["grid"])}


def _rates(rates: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True)
    horizons = list(rates["horizons"])
    drift = [1 + 2 * s for s in rates["switches"]]
    for name in RATE_METHODS:
        curves = (
            (axes[0], horizons, np.array([rates["moving"][t][name] for t in horizons])),
            (axes[1], drift, rates["swept"][name]),
        )
        for axis, x, y in curves:
            y = np.maximum(y, 1e-3)
            slope = log_log_slope(x, y)
            label = f"{METHODS[name].label}: {slope.value:.2f}"
            axis.plot(x, y.mean(1), marker="o", markersize=3, linewidth=1.4, label=label)
    axes[0].set(xlabel="rounds T (four switches)", ylabel="dynamic regret, tuned in hindsight")
    axes[1].set(xlabel="1 + path length of the comparator")
    for axis, x in zip(axes, (horizons, drift), strict=True):
        axis.set(xscale="log", yscale="log")
        axis.set_xticks(x, [str(value) for value in x])
        axis.minorticks_off()
        axis.legend(fontsize=8, title="fitted slope")
        axis.grid(alpha=0.25, which="both", linewidth=0.4)
    figure.suptitle("Losses with the hardest gap, ten arms")
    return figure


def _weights(traces: dict[str, np.ndarray]) -> Any:
    import matplotlib.pyplot as plt

    names = [n for n in traces if n != "switches"]
    figure, axes = plt.subplots(2, 4, figsize=(13, 5), sharex=True, sharey=True)
    for axis, name in zip(axes.flat, names, strict=True):
        axis.plot(np.arange(1, len(traces[name]) + 1), traces[name], linewidth=1.3)
        for place in traces["switches"]:
            axis.axvline(place, color="0.8", linewidth=1, zorder=0)
        axis.set(title=METHODS[name].label, yscale="log")
        axis.title.set_fontsize(10)
    for axis in axes[-1]:
        axis.set_xlabel("round")
    for axis in axes[:, 0]:
        axis.set_ylabel("entropy weight")
    figure.suptitle("Weights on one game, fed the true drift (switches in grey)")
    figure.tight_layout()
    return figure


def _grid(grid: dict[str, Any]) -> dict[str, Any]:
    import matplotlib.pyplot as plt

    counts = [s for s in grid["switches"] if s]
    first = len(grid["switches"]) - len(counts)
    names = sorted(grid["regret"], key=lambda n: hindsight(grid["regret"][n])[first:].mean())
    figure, axes = plt.subplots(1, len(counts), figsize=(3.1 * len(counts), 6.5), sharey=True)
    for column, (axis, count) in enumerate(zip(axes, counts, strict=True)):
        for row, name in enumerate(names):
            best = hindsight(grid["regret"][name])[column + first]
            set_ = theory(grid["regret"][name])[column + first]
            colour = "tab:green" if name.endswith("_plain") or name in NO_ENTROPY else "tab:blue"
            axis.barh(row, best.mean(), color=colour, alpha=0.8, xerr=1.96 * best.std(ddof=1) / np.sqrt(best.size))
            axis.plot(set_.mean(), row, "|", color="black", markersize=9)
        axis.set(title=f"{count} switch" + "es" * (count > 1), xlabel="regret")
    axes[0].set_yticks(range(len(names)), [METHODS[n].label for n in names], fontsize=8)
    figure.suptitle("Regret tuned in hindsight (bars; green: no entropy term) and at the theory's tuning (ticks)")
    figure.tight_layout()
    return {"theory_oco_grid": figure}
