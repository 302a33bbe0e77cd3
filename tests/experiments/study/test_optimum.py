"""The optimum that a study is drawn with: one per seed, because drift differs by seed."""

import numpy as np
import pytest

import envs
from envs.world import World
from experiments.study.build import optimum_of
from tests.experiments.configs import config_of


def study(**options):
    return config_of(**({"steps": 4000, "patterns": "steady,abrupt", "seeds": 3} | options))


@pytest.fixture(scope="module")
def optimum():
    return optimum_of(study())


def test_every_seed_has_the_optimum_of_its_own_drift(optimum):
    config = study()
    assert set(optimum["abrupt"]) == {"1", "2", "3"}
    paths = np.array([optimum["abrupt"][s] for s in "123"])
    assert paths.shape == (3, config.evaluations + 1)
    assert np.ptp(paths[:, -1]) > 0.1  # the last goals of the seeds differ
    world = World(config.build_task(), config.vector_steps("sac"), config.segments)
    last = world.path(world.drift("abrupt", 2), np.array([world.total - 1], np.int32))[0]
    assert optimum["abrupt"]["2"][-1] == pytest.approx(float(np.asarray(envs.optimal_return("toy")(last))[0]), abs=1e-4)


def test_without_drift_all_seeds_have_one_optimum(optimum):
    assert np.ptp([optimum["steady"][s] for s in "123"]) == 0.0
