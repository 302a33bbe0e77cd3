"""The page of plain PyTorch learns on a task of ours."""

import pytest

from tests.envs.bridge.common import torch

torch = torch()

from experiments.torch_ppo import Options, train  # noqa: E402


@pytest.fixture
def one_thread():
    """More threads for networks this small spend their time waiting for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_a_plain_pytorch_loop_learns_through_the_torch_environment(one_thread):
    history = [seen.reward for seen in train(Options(iterations=12, copies=32, rollout=64, hidden=32))]
    assert history[0] < 0.35
    assert max(history[-3:]) > 0.5  # the optimum is 0.95
