"""`Results.replay`: a schedule on its own proxies gives the weights it trained with; the impossible is refused."""

import numpy as np
import pytest

from experiments import Method, Results
from tests.experiments.configs import small_ppo, train_study

pytestmark = pytest.mark.slow

STEPS, EVALUATIONS = 3200, 50
TRAINED = {
    "PPO+AES[lambda_max=2]": "ppo+aes:lambda_max=2",
    "PPO+AES[kappa=0.3,lambda_max=0.4]": "ppo+aes:kappa=0.3:lambda_max=0.4",
    "PPO+AES-R": Method("ppo", "aes_r"),
    "PPO+fixed+refresh+rate[base=0.07,refresh.threshold=1.05]": "ppo+fixed:base=0.07+refresh:threshold=1.05+rate",
}
ADAPTING = "PPO+fixed+refresh+rate[refresh.threshold=1.05]"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory = tmp_path_factory.mktemp("replay") / "study"
    names = "aes:lambda_max=2,aes:kappa=0.3:lambda_max=0.4,aes_r,fixed+refresh:threshold=1.05+rate"
    config = small_ppo(names, EVALUATIONS, patterns="abrupt", seeds=2, steps=STEPS)
    train_study(config, directory)
    return Results.open(directory)


@pytest.fixture(scope="module")
def frame(results):
    return results.replay(*TRAINED.values())


def trained(results, row):
    """A run's logged values at the evaluations after step 0."""
    return results.curves.filter(method=row["method"], seed=row["seed"]).sort("step")[1:]


def test_a_row_per_run_and_method(frame):
    assert frame.height == 4 * 2 * 4  # methods and seeds, replayed methods
    assert set(frame["replayed"]) == set(TRAINED)
    assert frame["rate"].null_count() == 4 * 2 * 3  # of the methods without adaptations
    assert {len(weight) for weight in frame["weight"]} == {len(step) for step in frame["step"]}
    assert all(step[-1] == STEPS for step in frame["step"])


@pytest.mark.parametrize("method", list(TRAINED)[:3])
def test_a_schedule_on_its_own_proxies_gives_the_weights_it_trained_with(results, frame, method):
    for row in frame.filter(method=method, replayed=method).iter_rows(named=True):
        recorded = trained(results, row)["entropy_weight"].to_numpy()
        assert np.unique(recorded).size > 10
        ends = np.searchsorted(row["step"], np.arange(1, EVALUATIONS + 1) * STEPS / EVALUATIONS)
        np.testing.assert_allclose(np.array(row["weight"])[ends], recorded, atol=1e-5)
        assert row["updates_per_sample"] == 1


def test_adaptations_on_the_runs_own_proxies_are_those_it_trained_with(results, frame):
    """Refreshes are counted where they fall due; training does them before the next rollout."""
    for row in frame.filter(method=ADAPTING, replayed=list(TRAINED)[-1]).iter_rows(named=True):
        logged = trained(results, row)
        in_force = np.r_[1.0, row["rate"][:-1]].reshape(EVALUATIONS, -1).mean(1)
        np.testing.assert_allclose(in_force, logged["rate_factor"].to_numpy(), rtol=1e-4)
        due = np.array(row["refresh"]).reshape(EVALUATIONS, -1).max(1) > 0
        assert due[:-1].any()
        np.testing.assert_array_equal(logged["refreshes"][1:], due[:-1])
        assert set(row["weight"]) == {np.float32(0.07)}


@pytest.mark.parametrize(
    ("method", "parts"),
    [
        ("ppo+aess", ["unknown schedule 'aess'", "did you mean 'aes'?"]),
        ("ppo+aes:kappa=-1", ["kappa", "-1"]),
        ("sac+aes", ["no run of carrier 'sac'", "carriers: ppo"]),
        ("ppo+auto", ["'auto'", "log_prob", "not recorded"]),
        ("ppo+oracle", ["'oracle'", "true_drift"]),
        ("ppo+aes:proxy=td_mean", ["td_mean/update", "recorded: td_quantile/fresh, td_quantile/update"]),
        ("ppo+aes:q=0.5", ["quantile was measured while training", "q cannot be varied"]),
        ("ppo+aes:coupling=1", ["coupling", "takes training"]),
        ("ppo+fixed:signal=oracle+rate", ["of its signal 'oracle'", "true_drift"]),
        ("ppo+permuted:of=aes", ["control 'permuted' plays a record"]),
    ],
)
def test_impossible_requests_are_refused_with_the_reason(results, method, parts):
    with pytest.raises((ValueError, KeyError)) as refusal:
        results.replay(method)
    for part in parts:
        assert part in str(refusal.value)


def test_a_quantile_is_replayed_on_the_runs_that_measured_it_at_its_level(tmp_path):
    config = small_ppo("aes", evaluations=5, patterns="abrupt", seeds=1, steps=3200, sweep=("q=0.5,0.9",))
    train_study(config, tmp_path / "study")
    results = Results.open(tmp_path / "study")
    for level, method in ((0.5, "PPO+AES[q=0.5]"), (0.9, "PPO+AES")):
        frame = results.replay(f"ppo+aes:q={level}")
        assert frame["method"].to_list() == [method]
        (run,) = frame.iter_rows(named=True)
        assert run["weight"][-1] == pytest.approx(trained(results, run)["entropy_weight"][-1], abs=1e-5)
    assert results.replay("ppo+fixed:base=0.07").height == 2  # reads no quantile
