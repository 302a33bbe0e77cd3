"""SBX's SAC and PPO as contestants of `aesjax bench --sbx`: reads one JSON request per line, answers with one line.

Runs in an environment of its own, because SBX needs PyTorch. The timed work is SBX's own `learn` on one environment
with its default settings: PPO 64-64, rollouts of 2048, 10 epochs of minibatches of 64; SAC 256-256, batch 256, one
gradient step per environment step.
"""

import time

import gymnasium as gym
from sbx import PPO, SAC
from turns import serve


def make_timer(algorithm, task, seconds):
    """A function that does a fixed amount of work and returns its rate."""
    env = gym.make(task)
    if algorithm == "ppo":
        model, quantum = PPO("MlpPolicy", env, seed=0, device="cpu"), 2048
    else:
        model, quantum = SAC("MlpPolicy", env, seed=0, learning_starts=200), 500
    model.learn(quantum, reset_num_timesteps=False)
    model.learn(quantum, reset_num_timesteps=False)  # compiled by now

    def go(count):
        began = time.perf_counter()
        model.learn(count * quantum, reset_num_timesteps=False)
        return time.perf_counter() - began

    count = max(1, round(seconds / go(1)))
    return lambda: count * quantum / go(count)


if __name__ == "__main__":
    serve(make_timer)
