"""Figures of the soft-MDP studies, from their data."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.theory.gridworld import arrows, gridworld, start_at
from experiments.theory.softmdp import occupancy, solve
from experiments.theory.softmdp_control import ARMS, DISCOUNT, FAMILIES, MEASURES, MU, PHASES, SIZE
from experiments.theory.softmdp_noise import COUPLING
from experiments.theory.softmdp_tracking import MU as TRACKING_MU


def _mean_slope(x, y) -> float:
    return float(np.polyfit(np.log(x), np.log(np.mean(y, -1)), 1)[0])


def planning(data: dict[str, Any]) -> Any:
    """Regret against T, a panel per family and kind of drift; the slope of each line in the legend."""
    from matplotlib import pyplot as plt

    names = (
        "lag-1",
        "best constant, c=1",
        "best aes, c=1",
        "best aes, c=1 without entropy",
        "best aes, c=100",
        "frozen",
    )
    figure, axes = plt.subplots(2, 3, figsize=(15, 10), layout="constrained")
    for axis, (case, row) in zip(axes.flat, data.items(), strict=False):  # a quick run has fewer
        for name in names:
            y = row["regret"][name]
            axis.loglog(row["T"], y.mean(-1), "o-", label=f"{name} ({_mean_slope(row['T'], y):.2f})")
        axis.set(title=case, xlabel="rounds T at fixed total drift", ylabel="total regret (reward)")
        axis.set_xticks(row["T"], labels=row["T"])
        axis.set_xticks([], minor=True)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncol": 2}
        axis.legend(fontsize=7, title="slope in T in brackets", title_fontsize=7, **below)
    return figure


def exponents(data: dict[str, Any]) -> Any:
    """Best constant gain and its regret against T and against the number of switches."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    e = data["exponents"]
    for axis, key, title in ((axes[0], "regret", "regret of the best gain"), (axes[1], "gain", "best gain")):
        for kind in ("linear", "linear cold", "abrupt"):
            y = e[kind][key]
            label = {
                "linear": "linear, warm start",
                "linear cold": "linear, uniform start",
                "abrupt": "abrupt, 4 switches",
            }
            axis.loglog(e["T"], y.mean(-1), "o-", label=f"{label[kind]}: slope {_mean_slope(e['T'], y):.2f}")
        axis.set(title=title, xlabel="rounds T", ylabel="total regret (reward)" if key == "regret" else "gain")
        axis.set_xticks(e["T"], labels=e["T"])
        axis.set_xticks([], minor=True)
        axis.legend(fontsize=8)
    y = e["abrupt in switches"]["regret"]
    axes[2].loglog(e["switches"], y.mean(-1), "o-", label=f"slope {_mean_slope(e['switches'], y):.2f}")
    axes[2].set(title=f"abrupt, T = {e['T'][-1]}", xlabel="switches S", ylabel="total regret (reward)")
    axes[2].set_xticks(e["switches"], labels=e["switches"])
    axes[2].set_xticks([], minor=True)
    axes[2].legend(fontsize=8)
    return figure


def ratios(data: dict[str, Any]) -> Any:
    """Log ratio of regrets with intervals, a panel per reference."""
    from matplotlib import pyplot as plt

    # Each against the reference named in its title; intervals of 95 % over paired seeds.
    panels = {
        "tuned constant": "no entropy, against the tuned constant",
        "twin": "with entropy, against its twin without",
        "permuted": "no entropy, against its permuted control",
    }
    figure, axes = plt.subplots(1, 3, figsize=(16, 5), sharey=True, layout="constrained")
    for axis, (key, title) in zip(axes, panels.items(), strict=True):
        rows = data["log ratios"][key]
        names = list(next(iter(rows.values())))
        for k, (kind, row) in enumerate(rows.items()):
            value, low, high = (np.array([getattr(row[n], f) for n in names]) for f in ("value", "low", "high"))
            place = np.arange(len(names)) + 0.18 * (k - 1.5)
            axis.errorbar(value, place, xerr=[value - low, high - value], fmt="o", ms=4, label=kind)
        axis.axvline(0.0, color="black", lw=0.8)
        axis.set(title=title, xlabel="log ratio of total regret (left of 0: better)", yticks=range(len(names)))
        axis.set_yticklabels(names)
    axes[0].legend(fontsize=8)
    return figure


def weights(data: dict[str, Any]) -> Any:
    """Gain of each schedule over the rounds at its tuned scale (without entropy), one state of one seed."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(14, 7), layout="constrained", sharey=True)
    for axis, (kind, row) in zip(axes.flat, data["arms"].items(), strict=True):
        for name, entry in row.items():
            if "weight" in entry:
                gain = np.maximum(entry["weight"] * COUPLING * TRACKING_MU, 1e-4)
                axis.semilogy(gain, lw=1, label=name, color="black" if name == "constant" else None)
        axis.set(title=f"{kind} drift", xlabel="round", ylabel="gain, c lam mu")
    axes[0, 0].legend(fontsize=8, ncol=2)
    return figure


def learning(data: dict[str, Any]) -> Any:
    """Regret over time and weights of part 5.4, a row per family."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(17, 8), layout="constrained")
    stretches = data["stretches"]
    for i, family in enumerate(FAMILIES):
        for name in (*ARMS, "aes_r permuted"):
            entry = data[family][name]
            style = {"ls": "--" if "permuted" in name else "-", "lw": 1.2}
            for k, measure in enumerate(MEASURES):
                axes[i, k].plot(np.arange(1, stretches + 1) / stretches, entry[measure].mean(0), label=name, **style)
            series = entry["weight"][1]
            axes[i, 2].semilogy(np.arange(len(series)) / len(series), series, label=name, **style)
        titles = (*(f"{family} jumps: regret of the policy {m}" for m in MEASURES), f"{family} jumps: weight, one seed")
        for axis, title, unit in zip(axes[i], titles, ("reward", "reward", "reward per nat"), strict=True):
            for change in range(1, PHASES):
                axis.axvline(change / PHASES, color="grey", lw=0.5)
            axis.set(title=title, xlabel="share of the run; grey: the goal jumps", ylabel=unit)
        axes[i, 2].set_ylim(bottom=0.05)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncol=6)
    return figure


def worlds() -> Any:
    """The gridworld before and after a near and a far jump: policy arrows over the visits of the old policy."""
    from matplotlib import pyplot as plt

    jumps = (((4, 4), "old goal; arrows: the best policy"), ((4, 3), "after a near jump"), ((0, 4), "after a far jump"))
    old = None
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    for axis, (goal, title) in zip(axes, jumps, strict=True):
        mdp = gridworld(jnp.asarray(goal, float), size=SIZE, discount=DISCOUNT, temperature=MU)
        policy = solve(mdp).log_policy
        old = policy if old is None else old
        visits = np.asarray(occupancy(mdp, old, start_at((0, 0)))).reshape(SIZE, SIZE)
        image = axis.imshow(np.log10(np.maximum(visits, 1e-6)), cmap="Blues", vmin=-5, vmax=0)
        right, down = arrows(policy, size=SIZE)
        place = np.arange(SIZE)
        axis.quiver(
            place, place, right, down, angles="xy", scale_units="xy", scale=2.2, pivot="mid", color="darkorange"
        )
        axis.plot(goal[1], goal[0], "*", ms=18, mfc="gold", mec="black")
        axis.plot(0, 0, "s", ms=8, mfc="white", mec="black")
        axis.set(title=title, xticks=place, yticks=place)
        figure.colorbar(image, ax=axis, label="log10 visits of the OLD policy")
    return figure
