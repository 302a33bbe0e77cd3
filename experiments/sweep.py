"""A sweep of kappa and seeds with `agents.make_train`, all runs in one compiled program, for accelerators.

Usage: python experiments/sweep.py --task toy --carrier sac --kappas 0.03 0.1 0.3 1 --seeds 8
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from aesjax import aes, jit
from agents import make_train


def main(
    task: str = "toy",
    carrier: str = "sac",
    pattern: str = "abrupt",
    kappas: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0),
    seeds: int = 8,
    steps: int = 20_000,
    evaluations: int = 20,
):
    """Print mean return, standard error over seeds, and mean entropy weight per kappa."""
    train = make_train(task, carrier, pattern=pattern, steps=steps, evaluations=evaluations, hidden=(64, 64))
    curves = jax.vmap(lambda seed, kappa: train(seed, aes(kappa=kappa))[1], in_axes=(0, None))  # over seeds
    curves = jax.vmap(curves, in_axes=(None, 0))  # over kappas
    curves = jit(curves)(jnp.arange(1, seeds + 1), jnp.array(kappas))  # (kappas, seeds, evaluations + 1) each
    returns, weights = (np.asarray(curves[name])[..., 1:].mean(-1) for name in ("return_mean", "entropy_weight"))
    print(f"{'kappa':>8} {'return':>8} {'+-':>6} {'weight':>7}")
    for kappa, mean, weight in zip(kappas, returns, weights, strict=True):
        error = mean.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else np.nan
        print(f"{kappa:8.3g} {mean.mean():8.1f} {error:6.1f} {weight.mean():7.3f}")


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except (KeyError, ValueError) as error:
        sys.exit(str(error))
