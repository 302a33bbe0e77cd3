"""The page of plain PyTorch learns on a task of ours."""

import pytest

from tests.envs.bridge.common import torch

torch()

from experiments.torch_ppo import Options, train  # noqa: E402


@pytest.mark.slow
def test_a_plain_pytorch_loop_learns_through_the_torch_environment():
    history = [seen.reward for seen in train(Options(iterations=12, copies=32, rollout=64, hidden=32))]
    assert history[0] < 0.35
    assert max(history[-3:]) > 0.5  # the optimum is 0.95
