"""The vector environment for Stable-Baselines3; where that is installed, with its own algorithms and evaluations."""

import doctest
import importlib
import sys
import warnings

import numpy as np
import pytest

N, STEPS = 3, 200


def test_without_stable_baselines_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    monkeypatch.delitem(sys.modules, "envs.adapters.sb3", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"needs Stable-Baselines3.* pip install '\.\[sb3\]' in a clone"):
        importlib.import_module("envs.adapters.sb3")


@pytest.fixture(scope="module")
def sb3():
    pytest.importorskip("stable_baselines3")
    import torch

    torch.set_num_threads(1)
    from envs.adapters import sb3

    return sb3


@pytest.fixture(scope="module")
def toy(sb3):
    return sb3.DriftingVecEnv("toy", "abrupt", drift_steps=STEPS, num_envs=N, drift_seed=4)


def test_the_example_in_its_documentation_runs(sb3):
    assert doctest.testmod(sb3) == (0, 2)


def test_its_ppo_trains_and_its_evaluations_leave_the_drift_alone(sb3, toy):
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecMonitor

    env = VecMonitor(toy)
    evaluation = VecMonitor(env.evaluation())
    model = PPO("MlpPolicy", env, n_steps=100, batch_size=100, n_epochs=1, seed=0)
    callback = EvalCallback(evaluation, eval_freq=50, n_eval_episodes=N, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(100 * N, callback=callback)
    assert [point["l"] for point in model.ep_info_buffer] == [50] * 2 * N
    assert toy._copies.clock.steps == 100
    steps = []
    evaluate_policy(
        model, evaluation, N, callback=lambda local, _: steps.append((local["info"]["drift_step"], local["done"]))
    )
    assert {step for step, _ in steps} == {100}
    assert sum(done for _, done in steps) == N
    held = VecMonitor(env.evaluation(drift=(0.3, 0.3)))
    np.testing.assert_allclose(held.reset()[0].shape, (2,))
    np.testing.assert_allclose(held.step(np.zeros((N, 2)))[3][0]["drift"], [0.3, 0.3], rtol=1e-6)


def test_its_dqn_trains_on_discrete_actions(sb3):
    from stable_baselines3 import DQN

    env = sb3.DriftingVecEnv("grid", "abrupt", drift_steps=STEPS, num_envs=N)
    model = DQN("MlpPolicy", env, learning_starts=10, seed=0).learn(20 * N)
    assert env._copies.clock.steps == 20
    actions, _ = model.predict(env.reset())
    assert set(actions.tolist()) <= set(range(5))
