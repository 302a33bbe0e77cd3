"""The study of detection: AES-C, CUSUM, Page-Hinkley and ADWIN at equal false alarms."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aesjax.schedules import aes_c
from experiments.measure.stats import Interval
from experiments.theory.detection_methods import METHODS
from experiments.theory.detection_streams import Streams
from experiments.theory.findings import Finding, claim, paired, show

COMPARED = ("aes_c", "cusum_restarted", "page_hinkley", "adwin")
NEAR = 300  # updates within which a detection counts for a jump
RATE = 1e5  # quiet observations to one false alarm
_SHARE = 0.05  # of quiet streams of 5 000 observations with an alarm, which is that rate
_HARD = ("AR(.97), t(3)", "slow trend")  # what is beyond 32 blocks of memory, and what rises without a jump
_FOUND = 0.85  # share of the runs in which each jump is to be found
SHIPPED = np.array([aes_c.signature.defaults["threshold"]])


def _first(begun: np.ndarray, at: int, look: int) -> np.ndarray:
    """(N,): rounds from ``at`` to the first alarm, infinite where none begins within ``look``."""
    seen = begun[:, at : at + look]
    return np.where(seen.any(1), seen.argmax(1) + 1.0, np.inf)


def delays(begun: np.ndarray, changes: Sequence[int], look: int) -> np.ndarray:
    """(N, K): rounds from every change to the first alarm, infinite where none begins within ``look``."""
    return np.stack([_first(begun, at, look) for at in changes], axis=1)


def compare(streams: Mapping[str, Streams]) -> dict[str, Any]:
    """Every detector on every kind of stream, with two settings.

    ``own`` is the most sensitive setting with no more alarms on this kind's tuning streams than the default of AES-C,
    where that has fewer than one in 100 000 observations with at most that rate.
    ``common`` is one setting for all kinds: the default of AES-C, and the most cautious one of each other detector's
    on synthetic streams.
    """
    chosen: dict[tuple[str, str], int] = {}
    for kind, of in streams.items():
        default = sum(METHODS["aes_c"].alarms(x, SHIPPED).sum() for x in of.tuning)
        allowed = max(default, sum(x.size for x in of.tuning) / RATE)
        for name in COMPARED:
            method = METHODS[name]
            enough = np.flatnonzero(sum(method.alarms(x, method.settings).sum((1, 2)) for x in of.tuning) <= allowed)
            chosen[kind, name] = int(enough[0]) if len(enough) else len(method.settings) - 1
        print(f"  {kind}: { ({n: float(METHODS[n].settings[chosen[kind, n]]) for n in COMPARED}) }", flush=True)
    data: dict[str, Any] = {}
    for kind, of in streams.items():
        data[kind] = {"observations": sum(x.size for x in of.quiet), "streams": sum(len(x) for x in of.quiet)}
        for name in COMPARED:
            method = METHODS[name]
            most = max(chosen[other, name] for other in streams if "/" not in other)
            common = SHIPPED if name == "aes_c" else method.settings[[most]]
            settings = np.r_[method.settings[[chosen[kind, name]]], common]
            quiet = [method.alarms(x, settings) for x in of.quiet]
            rows: list[dict[str, Any]] = [
                {
                    "setting": float(setting),
                    "false": float(sum(x[h].sum() for x in quiet)),
                    "streams": float(sum(x[h].any(1).sum() for x in quiet)),
                }
                for h, setting in enumerate(settings)
            ]
            for apart, (logs, changes) in of.jumps.items():
                for row, begun in zip(rows, method.alarms(logs, settings), strict=True):
                    row[str(apart)] = delays(begun, changes, NEAR)
                    row[f"{apart} first"] = [float(t) for t in np.flatnonzero(begun[0])]
            data[kind][name] = {"own": rows[0], "common": rows[1]}
        print(f"  {kind}: { ({n: brief(data[kind][n]['common']['1000']) for n in COMPARED}) }", flush=True)
    return data


def brief(delays: np.ndarray) -> str:
    """Share of the runs in which each jump is found, and the median delay."""
    hit = np.isfinite(delays)
    shares = ", ".join(f"{100 * x:.0f}" for x in hit.mean(0))
    return f"{shares} %" + (f"; {np.median(delays[hit]):.0f}" if hit.any() else "")


def findings(data: Mapping[str, Any]) -> list[Finding]:
    """The targets of the detector, and its comparison with the others."""
    shipped = {kind: of["aes_c"]["common"] for kind, of in data.items()}
    toy = {kind: row for kind, row in shipped.items() if "/" in kind}
    made = {kind: row["streams"] / data[kind]["streams"] for kind, row in shipped.items() if kind not in toy}
    hard = {kind: made.pop(kind) for kind in _HARD if kind in made}
    found = [
        claim(
            name,
            f"AES-C as shipped: at most 5 % of quiet streams of 5 000 observations have an alarm, {label}",
            all(share <= _SHARE for share in shares.values()),
            "; ".join(f"{kind} {share:.3f}" for kind, share in shares.items()),
        )
        for name, label, shares in (
            ("D-1", "each family but those of D-9", made),
            ("D-9", "long memory or trend", hard),
        )
        if shares
    ]
    found += [
        claim(
            "D-2",
            "AES-C as shipped has no alarm in the recorded quiet streams",
            all(row["false"] == 0 for row in toy.values()),
            "; ".join(f"{kind} {row['false']:.0f} in {data[kind]['observations']}" for kind, row in toy.items()),
        )
    ]
    for number, apart in enumerate(sorted({int(key) for row in toy.values() for key in row if key.isdigit()})):
        found.append(
            claim(
                f"D-{3 + number}",
                f"AES-C as shipped finds each of recorded jumps {apart} updates apart in 85 % of the runs",
                all(np.isfinite(row[str(apart)]).mean(0).min() >= _FOUND for row in toy.values()),
                "; ".join(f"{kind} {brief(row[str(apart)])}" for kind, row in toy.items()),
            )
        )
    for number, name in enumerate(COMPARED[1:]):
        gains = {
            f"{kind} {apart}": paired(_share(data[kind]["aes_c"]["own"][apart]), _share(data[kind][name]["own"][apart]))
            for kind, row in toy.items()
            for apart in row
            if apart.isdigit()
        }
        found.append(
            claim(
                f"D-{6 + number}",
                f"at equal false alarms AES-C finds more recorded jumps than {METHODS[name].label}",
                False if any(g.high < 0 for g in gains.values()) else all(g.low > 0 for g in gains.values()) or None,
                "; ".join(f"{key} {show(gain)}" for key, gain in gains.items()),
            )
        )
    return sorted(found, key=lambda finding: finding.name)


def _share(delays: np.ndarray) -> np.ndarray:
    return np.isfinite(delays).mean(1)


def wilson(found: float, count: int) -> Interval:
    """95 % Wilson interval of a share."""
    from scipy.stats import binomtest

    low, high = binomtest(round(found * count), count).proportion_ci(method="wilson")
    return Interval(found, float(low), float(high))


def plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Without single delays: for every jump the share of the runs in which it is found; runs, and the median delay."""
    out: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, np.ndarray):
            hit = np.isfinite(value)
            median = float(np.median(value[hit])) if hit.any() else None
            out[key] = {"found": hit.mean(0).tolist(), "runs": len(value), "median": median}
        else:
            out[key] = plain(value) if isinstance(value, Mapping) else value
    return out


