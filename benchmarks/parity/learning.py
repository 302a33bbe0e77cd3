"""PPO on Hopper with MuJoCo Warp and with the C engine: equal settings and seeds, 204,800 environment steps.

python benchmarks/parity/learning.py --out benchmarks/parity/learning.json
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import envs
from aesjax import jit
from agents import make_train
from experiments.measure import t_interval
from experiments.study import store

SETTINGS = {
    "steps": 204_800, "evaluations": 4, "episodes": 5, "num_envs": 64, "rollout": 32, "epochs": 10, "minibatches": 8,
    "hidden": (64, 64), "activation": "tanh", "learning_rate": 3e-4, "gamma": 0.99, "gae_lambda": 0.95, "clip": 0.2,
}  # fmt: skip
SEEDS = (1, 2, 3)


def main() -> None:
    """Train on both engines and write the record after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    given, record = parser.parse_args(), {"settings": SETTINGS, "seeds": SEEDS, "environment": store.environment()}
    for engine in ("mujoco", "warp"):
        began = time.monotonic()
        train = make_train(envs.make("hopper", engine=engine), "ppo", **SETTINGS)
        curves = jit(jax.vmap(lambda seed, train=train: train(seed)[1]["return_mean"]))(jnp.array(SEEDS))
        curves = np.asarray(curves, float)
        record[engine] = {
            "return_mean": curves.round(2).tolist(),
            "end": [float(value) for value in t_interval(curves[:, -1])],
            "seconds": round(time.monotonic() - began),
        }
        print(engine, record[engine], flush=True)
        store.write_json(given.out, record)


if __name__ == "__main__":
    main()
