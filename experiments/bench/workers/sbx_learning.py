"""SBX's SAC on one MuJoCo task, evaluated like ours, beside `learning.py` at an equal number of steps.

Usage, in an environment of its own (SBX needs PyTorch; see `aesjax bench --sbx`):
  python experiments/bench/workers/sbx_learning.py HalfCheetah-v5 51200 OUT.json --seeds 1 2 3 --every 10240
SBX's defaults at the sizes of preset `mujoco-paper`: 256-256, batch 256, gamma 0.99, learning rates 3e-4 for the policy
and (as there, not SBX's default) 1e-3 for the critics, one gradient step per environment step, temperature tuned to
minus the number of actions, warm-up of 5000 steps.
"""

import argparse
import json
from importlib import metadata
from pathlib import Path

import gymnasium as gym
import numpy as np
from sbx import SAC

VERSIONS = ("sbx-rl", "jax", "mujoco", "gymnasium")


def evaluate(model, env, episodes, seed):
    """Undiscounted returns of the deterministic policy."""
    returns = []
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def train(task, steps, every, episodes, seed):
    """Mean return at every multiple of ``every`` steps."""
    env, held_out = gym.make(task), gym.make(task)
    model = SAC("MlpPolicy", env, seed=seed, qf_learning_rate=1e-3, learning_starts=5000, buffer_size=steps)
    curve = []
    for _ in range(steps // every):
        model.learn(every, reset_num_timesteps=False)
        curve.append(float(np.mean(evaluate(model, held_out, episodes, 10_000 * seed))))
        print(f"seed {seed}, {len(curve) * every} steps: {curve[-1]:.0f}", flush=True)
    return curve


def main():
    """Train every seed and write the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("steps", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--every", type=int, default=10_240)
    parser.add_argument("--episodes", type=int, default=10)
    given = parser.parse_args()
    record = {
        "versions": {name: metadata.version(name) for name in VERSIONS},
        "task": given.task,
        "carrier": "sac (SBX)",
        "step": [given.every * (i + 1) for i in range(given.steps // given.every)],
        "return_mean": {},
    }
    for seed in given.seeds:
        record["return_mean"][str(seed)] = train(given.task, given.steps, given.every, given.episodes, seed)
        given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
