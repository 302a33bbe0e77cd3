"""The code in ``docs/elsewhere.md`` runs and does what the text around it says."""

import re
from pathlib import Path

import numpy as np
import pytest

import envs
from envs.adapters.gymnasium import DriftingVectorEnv

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "elsewhere.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)[:6]  # the others are the bridge's


def run(at):
    scope = {}
    exec(compile(BLOCKS[at], f"elsewhere.md, block {at}", "exec"), scope)
    return scope


def test_vector_environment(capsys):
    scope = run(0)
    assert scope["infos"]["drift"].shape == (4, 2)
    assert capsys.readouterr().out


def test_environments_by_id():
    scope = run(1)
    assert scope["info"]["drift_step"] == 0
    assert isinstance(scope["many"], DriftingVectorEnv)


def test_evaluations_pictures_and_copies():
    scope = run(2)
    assert [picture.shape for picture in scope["pictures"]] == [(480, 480, 3)] * 2
    np.testing.assert_allclose(scope["infos"]["drift"], [[0.3, -0.2]] * 2, rtol=1e-6)


@pytest.mark.slow
def test_stable_baselines():
    pytest.importorskip("stable_baselines3")
    import torch

    torch.set_num_threads(1)
    scope = run(3)
    assert scope["env"].unwrapped._copies.clock.steps == 2_500
    assert 5 < scope["mean"] < 48  # an untrained policy has 4


def test_export_to_brax(capsys):
    info = run(4)["state"].info
    np.testing.assert_array_equal(info["drift_step"], [1, 1, 1, 1])
    assert info["drift"].shape == (4, 2)
    assert capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:Brax System, piplines and environments:UserWarning")
@pytest.mark.filterwarnings("ignore:Accessing `.*` directly from `Data` is deprecated:DeprecationWarning")
def test_import_from_brax():
    scope = run(5)
    assert scope["task"].env.spec == envs.EnvSpec(obs_size=4, action_size=1, time_limit=500)
    assert [channel.name for channel in scope["task"].channels] == ["body_mass", "gravity"]
