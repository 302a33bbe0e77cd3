"""SAC and PPO learn the toy task: measured against the optimum, not against themselves."""

import dataclasses

import jax.numpy as jnp
import polars as pl
import pytest

import envs
from experiments.study.folder import claim
from experiments.study.train import train
from tests.experiments.configs import config_of


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.parametrize("carrier", ["sac", "ppo"])
def test_ninety_per_cent_of_the_optimum_on_the_steady_task(carrier, tmp_path):
    config = dataclasses.replace(config_of(carrier, seeds=2, preset="paper", steps=24_000), evaluations=10)
    outcome = train(claim(config, tmp_path / "study", resume=False))
    curves = pl.read_parquet(outcome.curves)
    best = float(envs.optimal_return("toy")(jnp.zeros((1, 2)))[0])
    final = curves.filter(pl.col("step") == 24_000)["return_mean"]
    start = curves.filter(pl.col("step") == 0)["return_mean"]
    assert final.len() == 2
    assert final.min() >= 0.9 * best
    assert start.max() < 0.5 * best
