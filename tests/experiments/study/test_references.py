"""Returns that a study is measured against: the optimum of each seed's drift, and how near trained agents come."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import envs
from envs.world import World
from experiments.study import prepare
from experiments.study.prepare import floor_of, optimum_of
from experiments.study.program import Plan
from tests.experiments.configs import config_of, train_study


def test_every_seed_has_the_optimum_of_its_own_drift_and_without_drift_all_have_one():
    config = config_of(steps=4000, patterns="steady,abrupt", seeds=3)
    optimum = optimum_of(Plan(config).world, config)
    paths = np.array([optimum["abrupt"][seed] for seed in ("1", "2", "3")])
    assert paths.shape == (3, config.evaluations + 1)
    assert np.ptp(paths[:, -1]) > 0.1  # the last goals of the seeds differ
    assert np.ptp(list(optimum["steady"].values())) == 0.0
    world = World(config.build_task(), config.vector_steps("sac"), config.segments)
    last = world.path(world.drift("abrupt", 2), np.array([world.total - 1], np.int32))[0]
    assert paths[1, -1] == pytest.approx(float(np.asarray(envs.optimal_return("toy")(last))[0]), abs=1e-4)


def test_the_floor_of_a_task_with_long_episodes_is_the_return_of_one(monkeypatch):
    world = Plan(config_of(steps=4000)).world
    monkeypatch.setattr(prepare, "_FLOOR_STEPS", world.time_limit - 1)
    assert np.isfinite(floor_of(world))


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.parametrize("carrier", ["sac", "ppo"])
def test_ninety_per_cent_of_the_optimum_on_the_steady_task(carrier, tmp_path):
    config = dataclasses.replace(config_of(carrier, seeds=2, preset="paper", steps=24_000), evaluations=10)
    outcome = train_study(config, tmp_path / "study")
    curves = pl.read_parquet(outcome.curves)
    best = float(envs.optimal_return("toy")(jnp.zeros((1, 2)))[0])
    final = curves.filter(pl.col("step") == 24_000)["return_mean"]
    assert final.len() == 2
    assert final.min() >= 0.9 * best
    assert curves.filter(pl.col("step") == 0)["return_mean"].max() < 0.5 * best