def tables(data: Mapping[str, Any]) -> str:
    """Markdown, from what `plain` returns: a row for every stream, distance, detector and setting."""
    parts = [
        "Found: share of the runs in which the first to fourth jump is detected within 300 updates, with the 95 %\n"
        "Wilson interval over all jumps. own: the most sensitive setting with no more alarms on tuning streams than\n"
        "the default of AES-C, or than one in 100 000 observations; common: one setting for all streams, the default\n"
        "of AES-C. false: alarms in other quiet streams, and the number of these that have one.\n",
        "| stream | jumps apart | detector | setting | | false | streams | found, % | interval | median delay |",
        "|---" * 10 + "|",
    ]
    for kind, of in data.items():
        for apart in (key for key in of["aes_c"]["own"] if key.isdigit()):
            for name in COMPARED:
                for which, row in of[name].items():
                    jump = row[apart]
                    share = float(np.mean(jump["found"]))
                    _, low, high = wilson(share, len(jump["found"]) * jump["runs"])
                    cells = (
                        *(kind, apart, METHODS[name].label, which, f"{row['setting']:.3g}"),
                        f"{row['false']:.0f} in {of['observations']:,}",
                        f"{row['streams']:.0f} of {of['streams']}",
                        ", ".join(f"{100 * x:.0f}" for x in jump["found"]),
                        f"{100 * low:.0f} to {100 * high:.0f}",
                        "-" if jump["median"] is None else f"{jump['median']:.0f}",
                    )
                    parts.append(f"| {' | '.join(cells)} |")
    return "\n".join(parts) + "\n"


def draw(data: Mapping[str, Any], streams: Mapping[str, Streams], path: Path) -> None:
    """A recorded stream with every detector's alarms, and the share of jumps found by the distance between them."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplot_mosaic([["run", "run"], ["fresh", "update"]], figsize=(10, 6.4), layout="constrained")
    colours = dict(zip(COMPARED, ("#d55e00", "#0072b2", "#009e73", "#cc79a7"), strict=True))
    logs, changes = streams["td_quantile/fresh"].jumps[1000]
    run = axes["run"]
    run.plot(np.exp(logs[0]), color="0.3", linewidth=0.7)
    run.set(yscale="log", xlabel="update", ylabel="0.9-quantile of |TD error|")
    for at in changes:
        run.axvline(at, color="0.7", linestyle=":", linewidth=1)
    low = float(np.exp(logs[0].min()))
    for row, name in enumerate(COMPARED):
        at = data["td_quantile/fresh"][name]["own"]["1000 first"]
        run.plot(
            at, np.full(len(at), low * 0.7 ** (row + 1)), "|", color=colours[name], markersize=9, markeredgewidth=2
        )
    for place, title in (("fresh", "newest transitions"), ("update", "update batch")):
        axis, of = axes[place], data[f"td_quantile/{place}"]
        apart = [key for key in of["aes_c"]["own"] if key.isdigit()]
        for row, name in enumerate(COMPARED):
            jumps = [of[name]["own"][key] for key in apart]
            share = [wilson(float(np.mean(j["found"])), len(j["found"]) * j["runs"]) for j in jumps]
            value, least, most = (100 * np.array([x[i] for x in share]) for i in range(3))
            axis.errorbar(
                np.arange(len(apart)) + 0.12 * (row - 1.5),
                value,
                yerr=[value - least, most - value],
                fmt="osD^"[row],
                color=colours[name],
                label=METHODS[name].label,
            )
        axis.set_xticks(range(len(apart)), apart)
        axis.set(title=title, xlabel="updates between jumps", ylabel="found within 300 updates, %", ylim=(0, 104))
    axes["fresh"].legend(frameon=False, fontsize=9, loc="lower right")
    for axis in axes.values():
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
