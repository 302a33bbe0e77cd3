"""A second implementation of the metrics, in plain Python from their definitions: loops and lists, nothing shared with
the first. A run is ``{"steps": [...], "returns": [...]}``; None is a value that does not
exist.
"""

import math
from statistics import mean, median

GUARD = 1e-3


def broken(run):
    return run is None or any(not math.isfinite(r) for r in run["returns"])


def area(run, horizon):
    t, r = list(run["steps"]), list(run["returns"])
    if t[0] > 0:
        t, r = [0.0, *t], [r[0], *r]
    if t[-1] < horizon:
        t, r = [*t, horizon], [*r, r[-1]]
    return sum((t[j + 1] - t[j]) * (r[j] + r[j + 1]) / 2 for j in range(len(t) - 1))


def level(run, horizon):
    return None if broken(run) else area(run, horizon) / horizon


def known(values):
    return [v for v in values if v is not None]


def average(values):
    values = known(values)
    return mean(values) if values else None


def final(run, horizon):
    late = [r for t, r in zip(run["steps"], run["returns"], strict=True) if t >= 0.9 * horizon]
    return mean(late) if late else run["returns"][-1]


def later(run, changes):
    return mean([r for t, r in zip(run["steps"], run["returns"], strict=True) if t > changes[0]])


def divided(top, bottom, scale, safe):
    """None where the guard (safe) or a zero (literal) forbids the ratio."""
    if top is None or bottom is None or (not safe and bottom == 0) or (safe and bottom <= GUARD * scale):
        return None
    return top / bottom


def scale_of(reference, floor):
    return max(abs(reference or 0.0), abs(floor or 0.0), 1e-8)


def ratios(own, own_steady, sac, floor, safe):
    """nAUC and DropRatio of one run: mean returns ``own``, ``own_steady`` (same seed), SAC's on Steady by seed."""
    if safe and floor is None:
        return None, None
    b = floor if safe else 0.0
    reference = average(sac)
    above = None if reference is None else reference - b
    nauc = None if own is None else divided(own - b, above, scale_of(reference, floor), safe)
    drop = None
    if own is not None and own_steady is not None:
        scale = scale_of(own_steady if reference is None else reference, floor)
        share = divided(own - b, own_steady - b, scale, safe)
        drop = None if share is None else 1 - share
    return nauc, drop


def family(own, steady, sac, floors, safe):
    """nauc_family and drop_family from lists (per task) of mean returns by seed."""
    if safe and any(f is None for f in floors):
        return None, None

    def total(runs):
        means = [average(task) for task in runs]
        return (
            None
            if any(m is None for m in means)
            else mean(m - (f if safe else 0) for m, f in zip(means, floors, strict=True))
        )

    scale = scale_of(mean(average(task) for task in sac), mean(floors) if safe else 0) if total(sac) is not None else 1
    nauc = divided(total(own), total(sac), scale, safe)
    share = divided(total(own), total(steady), scale, safe)
    return nauc, None if share is None else 1 - share


def windows(run, changes, horizon):
    """Per change: indices of the evaluations of its window."""
    found = []
    for i, c in enumerate(changes):
        end = changes[i + 1] if i + 1 < len(changes) else None
        found.append([j for j, t in enumerate(run["steps"]) if t >= c and (end is None or t < end)])
    return found


def summed(durations, horizon, hits):
    """(total, share recovered) of the applicable changes; None where there is none."""
    applicable = [d for d in durations if d is not None]
    if not applicable:
        return None, None
    recovered = [h for d, h in zip(durations, hits, strict=True) if d is not None]
    return sum(applicable) / horizon, sum(recovered) / len(applicable)


def literal(run, changes, horizon):
    t, r = run["steps"], run["returns"]
    durations, hits = [], []
    for i, (c, window) in enumerate(zip(changes, windows(run, changes, horizon), strict=True)):
        reference = [r[j] for j in range(len(t)) if t[j] < c][-1]
        hit = next((j for j in window if r[j] >= reference), None)
        end = changes[i + 1] if i + 1 < len(changes) else horizon
        durations.append(end - c if hit is None else t[hit] - c)
        hits.append(hit is not None)
    return durations, hits


