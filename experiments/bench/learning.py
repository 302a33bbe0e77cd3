"""Steady learning curves beside published levels, recorded from studies that `aesjax run` or `train` has trained.

Usage: aesjax run --task isaac_ant --carriers ppo --schedules baseline --patterns steady --preset isaac-quick --out DIR
       python experiments/bench/learning.py record DIR... --out FILE.json
       python experiments/bench/learning.py train ppo hopper DIR --steps 1024000
`record` writes the mean evaluation return of every seed, also from a study that was stopped early, and beside it what
uniformly random actions and zero actions return. `train` is for the MuJoCo family: PPO profile C (CleanRL) and SAC at
its published sizes. Profile C differs from its source in that the learning rate is not annealed and that a rollout of
2048 steps comes from eight copies of 256 steps each.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from experiments.study.devices import start_jax

EVALUATIONS = 50
EPISODES = 64  # of random and of zero actions


def train(carrier: str, task: str, out: Path, steps: int, seeds: str, resume: bool) -> None:
    """Train the carrier by itself without drift."""
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
    config = dataclasses.replace(config, evaluations=EVALUATIONS)
    train_study(claim(config, out, resume=resume))


def levels(task: str, options: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation over `EPISODES` of what acting without learning returns, without drift."""
    import jax
    import jax.numpy as jnp

    import envs
    from agents.common.episodes import episode_returns, random_returns
    from envs.world import World

    world = World(envs.make(task, **options), 1000)
    params = jax.tree.map(jnp.asarray, world.task.params)

    def still(obs: jax.Array, key: jax.Array) -> jax.Array:
        del key
        return jnp.zeros((obs.shape[0], world.action_size))

    key = jax.random.key(0)
    returns = {
        "random_actions": jax.jit(lambda: random_returns(world, params, key, EPISODES))(),
        "zero_actions": jax.jit(lambda: episode_returns(world, still, params, key, EPISODES))(),
    }
    return {name: {"mean": float(x.mean()), "std": float(x.std())} for name, x in returns.items()}


def curves(folder: Path) -> dict[str, Any]:
    """Curves of the first method of the study in ``folder``, finished or not, without drift."""
    import polars as pl

    from experiments.study import store

    if (folder / store.CURVES).exists():
        rows = store.read_rows(folder / store.CURVES)
    else:  # stopped early: its newest checkpoint holds the rows so far
        (carrier,) = (folder / store.CHECKPOINTS).iterdir()
        newest = max((p for p in carrier.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        rows = pl.read_parquet(next(newest.rglob("*.parquet")))
    config = store.read_json(folder / store.CONFIG)
    method, carrier = rows["method"][0], rows["carrier"][0]
    rows = rows.filter(pl.col("method").eq(method), pl.col("pattern").eq("steady"))
    by_seed = rows.sort("seed", "step").group_by("seed", maintain_order=True).agg("step", "return_mean")
    seeds, returns = by_seed["seed"].to_list(), by_seed["return_mean"].to_list()
    return {
        "task": config["task"],
        "carrier": carrier,
        "method": method,
        "settings": config["settings"],
        "horizon": config["steps"],
        "trained": int(rows["step"].to_numpy().max()),
        **levels(config["task"], config.get("options", {})),
        "last_five_evaluations": [sum(values[-5:]) / 5 for values in returns],
        "best_evaluation": [max(values) for values in returns],
        "step": by_seed["step"][0].to_list(),
        "return_mean": {str(seed): values for seed, values in zip(seeds, returns, strict=True)},
    }


def record(folders: list[Path], out: Path) -> None:
    """Write the curves of all ``folders`` into one file."""
    from experiments.study import store

    studies = []
    for folder in folders:
        studies.append(curves(folder))
        now = studies[-1]
        print(
            f"{now['task']} {now['carrier']}: {now['trained']} steps, random {now['random_actions']['mean']:.4g}, "
            f"zero {now['zero_actions']['mean']:.4g}, at the end "
            + ", ".join(f"{value:.4g}" for value in now["last_five_evaluations"])
        )
    store.write_json(out, {"environment": store.environment(), "studies": studies})


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    trained = what.add_parser("train")
    trained.add_argument("carrier", choices=("ppo", "sac"))
    trained.add_argument("task")
    trained.add_argument("folder", type=Path)
    trained.add_argument("--steps", type=int, default=1_024_000)
    trained.add_argument("--seeds", default="1:4")
    trained.add_argument("--resume", action="store_true")
    recorded = what.add_parser("record")
    recorded.add_argument("folders", nargs="+", type=Path)
    recorded.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    start_jax(None)
    if given.what == "record":
        record(given.folders, given.out)
    else:
        train(given.carrier, given.task, given.folder, given.steps, given.seeds, given.resume)


if __name__ == "__main__":
    main()
