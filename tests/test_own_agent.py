"""The page about a schedule in one's own agent: its code runs, and the weight does as the page says."""

import numpy as np
import pytest

from tests.pages import ROOT, blocks

PAGE = ROOT / "docs" / "own_agent.md"
IN_JAX, IN_TORCH, TIMING = blocks(PAGE, "python")


def run(code):
    scope = {}
    exec(compile(code, PAGE.name, "exec"), scope)
    return scope


def test_the_weight_of_the_jax_agent_rises_after_the_change_and_the_agent_learns_anew(capsys):
    scope = run(IN_JAX)
    weights, rewards = np.asarray(scope["weights"]), np.asarray(scope["rewards"])
    change = scope["change"]
    assert weights.shape == (scope["STEPS"],)
    np.testing.assert_allclose(weights[change // 2 : change], 0.05, rtol=0.02)
    assert 80 < weights[change:].argmax() < 160
    assert 0.18 < weights[change:].max() < 0.25
    assert weights[-1] < 0.7 * weights.max()
    assert rewards[change - 200 : change].mean() > -0.2
    assert rewards[change : change + 50].mean() < -0.8
    assert rewards[-200:].mean() > -0.3
    assert len(capsys.readouterr().out.split()) == 3


@pytest.mark.slow
def test_the_weight_of_the_torch_agent_rises_after_the_change(capsys):
    torch = pytest.importorskip("torch", reason="`make test-all` installs PyTorch")
    threads = torch.get_num_threads()
    try:
        scope = run(IN_TORCH)
    finally:
        torch.set_num_threads(threads)
    weights, change = np.asarray(scope["weights"]), scope["change"]
    assert weights.shape == (scope["STEPS"],)
    np.testing.assert_allclose(weights[change - 100 : change], 0.05, rtol=0.1)
    assert weights[change:].max() > 0.15
    assert len(capsys.readouterr().out.split()) == 2


@pytest.mark.slow
def test_a_compiled_update_costs_far_less_than_one_that_is_not(capsys):
    run(TIMING)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [name for name, *_ in lines] == ["aes_r", "aes_c"]
    for _, compiled, plain in lines:
        assert 10 * float(compiled) < float(plain)
