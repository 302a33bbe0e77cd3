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


def test_minibatches_without_a_standard_deviation_are_refused():
    with pytest.raises(ValueError, match="minibatches must be at most 16"):
        next(train(Options(copies=8, rollout=8, minibatches=17)))


@pytest.mark.slow
def test_no_minibatch_has_one_step_whatever_the_number_of_phantoms(one_thread):
    options = Options(copies=3, rollout=100, minibatches=75, epochs=1, iterations=2, hidden=8)
    assert all(seen.reward == seen.reward for seen in train(options))


@pytest.mark.slow
def test_a_plain_pytorch_loop_learns_through_the_torch_environment(one_thread):
    history = [seen.reward for seen in train(Options(iterations=12, copies=32, rollout=64, hidden=32))]
    assert history[0] < 0.35
    assert max(history[-3:]) > 0.5  # the optimum is 0.95
