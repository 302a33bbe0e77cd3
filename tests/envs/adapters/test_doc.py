"""The code in ``docs/elsewhere.md`` runs and does what the text around it says."""

import re
from pathlib import Path

import numpy as np
import pytest

import envs
from envs.adapters.gymnasium import DriftingVectorEnv

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "elsewhere.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)[:8]  # the others are the bridge's
NEEDS = {1: ["mujoco_playground"], 5: ["stable_baselines3"], 6: ["brax"], 7: ["brax"]}  # packages of a block
#: Shows by what a block leaves behind that it did what the page says, in the order of the blocks.
CHECKS = [
    lambda left: left["study"].config.options == {"channels": ("gain=0.5:1.5",)} and left["pendulum"].config.seeds,
    lambda left: left["study"].config.built.channels == (envs.Channel("body_mass.pole_1", 0.5, 3.0, 1.0),),
    lambda left: left["infos"]["drift"].shape == (4, 2),
    lambda left: left["info"]["drift_step"] == 0 and isinstance(left["many"], DriftingVectorEnv),
    lambda left: (
        [picture.shape for picture in left["pictures"]] == [(480, 480, 3)] * 2
        and np.allclose(left["infos"]["drift"], [[0.3, -0.2]] * 2)
    ),
    lambda left: left["env"].unwrapped._copies.clock.steps == 2_500 and 5 < left["mean"] < 48,  # untrained: 4
    lambda left: left["state"].info["drift_step"].tolist() == [1] * 4 and left["state"].info["drift"].shape == (4, 2),
    lambda left: left["task"].env.spec == envs.EnvSpec(obs_size=4, action_size=1, time_limit=500),
]


@pytest.mark.filterwarnings("ignore:Brax System, piplines and environments:UserWarning")
@pytest.mark.filterwarnings("ignore:Accessing `.*` directly from `Data` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("at", [pytest.param(i, marks=pytest.mark.slow) if i == 5 else i for i in range(len(CHECKS))])
def test_a_block_does_what_the_page_says(at):
    left = {}
    for package in NEEDS.get(at, ()):
        pytest.importorskip(package, reason="`make test-all` installs it")
    if at == 5:
        import torch

        torch.set_num_threads(1)
    exec(compile(BLOCKS[at], f"elsewhere.md, block {at}", "exec"), left)
    assert CHECKS[at](left)
