"""A made-up study with known properties, in the schema of ``curves.parquet``."""

import dataclasses
from functools import cache

import numpy as np
import polars as pl

from envs import PATTERNS as DRIFT
from experiments.measure import summarise
from experiments.study.method import Control, Method
from tests.experiments.configs import config_of

STEPS = 100_000
PATTERNS = ("steady", "abrupt", "linear", "periodic", "mixed")
MADE_UP = {  # patterns that no table in the project knows, as a manifest describes them
    "square": {"jumps": True, "recovery": True, "summary": "up and down between two values"},
    "ramp": {"jumps": False, "recovery": False, "summary": "up in a straight line"},
}


BUILT_IN = {  # as manifests describe the patterns of this repository
    name: {"jumps": pattern.jumps, "recovery": pattern.holds, "summary": pattern.summary}
    for name, pattern in DRIFT.items()
}
#: Methods of a study with constants and controls.
CONTROLLED = (
    *("SAC", "SAC+fixed", "SAC+fixed[base=0.4]", "SAC+AES-R", "SAC+AES-R+window[window.power=1]"),
    *("SAC+constant_at_mean(aes_r)", "SAC+permuted(aes_r+window:power=1)", "PPO+AES-R"),
)


def make_curves(methods, patterns=PATTERNS, seeds=range(1, 6), *, task="toy", family="toy", every=1_000, gain=0.05):
    """Curves that learn, fall at every change by less the later a method comes in the list, and climb back."""
    frames = []
    steps = np.arange(0, STEPS + 1, every)
    u = steps / STEPS
    for rank, method in enumerate(methods):
        for pattern in patterns:
            for seed in seeds:
                rng = np.random.default_rng([seed, (*PATTERNS, *MADE_UP).index(pattern)])  # the same for all methods
                level = 45 * (1 - np.exp(-20 * u))
                phase = (5 * np.minimum(u, 0.999)) % 1  # the last evaluation still belongs to the last segment
                drift, fall = drift_of(pattern, u, rng), (0.5 - gain * rank) * np.exp(-8 * phase)
                hurt = {"steady": 0.0, "linear": 0.5, "ramp": 0.5}.get(pattern, 1.0) * fall * (u >= 0.2)
                returns = level * (1 - hurt) + rng.normal(0, 0.4, len(u)) + rng.normal(0, 0.5)
                weight = 0.2 * (1 + (rank > 0) * np.exp(-8 * ((5 * u - 0.06) % 1)) * (pattern != "steady"))
                labels = {"family": family, "task": task, "method": method, "carrier": method.split("+")[0].lower()}
                columns = labels | {
                    "pattern": pattern,
                    "seed": seed,
                    "step": steps,
                    "return_mean": returns,
                    "drift_value": np.abs(drift),
                    "drift_0": drift,
                    "drift_1": -drift,
                    "entropy_weight": weight,
                    "proxy_smooth": 0.3 + weight,
                    "at_min": np.where(steps > 0, 0.1 * (rank > 0), np.nan),
                    "at_max": np.where(steps > 0, 0.0, np.nan),
                    "train_return": returns - 2,
                }
                frames.append(pl.DataFrame(columns))
    return pl.concat(frames)


def drift_of(pattern, u, rng):
    """A drift value of the right shape for each pattern."""
    jumps = np.concatenate([[0.0], rng.uniform(0.2, 0.5, 5)])[np.minimum((5 * u).astype(int), 5)]
    phase = (5 * u) % 1
    return {
        "steady": np.zeros(len(u)),
        "abrupt": jumps,
        "linear": 0.5 * np.abs(phase - 0.5),
        "periodic": 0.25 * np.sin(2 * np.pi * phase),
        "mixed": jumps + 0.1 * np.sin(2 * np.pi * phase),
        "square": 0.5 * ((5 * u).astype(int) % 2),
        "ramp": 0.5 * u,
    }[pattern]


@cache
def _defined(carriers, schedules):
    return config_of(carriers, schedules, steps=STEPS, evaluations=100).to_json()


def config(carriers="sac,ppo,sql,meow", schedules="baseline,aes,aes_r", **changes):
    """The configuration of a study of these methods."""
    return {**_defined(carriers, schedules), **changes}


def manifest(curves, floor=3.0, diverged=()):
    """A manifest that lists every run; ``diverged`` holds (method, pattern, seed)."""
    runs = []
    for task, method, pattern, seed in (
        curves.select("task", "method", "pattern", "seed")
        .unique()
        .sort("task", "method", "pattern", "seed")
        .iter_rows()
    ):
        run = {"task": task, "method": method, "pattern": pattern, "seed": seed, "status": "finished"}
        if (method, pattern, seed) in diverged:
            run |= {"status": "diverged", "diverged_at": 42_000, "reason": "critic loss is not finite"}
        runs.append(run)
    return {"floors": {"toy": floor}, "runs": runs, "device": "cpu", "wall_seconds": 93.5, "patterns": BUILT_IN}


def controlled():
    """The configuration of a study of `CONTROLLED`."""
    study = config_of(
        "sac,ppo", "baseline,fixed,fixed:base=0.4,aes_r,aes_r+window:power=1", steps=STEPS, evaluations=50
    )
    *sac, own, windowed = study.methods_of("sac")
    controls = (
        Method("sac", control=Control(name, of)) for name, of in (("constant_at_mean", own), ("permuted", windowed))
    )
    ppo = study.methods_of("ppo")[3]
    return dataclasses.replace(study, methods=(*sac, own, windowed, *controls, ppo)).to_json()


@cache
def with_controls():
    """The curves of the methods of `CONTROLLED`, and their metrics."""
    curves = make_curves(CONTROLLED, ("steady", "abrupt"), range(1, 6), every=2_000, gain=0.02)
    return curves, summarise(curves, controlled(), manifest(curves), replicates=100)


def uneven():
    """Two tasks, of one the returns are negative; a diverged, a short and a missing run: rows, config, manifest."""
    five, two = ("SAC", "SAC+AES", "SAC+AES-R", "PPO", "PPO+AES"), ("SAC", "SAC+AES")
    toy = make_curves(five, PATTERNS[:3], every=2_000, gain=0.1)
    other = make_curves(two, ("steady", "abrupt", "mixed"), range(1, 5), task="b", every=2_000, gain=0.2)
    curves = pl.concat([toy, other.with_columns(pl.col("return_mean") - 30)])
    of = lambda method, seed: (pl.col("method") == method) & (pl.col("pattern") == "abrupt") & (pl.col("seed") == seed)  # noqa: E731
    diverged, short = of("SAC+AES", 2) & (pl.col("task") == "toy"), of("SAC+AES-R", 3)
    curves = curves.filter(~(diverged & (pl.col("step") > 42_000)) & ~(short & (pl.col("step") > 70_000)))
    info = manifest(curves)
    for run in info["runs"]:
        if (run["task"], run["method"], run["pattern"], run["seed"]) == ("toy", "SAC+AES", "abrupt", 2):
            run["status"] = "diverged"
    info["runs"].append({"task": "toy", "method": "SAC", "pattern": "linear", "seed": 9, "status": ""})
    info["floors"]["b"] = -28.0
    return curves, config(steps={"toy": STEPS, "b": STEPS}, merged=[config()]), info
