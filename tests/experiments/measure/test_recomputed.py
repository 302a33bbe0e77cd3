"""Every value of the tidy frame, recomputed by the second implementation in `plain`, on several kinds of curves."""

import itertools
import math
from statistics import stdev

import numpy as np
import polars as pl
import pytest
from scipy.stats import t as student

from experiments.measure import summarise
from tests.experiments.measure import plain

HORIZON, SEGMENTS = 1000.0, 5
CHANGES = [200.0, 400.0, 600.0, 800.0]
GRID = [10.0 * j for j in range(101)]
METHODS, PATTERNS, SEEDS = ("SAC", "SAC+AES", "SAC+AES-R"), ("steady", "abrupt", "linear"), (1, 2, 3, 4)


def rising(t, seed, rank):
    return 20.0 + 30.0 * (1 - math.exp(-t / 80.0)) + seed + 2.0 * rank


def since(t):
    return next(t - c for c in [*reversed(CHANGES), 0.0] if t >= c)


def after(shape):
    """A curve that rises, and under abrupt drift goes by ``shape`` from 200 on, each run a little less than the last.

    Args:
      shape: of level, time since the change, number of the change.
    """

    def curve(t, seed, rank, pattern):
        level, share = rising(t, seed, rank), 1 - 0.03 * seed - 0.0137 * rank
        hurt = level - shape(level, since(t), int(t // 200)) if pattern == "abrupt" and t >= 200 else 0.0
        return level - share * hurt

    return curve


def noisy(t, seed, rank, pattern):
    return 40.0 + 8.0 * np.random.default_rng([seed, rank, PATTERNS.index(pattern), int(t)]).normal()


#: Kind -> returns from (t, seed, rank of the method, pattern).
KINDS = {
    "linear": after(lambda level, s, _: level - max(0.0, 25.0 * (1 - s / 70.0))),
    "never": after(lambda level, s, k: level * 0.6**k),
    "negative": lambda t, seed, rank, pattern: noisy(t, seed, rank, pattern) - 90.0,
    "broken": noisy,  # a missing run, one that is not a number, Steady runs that diverged
    "irregular": after(lambda level, s, _: level - 20.0 * math.exp(-s / 50.0)),
    "two tasks": noisy,
}
LOGGED = {"mean_train_return", "mean_entropy_weight", "responsiveness"}  # metrics of columns that are not logged here
LOGGED |= {f"saturation{of}" for of in ("", "_min", "_max")}
FLOORS = {"negative": -85.0}
IRREGULAR = sorted({0.0, 3.0, *(x for x in GRID if x % 40 or x in (*CHANGES, HORIZON)), 205.0, 411.0, 987.0})


def study_of(kind):
    """Runs by (task, method, pattern, seed) and the study's files."""
    tasks = ("a", "b") if kind == "two tasks" else ("a",)
    grid, runs = (IRREGULAR if kind == "irregular" else GRID), {}
    for task in tasks:
        for rank, method in enumerate(METHODS):
            for pattern in PATTERNS:
                for seed in SEEDS:
                    gain = 7.0 if task == "b" else 1.0
                    returns = [gain * KINDS[kind](t, seed, rank, pattern) for t in grid]
                    runs[task, method, pattern, seed] = {"steps": list(grid), "returns": returns}
    status = dict.fromkeys(runs, "finished")
    if kind == "broken":
        runs["a", "SAC+AES", "abrupt", 2] = None
        runs["a", "SAC+AES", "linear", 3]["returns"][40] = math.nan
        for method, seed in (("SAC", 2), ("SAC+AES", 4)):
            runs["a", method, "steady", seed]["returns"][-1] = math.nan
            status["a", method, "steady", seed] = "diverged"
    names = ("task", "method", "pattern", "seed")
    rows = [
        dict(zip(names, key, strict=True)) | {"family": "f", "step": t, "return_mean": r}
        for key, run in runs.items()
        if run is not None
        for t, r in zip(*run.values(), strict=True)
    ]
    floors = {task: FLOORS.get(kind, 5.0) * (7.0 if task == "b" else 1.0) for task in tasks}
    entries = [dict(zip(names, key, strict=True)) | {"status": status[key]} for key in runs]
    config = {"steps": dict.fromkeys(tasks, HORIZON), "segments": SEGMENTS}
    return runs, floors, pl.DataFrame(rows), config, {"floors": floors, "runs": entries}


def values_of(runs, floors, key):
    """Every metric of one run by the second implementation; None where it has no value."""
    task, method, pattern, seed = key
    run, steady = runs[key], runs[task, method, "steady", seed]
    if plain.broken(run):
        return {}
    floor = floors[task]
    mine, base = plain.level(run, HORIZON), plain.level(steady, HORIZON)
    sac = [plain.level(runs[task, "SAC", "steady", s], HORIZON) for s in SEEDS]
    out = {"auc": plain.area(run, HORIZON), "mean_return": mine, "final_return": plain.final(run, HORIZON)}
    out["later_return"] = plain.later(run, CHANGES)
    for suffix, safe in (("", False), ("_safe", True)):
        out[f"nauc_task{suffix}"], out[f"drop_run{suffix}"] = plain.ratios(mine, base, sac, floor, safe)
    out["loss_rate"] = None if base is None else base - mine
    if pattern == "abrupt":
        out |= recoveries(run, None if plain.broken(steady) else steady, floor)
    return out


def recoveries(run, steady, floor):
    durations, hits = plain.literal(run, CHANGES, HORIZON)
    names = ("recovery", "recovered_fraction")
    out = dict(zip(names, plain.summed(durations, HORIZON, hits), strict=True))
    out |= {f"recovered@{i + 1}": float(hit) for i, hit in enumerate(hits)}
    out["recovery_null_formula"] = plain.null(run, CHANGES, HORIZON)
    durations, hits = plain.robust(run, CHANGES, HORIZON, floor)
    names = ("recovery_robust", "recovery_robust_fraction")
    out |= dict(zip(names, plain.summed(durations, HORIZON, hits), strict=True))
    for i, (duration, hit) in enumerate(zip(durations, hits, strict=True)):
        out[f"robust_recovered@{i + 1}"] = None if duration is None else float(hit)
    out["n_not_applicable"] = float(sum(d is None for d in durations))
    out |= {f"level@{i + 1}": level for i, level in enumerate(plain.levels(run, CHANGES))}
    names = ("immediate_drop", "deficit_area", "no_drop_fraction")
    out |= dict(zip(names, plain.companions(run, CHANGES, HORIZON, floor), strict=True))
    for name in ("recovery_null", "recovery_robust_null", "recovery_vs_steady", "recovery_vs_steady_fraction"):
        out[name] = None
    if steady is not None:
        out["recovery_null"] = plain.summed(*_with_horizon(plain.literal(steady, CHANGES, HORIZON)))[0]
        out["recovery_robust_null"] = plain.summed(*_with_horizon(plain.robust(steady, CHANGES, HORIZON, floor)))[0]
        against = plain.summed(*_with_horizon(plain.versus(run, steady, CHANGES, HORIZON, floor)))
        out["recovery_vs_steady"], out["recovery_vs_steady_fraction"] = against
    return out


def _with_horizon(found):
    durations, hits = found
    return durations, HORIZON, hits


@pytest.fixture(scope="module", params=KINDS)
def study(request):
    runs, floors, *files = study_of(request.param)
    frame = summarise(*files, replicates=20)
    values = {key: values_of(runs, floors, key) for key in runs}
    found = {
        (r["level"], r["task"], r["method"], r["pattern"], r["seed"], r["metric"]): r["value"]
        for r in frame.iter_rows(named=True)
    }
    return request.param, runs, floors, values, found


def agree(ours, theirs, what):
    missing = ours is None or math.isnan(ours)
    assert missing == (theirs is None), (what, ours, theirs)
    if theirs is not None:
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9), what


def test_every_metric_of_every_run(study):
    _, runs, _, values, found = study
    metrics = {key[5] for key in found if key[0] == "run"} - LOGGED
    assert metrics == set().union(*(v for v in values.values()))
    for key in runs:
        for name in metrics:
            agree(found["run", *key[:3], key[3], name], values[key].get(name), (key, name))


def test_means_and_interquartile_means_over_seeds_and_tasks(study):
    _, runs, _, values, found = study
    tasks = sorted({key[0] for key in runs})
    for level, task, method, pattern, _, name in found:
        name_plain = name.removeprefix("iqm:")
        if level != "method" or ":" in name_plain or "_family" in name or name.startswith(("drop_task", "drop_nauc")):
            continue
        if name in LOGGED:
            continue
        of = [task] if task else tasks
        cells = [[values[t, method, pattern, s].get(name_plain) for s in SEEDS] for t in of]
        flat = [x for row in cells for x in row]
        wanted = plain.iqm(flat) if name.startswith("iqm:") else plain.average([plain.average(row) for row in cells])
        agree(found[level, task, method, pattern, None, name], wanted, (task, method, pattern, name))


def test_ratios_of_means(study):
    _, runs, floors, values, found = study
    tasks = sorted({key[0] for key in runs})
    level = {key: v.get("mean_return") for key, v in values.items()}

    def rows(method, pattern):
        return [[level[t, method, pattern, s] for s in SEEDS] for t in tasks]

    for method in METHODS:
        for pattern in PATTERNS:
            own, steady, sac = rows(method, pattern), rows(method, "steady"), rows("SAC", "steady")
            for suffix, safe in (("", False), ("_safe", True)):
                names = (f"nauc_family{suffix}", f"drop_family{suffix}")
                bounds = [floors[t] for t in tasks]
                for name, wanted in zip(names, plain.family(own, steady, sac, bounds, safe), strict=True):
                    agree(found["method", None, method, pattern, None, name], wanted, (method, pattern, name))
                drops = []
                for i, task in enumerate(tasks):
                    means = [plain.average(x[i]) for x in (own, steady)]
                    drops.append(plain.ratios(*means, sac[i], floors[task], safe)[1])
                agree(
                    found["method", None, method, pattern, None, f"drop_task{suffix}"],
                    plain.average(drops),
                    (method, pattern, "drop_task", suffix),
                )
                naucs = [values_mean(values, tasks, method, p, f"nauc_task{suffix}") for p in (pattern, "steady")]
                wanted = None if None in naucs or naucs[1] == 0 else 1 - naucs[0] / naucs[1]
                agree(found["method", None, method, pattern, None, f"drop_nauc_task{suffix}"], wanted, (method, suffix))


def values_mean(values, tasks, method, pattern, name):
    return plain.average([plain.average([values[t, method, pattern, s].get(name) for s in SEEDS]) for t in tasks])


def test_paired_comparisons_and_their_correction(study):
    kind, runs, _, values, found = study
    tasks = sorted({key[0] for key in runs})
    for name, sign in (("mean_return", 1), ("drop_run_safe", -1)):
        p = {}
        for method, pattern in itertools.product(METHODS[1:], PATTERNS):
            if pattern == "steady" and name == "drop_run_safe":
                assert ("method", None, method, pattern, None, f"p:{name}") not in found
                continue
            x, y = ([[values[t, m, pattern, s].get(name) for s in SEEDS] for t in tasks] for m in (method, "SAC"))
            d = [[apart(*ab) for ab in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)]
            flat = plain.known([v for row in d for v in row])
            signed = [[[None if v is None else sign * v for v in row] for row in z] for z in (x, y)]
            by_seed = [sum(column) / len(column) for column in zip(*d, strict=True) if None not in column]
            p[method, pattern] = p_value(by_seed)
            wanted = {
                "paired": plain.average([plain.average(row) for row in d]),
                "paired_iqm": plain.iqm(flat),
                "poi": plain.improvement(*signed),
                "poi_paired": plain.average([1.0 if sign * v > 0 else 0.5 if v == 0 else 0.0 for v in flat]),
                "p": p[method, pattern],
            }
            for what, value in wanted.items():
                agree(found["method", None, method, pattern, None, f"{what}:{name}"], value, (kind, what, name, method))
        for (method, pattern), wanted in plain.holm(p).items():
            agree(found["method", None, method, pattern, None, f"p_holm:{name}"], wanted, (name, method, pattern))


def apart(x, y):
    return None if x is None or y is None else x - y


def p_value(d):
    """Two-sided, of Student's paired t test; None for fewer than two differences."""
    if len(d) < 2:
        return None
    centre, spread = sum(d) / len(d), stdev(d)
    if spread == 0:
        return 1.0 if centre == 0 else 0.0
    return 2 * float(student.sf(abs(centre) / (spread / math.sqrt(len(d))), len(d) - 1))
