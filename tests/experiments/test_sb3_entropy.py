import numpy as np
import pytest

from aesjax import aes, fixed

pytest.importorskip("stable_baselines3")
from stable_baselines3 import PPO, SAC

from experiments.sb3_entropy import EntropyCallback, main

pytestmark = pytest.mark.slow


def small():
    """Arguments of a small agent; Stable-Baselines3 writes into them."""
    return {"policy_kwargs": {"net_arch": [16]}, "seed": 0}


def test_the_weight_of_ppo_follows_the_residuals_of_its_rollouts():
    callback = EntropyCallback(aes(base=0.2, kappa=0.01))
    agent = PPO("MlpPolicy", "Pendulum-v1", n_steps=64, n_epochs=1, ent_coef=0.2, **small())
    agent.learn(256, callback=callback)
    assert len(set(callback.weights)) == 5  # the first, and one per rollout
    assert agent.ent_coef == callback.weights[-1]
    rollout = agent.rollout_buffer
    values, rewards, ended = rollout.values[:-1], rollout.rewards[:-1], rollout.episode_starts[1:]
    expected = rewards + agent.gamma * (1 - ended) * rollout.values[1:] - values
    assert callback._residuals_of_ppo()[:-1] == pytest.approx(expected, abs=2e-4)


def test_the_weight_of_sac_is_in_force_in_its_losses():
    callback = EntropyCallback(aes(base=0.2, kappa=0.01))
    agent = SAC("MlpPolicy", "Pendulum-v1", ent_coef=0.2, learning_starts=20, batch_size=16, **small())
    agent.learn(60, callback=callback)
    assert len(set(callback.weights)) > 30
    assert float(agent.ent_coef_tensor) == np.float32(callback.weights[-1])
    assert agent.logger.name_to_value["train/ent_coef"] == pytest.approx(np.mean(callback.weights[1:]), rel=0.5)


def test_a_constant_is_that_constant_and_a_tuned_weight_is_refused():
    callback = EntropyCallback(fixed(base=0.3))
    PPO("MlpPolicy", "Pendulum-v1", n_steps=64, n_epochs=1, **small()).learn(64, callback=callback)
    assert callback.weights == pytest.approx([0.3, 0.3])
    with pytest.raises(ValueError, match="a number as ent_coef"):
        SAC("MlpPolicy", "Pendulum-v1", **small()).learn(10, callback=callback)


def test_the_command_trains(capsys):
    main("ppo", steps=100)
    assert "entropy weight: 0.2 at first" in capsys.readouterr().out
