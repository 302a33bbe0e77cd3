"""Studies of two carriers, of CrossQ, of discrete actions and of a history: resumed, stored, continued."""

import os
import signal

import numpy as np
import pytest

from experiments import Results, Study
from experiments.session.reader import act
from experiments.study.train import Interrupted, Progress

pytestmark = pytest.mark.slow
SIZES = {"seeds": 1, "steps": 800, "evaluations": 10, "episodes": 2}


def test_a_study_stopped_in_its_second_carrier_is_resumed_to_equal_bytes(tmp_path, monkeypatch):
    study = Study("toy", ["sac", "ppo"], patterns="abrupt", **SIZES)
    study.run(tmp_path / "undisturbed", quiet=True)
    with monkeypatch.context() as patch:
        tick, evaluated = Progress.tick, []

        def interrupted(self, now):
            tick(self, now)
            evaluated.append(now.number)
            if evaluated.count(2) == 2:  # of the second carrier
                os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(Progress, "tick", interrupted)
        with pytest.raises(Interrupted):
            study.run(tmp_path / "stopped", quiet=True)
    study.run(tmp_path / "stopped", quiet=True)
    for name in ("curves.parquet", "streams.parquet"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def continued(results, tmp_path, methods, **options):
    """A steady study that begins with the agents of ``results``, whose first returns are theirs."""
    begun = Study(results.config.task, methods, "steady", start=results, **SIZES, **options)
    curves = begun.run(tmp_path / "continued", quiet=True).curves
    for carrier in begun.config.carriers:
        [method] = [name for name in results.methods if name.lower().startswith(carrier)]
        returns = results.policy(method, "abrupt", 1).evaluate("nominal", episodes=64)
        first = curves.filter(carrier=carrier, step=0)["return_mean"].item()
        assert returns.min() - 1e-4 <= first <= returns.max() + 1e-4


def test_crossq_trains_stores_its_policies_and_begins_another_study(tmp_path):
    results = Study("toy", "crossq", "abrupt", **{**SIZES, "seeds": 2}).run(tmp_path / "study", quiet=True)
    assert results.curves["return_mean"].is_finite().all()
    obs = np.random.default_rng(0).uniform(-1.0, 1.0, (5, 2)).astype(np.float32)
    earlier, policy = (results.policy("CrossQ", "abrupt", 2, at=at) for at in (320, "end"))
    assert not np.allclose(earlier(obs), policy(obs))
    assert policy.evaluate(episodes=2).shape == (2,)
    np.testing.assert_allclose(act(np.load(policy.save(tmp_path / "policy.npz")), obs), policy(obs), atol=1e-5)
    continued(results, tmp_path, "crossq")


def test_studies_of_discrete_actions_act_one_hot_and_begin_others(tmp_path):
    results = Study("grid", ["sac", "ppo", "sql"], "abrupt", **SIZES).run(tmp_path / "study", quiet=True)
    assert results.curves["return_mean"].is_finite().all()
    spec = results.config.build_task().env.spec
    obs = np.random.default_rng(0).uniform(0.0, 1.0, (20, spec.obs_size)).astype(np.float32)
    for method in results.methods:
        policy = results.policy(method, "abrupt", 1)
        for actions in (policy(obs), policy(obs, key=0)):
            assert actions.shape == (20, spec.action_size)
            assert set(np.unique(actions)) <= {0.0, 1.0}
            np.testing.assert_array_equal(np.sum(actions, -1), 1.0)
    continued(results, tmp_path, "sac")


def test_a_policy_of_a_history_takes_the_last_observations_and_actions(tmp_path):
    study = Study("toy", "ppo", "abrupt", history=3, **SIZES)
    assert "--history 3" in study.command()
    results = study.run(tmp_path / "study", quiet=True)
    policy = Results.open(results.directory).policy("PPO", "abrupt", 1)
    assert policy(np.zeros(3 * 2 + 2 * 2)).shape == (2,)
    assert policy.evaluate(episodes=2).shape == (2,)
    with pytest.raises(ValueError, match=r"are \(10,\) or \(N, 10\).*; got \(2,\)"):
        policy(np.zeros(2))
