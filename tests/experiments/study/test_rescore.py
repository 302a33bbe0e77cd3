"""Replay of recorded proxies: the same weights as the schedule itself, at the right updates."""

import jax
import numpy as np
import pytest

from aesjax.schedules import Choice, build
from aesjax.types import Signals
from experiments.study.rescore import Replayed, at_evaluations, first_update, replay
from tests.programs import data_of

KEY = "td_quantile/update"
AES = Choice("aes", source="update")


def data_of_runs(choice, runs, **numbers):
    """(R,) each; a number may be a list of one value per run."""
    own = [{name: np.broadcast_to(value, runs)[run] for name, value in numbers.items()} for run in range(runs)]
    return jax.tree.map(lambda *x: np.stack(x), *(data_of([choice], updates=200.0, **each) for each in own))


def streams(runs=3, samples=60, seed=0):
    values = np.random.default_rng(seed).gamma(2.0, 0.1, (runs, samples)).astype(np.float32)
    values[:, samples // 2 :] *= 4.0  # a change
    return values


@pytest.mark.parametrize("name", ["linear", "aes_m", "aes_r"])  # no memory, a bank of means, a median
def test_a_replay_is_the_schedule_update_by_update(name):
    choice, values = Choice(name, source="update"), streams(2, 40)
    data = data_of_runs(choice, 2, gain=[1.0, 2.0], kappa=[0.3, 1.0], base=[0.05, 0.2])
    result = replay(choice, data, values)
    for run in range(2):
        schedule = build([choice], jax.tree.map(lambda x: x[run], data))  # noqa: B023
        state, update = schedule.init(), jax.jit(schedule.update)
        np.testing.assert_allclose(result.initial[run], state.weight, rtol=1e-6)
        for i, value in enumerate(values[run]):
            state = update(Signals(measured={KEY: value}), state)
            np.testing.assert_allclose(result.weight[run, i], state.weight, rtol=2e-5)
            np.testing.assert_array_equal(result.at_max[run, i], state.logs.at_max)


def test_a_sample_of_many_updates_counts_as_that_many():
    values, data = streams(2, 12), data_of_runs(AES, 2, lambda_max=0.5)
    coarse = replay(AES, data, values, stride=5)
    fine = replay(AES, data, np.repeat(values, 5, axis=1))
    np.testing.assert_allclose(coarse.weight, fine.weight[:, 4::5], rtol=1e-5)
    np.testing.assert_allclose(coarse.at_max, fine.at_max.reshape(2, 12, 5).mean(-1), atol=1e-6)
    assert 0.0 < coarse.at_max.mean() < 1.0


def test_the_warm_up_is_what_all_runs_lack():
    nan = np.nan
    assert first_update(np.array([[nan, nan, 1.0, nan], [nan, nan, nan, 2.0]])) == 2
    assert first_update(np.array([[1.0, nan]])) == 0
    assert first_update(np.full((2, 4), nan)) == 4  # every run diverged in its first update


def test_an_evaluation_logs_the_newest_weight_and_the_shares_since_the_one_before():
    weight = np.arange(1.0, 10.0)[None]
    at_min = np.array([[1.0, 0, 0, 1, 0, 1, 0, 0, 0]])
    result = Replayed(np.array([0.5]), weight, at_min, 1.0 - at_min)
    logs = at_evaluations(result, skipped=3, evaluations=4)  # three samples each, the first three before any update
    np.testing.assert_array_equal(logs["entropy_weight"], [[0.5, 3.0, 6.0, 9.0]])
    np.testing.assert_allclose(logs["at_min"], [[np.nan, 1 / 3, 2 / 3, 0.0]])
    np.testing.assert_allclose(logs["at_max"], [[np.nan, 2 / 3, 1 / 3, 1.0]])
