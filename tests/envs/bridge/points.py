"""Points that actions push, on the surface of Isaac Gym, in PyTorch alone: nothing in it waits for JAX."""

import os
import time
from pathlib import Path

import torch

from tests.envs.bridge.fake_gym import FakeGym, FakeSim


class Points:
    """Episodes of at most seven steps; what the file `fate` says (``die``, ``hang 300``) happens, once."""

    def __init__(self, num_envs, seed=0, fate=None):
        n = num_envs
        self.num_envs, self.num_obs, self.num_acts, self.max_episode_length = n, 2, 2, 8
        self.rl_device, self.gym, self.fate, self.steps = "cpu", FakeGym(), fate, 0
        self.sim = FakeSim("points", n, 1)
        self.envs = [(self.sim, i) for i in range(n)]
        self.reset_buf, self.rew_buf = torch.ones(n, dtype=torch.int64), torch.zeros(n)
        self.place, self.time = torch.zeros(n, 2), torch.zeros(n)

    def step(self, actions):
        self.steps += 1
        what, _, when = self.fate.read_text().partition(" ") if self.fate and self.fate.exists() else ("", "", "")
        if what and self.steps >= int(when or 0):
            self.fate.unlink()
            if what == "die":
                print("the simulator has had enough", flush=True)
                os._exit(17)
            time.sleep(3600)
        again = self.reset_buf != 0
        self.place = torch.where(again[:, None], torch.rand(self.num_envs, 2), self.place + 0.1 * actions)
        self.time = torch.where(again, 0, self.time + 1)
        self.rew_buf.copy_(-self.place.norm(dim=1))
        self.reset_buf.copy_((self.time >= 7) | (self.place[:, 0] > 0.9))
        return {"obs": self.place.clone()}, self.rew_buf, self.reset_buf, {"time_outs": self.time >= 7}


def mortal(num_envs, seed, **options):
    """For workers: ``tests.envs.bridge.points:mortal``; the file named by FATE decides."""
    return Points(num_envs, seed, Path(os.environ["FATE"]), **options)
