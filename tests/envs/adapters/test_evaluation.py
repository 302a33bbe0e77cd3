"""Evaluations at a frozen or a given drift, and deep copies: what follows a run, and what leaves it alone."""

import copy

import numpy as np
import pytest

from envs.adapters.gymnasium import DriftingEnv, DriftingVectorEnv
from tests.envs.adapters.same import same

N, STEPS = 3, 200  # a change every 40 steps; an episode of the toy takes 50
STILL = np.zeros((N, 2), np.float32)


@pytest.fixture(scope="module")
def compiled():
    """Never stepped itself, so that its deep copies are new environments without a new compilation."""
    return DriftingVectorEnv("toy", "abrupt", drift_steps=STEPS, num_envs=N, drift_seed=4)


@pytest.fixture
def training(compiled):
    env = copy.deepcopy(compiled)
    env.reset(seed=0)
    for _ in range(60):
        env.step(STILL)
    return env


def drift_of(env):
    return env.step(STILL)[4]["drift"][0]


def test_an_evaluation_is_under_the_drift_in_force_and_does_not_move_it(training):
    ahead = copy.deepcopy(training)
    evaluation = training.evaluation()
    _, infos = evaluation.reset(seed=5)
    in_force = infos["drift"][0]
    for _ in range(100):  # two episodes, beyond the next change of the run
        _, _, _, truncated, infos = evaluation.step(STILL)
        np.testing.assert_array_equal(infos["drift"], np.tile(in_force, (N, 1)))
        np.testing.assert_array_equal(infos["drift_step"], 60)
    assert truncated.all()
    np.testing.assert_array_equal(drift_of(training), in_force)
    assert same(training.step(STILL), [ahead.step(STILL) for _ in range(2)][-1])  # as if there had been none


def test_an_evaluation_at_given_drift_has_its_rewards(training):
    evaluation = training.evaluation(drift=(0.3, -0.1))
    evaluation.reset(seed=2)
    goals = training._copies.task.params.goals + np.array([0.3, -0.1])
    weights = training._copies.task.params.weights
    for _ in range(2):
        obs, reward, _, _, infos = evaluation.step(STILL)
        np.testing.assert_allclose(infos["drift"], np.tile([0.3, -0.1], (N, 1)), rtol=1e-6)
        bumps = weights * np.exp(-np.sum((obs[:, None] - goals) ** 2, axis=-1) / 0.08)
        np.testing.assert_allclose(reward, bumps.max(axis=-1), rtol=1e-5)
        training.step(STILL)
    plain = DriftingEnv("pendulum", "periodic", drift=[8.0])
    plain.reset(seed=0)
    assert [plain.step(np.zeros(1))[4]["drift"] for _ in range(2)] == [8.0, 8.0]


def test_what_an_evaluation_cannot_do_is_refused(training):
    with pytest.raises(ValueError, match="follows the drift of another environment"):
        training.evaluation().reset(options={"restart_drift": True})
    for drift in ((0.1,), (0.1, np.nan), 0.3):
        with pytest.raises(ValueError, match=r"drift of task 'toy' is 2 numbers \(goal_offset, goal_offset\); got"):
            training.evaluation(drift=drift)
    with pytest.raises(ValueError, match="num_envs must be 1 or more"):
        training.evaluation(num_envs=0)
    with pytest.raises(ValueError, match="drift of task 'toy'"):
        DriftingEnv("toy", "steady", drift=())


def test_a_deep_copy_goes_on_alike_and_apart(training):
    evaluation = training.evaluation()
    evaluation.reset(seed=1)
    twin, twins_evaluation = copy.deepcopy((training, evaluation))
    here = [training.step(STILL) for _ in range(30)]
    assert same(here, [twin.step(STILL) for _ in range(30)])
    for _ in range(30):  # past a change
        training.step(STILL)
    np.testing.assert_array_equal(evaluation.step(STILL)[4]["drift_step"], 120)
    np.testing.assert_array_equal(twins_evaluation.step(STILL)[4]["drift_step"], 90)
    np.testing.assert_array_equal(twin.step(STILL)[4]["drift_step"], 90)
    assert not same(training.reset()[0], twin.reset()[0])  # their keys have parted