def confirmed(r, window, thresholds, k):
    for place, j in enumerate(window):
        if place + k > len(window):
            return None
        if r[j] >= thresholds[place] and median(r[j : j + k]) >= thresholds[place]:
            return j
    return None


def levels(run, changes, w=5):
    t, r = run["steps"], run["returns"]
    found = []
    for i, c in enumerate(changes):
        start = changes[i - 1] if i else 0
        found.append(mean([r[j] for j in range(len(t)) if start <= t[j] < c][-w:]))
    return found


def robust(run, changes, horizon, floor, k=3, delta=0.05):
    durations, hits = [], []
    for i, (c, window, own) in enumerate(
        zip(changes, windows(run, changes, horizon), levels(run, changes), strict=True)
    ):
        if own <= floor:
            durations.append(None)
            hits.append(False)
            continue
        hit = confirmed(run["returns"], window, [own - delta * (own - floor)] * len(window), k)
        end = changes[i + 1] if i + 1 < len(changes) else horizon
        durations.append(end - c if hit is None else run["steps"][hit] - c)
        hits.append(hit is not None)
    return durations, hits


def versus(run, steady, changes, horizon, floor, k=3, delta=0.05):
    durations, hits = [], []
    for i, (c, window) in enumerate(zip(changes, windows(run, changes, horizon), strict=True)):
        if mean(steady["returns"][j] for j in window) <= floor:
            durations.append(None)
            hits.append(False)
            continue
        smooth = [mean(steady["returns"][j : j + k]) for j in window]
        hit = confirmed(run["returns"], window, [s - delta * (s - floor) for s in smooth], k)
        end = changes[i + 1] if i + 1 < len(changes) else horizon
        durations.append(end - c if hit is None else run["steps"][hit] - c)
        hits.append(hit is not None)
    return durations, hits


def companions(run, changes, horizon, floor):
    """immediate drop, deficit area and no-drop share: means over the changes that have one."""
    t, r = run["steps"], run["returns"]
    drops, areas, unhurt = [], [], []
    for window, own in zip(windows(run, changes, horizon), levels(run, changes), strict=True):
        unhurt.append(float(r[window[0]] >= own))
        if own <= floor:
            continue
        drops.append((own - r[window[0]]) / (own - floor))
        short = [max(0.0, own - r[j]) for j in window]
        lost = sum((t[window[n + 1]] - t[window[n]]) * (short[n] + short[n + 1]) / 2 for n in range(len(window) - 1))
        areas.append(lost / ((t[window[-1]] - t[window[0]]) * (own - floor)))
    return average(drops), average(areas), average(unhurt)


def null(run, changes, horizon):
    """The noise floor of the literal recovery: ``H_{W+1} - 1`` evaluations per change."""
    waits = [sum(1 / (r + 1) for r in range(1, len(w) + 1)) for w in windows(run, changes, horizon)]
    gaps = [b - a for a, b in zip(run["steps"], run["steps"][1:], strict=False)]
    return sum(waits) * median(gaps) / horizon


def iqm(values):
    values = sorted(known(values))
    cut = math.floor(0.25 * len(values))
    return average(values[cut : len(values) - cut])


def improvement(x, y):
    """Mean over tasks of P(x > y) + P(x = y) / 2 over all pairs of seeds."""
    shares = []
    for a, b in zip(x, y, strict=True):
        wins = [1.0 if u > v else 0.5 if u == v else 0.0 for u in known(a) for v in known(b)]
        if wins:
            shares.append(mean(wins))
    return average(shares)


def holm(p):
    """Adjusted p-values by label; None stays None."""
    ordered = sorted((v, name) for name, v in p.items() if v is not None)
    out, so_far = dict.fromkeys(p), 0.0
    for rank, (v, name) in enumerate(ordered):
        so_far = max(so_far, (len(ordered) - rank) * v)
        out[name] = min(1.0, so_far)
    return out
