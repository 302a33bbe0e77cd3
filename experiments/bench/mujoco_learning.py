"""Steady learning curves on MuJoCo beside published levels: PPO profile C (CleanRL) and SAC at its published sizes.

Usage: python experiments/bench/mujoco_learning.py ppo hopper DIR --steps 1024000
       python experiments/bench/mujoco_learning.py record DIR... --out FILE.json
The first trains into DIR as `aesjax run` does; `record` writes the mean evaluation return of every seed, also from a
study that was stopped early. Profile C differs from its source in that the learning rate is not annealed and that a
rollout of 2048 steps comes from eight copies of 256 steps each.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from experiments.study.devices import start_jax

EVALUATIONS = {"ppo": 50, "sac": 50}


def train(carrier: str, task: str, out: Path, steps: int, seeds: str, resume: bool) -> None:
    """Train the carrier by itself without drift."""
    start_jax(None)
    from experiments.presets.ppo_profiles import profile
    from experiments.study.config import make_config
    from experiments.study.folder import claim
    from experiments.study.train import train as train_study

    config = make_config(
        task=task,
        carriers=carrier,
        schedules="baseline",
        patterns="steady",
        seeds=seeds,
        preset="mujoco-paper",
        steps=steps,
        options={"engine": "mujoco"},
    )
    if carrier == "ppo":
        c = profile("C", task)
        own = {"num_envs": 8, "base": c.base, "config": dict(c.config), "hyper": dict(c.hyper), "schedule": {}}
        own["config"]["rollout"] //= own["num_envs"]
        config = dataclasses.replace(config, settings={"ppo": own})
    config = dataclasses.replace(config, evaluations=EVALUATIONS[carrier])
    train_study(claim(config, out, resume=resume))


def record(folders: list[Path], out: Path) -> None:
    """Curves of the studies in ``folders``."""
    import polars as pl

    from aesjax.lab import store

    studies = []
    for folder in folders:
        finished = (folder / store.CURVES).exists()
        if finished:
            rows = store.read_rows(folder / store.CURVES)
        else:  # stopped early: its newest checkpoint holds the rows so far
            (carrier,) = (folder / store.CHECKPOINTS).iterdir()
            newest = max((p for p in carrier.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
            rows = pl.read_parquet(next(newest.rglob("*.parquet")))
        config = store.read_json(folder / store.CONFIG)
        curves = rows.sort("seed", "step").group_by("seed", maintain_order=True).agg("step", "return_mean")
        finals = [sum(returns[-5:]) / 5 for returns in curves["return_mean"]]
        studies.append(
            {
                "task": config["task"],
                "carrier": config["carriers"][0],
                "settings": config["settings"],
                "horizon": config["steps"],
                "trained": int(rows["step"].to_numpy().max()),
                "last_five_evaluations": finals,
                "step": curves["step"][0].to_list(),
                "return_mean": {
                    str(s): r.to_list() for s, r in zip(curves["seed"], curves["return_mean"], strict=True)
                },
            }
        )
        print(f"{folder.name}: {studies[-1]['trained']} steps, {finals}")
    out.write_text(json.dumps({"environment": store.environment(), "studies": studies}, indent=1) + "\n")


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ppo", "sac", "record"))
    parser.add_argument("rest", nargs="+", help="task and folder; for record: folders")
    parser.add_argument("--steps", type=int, default=1_024_000)
    parser.add_argument("--seeds", default="1:4")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    if given.what == "record":
        record([Path(folder) for folder in given.rest], given.out)
    else:
        task, folder = given.rest
        train(given.what, task, Path(folder), given.steps, given.seeds, given.resume)


if __name__ == "__main__":
    main()
