"""The page about a schedule in one's own agent: its code runs, and the weight does as the page says."""

import numpy as np
import pytest

from tests.pages import ROOT, blocks

PAGE = ROOT / "docs" / "own_agent.md"
_, IN_TORCH, IN_SB3, TIMING = blocks(PAGE, "python")


def run(code):
    scope = {}
    exec(compile(code, PAGE.name, "exec"), scope)
    return scope


@pytest.mark.slow
def test_the_weight_of_the_torch_agent_rises_after_the_change(capsys):
    pytest.importorskip("torch", reason="`make test-all` installs PyTorch")
    scope = run(IN_TORCH)
    weights, change = np.asarray(scope["weights"]), scope["change"]
    assert weights.shape == (scope["STEPS"],)
    np.testing.assert_allclose(weights[change - 100 : change], 0.05, rtol=0.1)
    assert weights[change:].max() > 0.12
    assert weights[-1] < 0.7 * weights.max()
    assert len(capsys.readouterr().out.split()) == 2


@pytest.mark.slow
def test_the_weight_of_stable_baselines3_is_at_its_clip(capsys):
    pytest.importorskip("stable_baselines3", reason="`make test-all` installs Stable-Baselines3")
    run(IN_SB3)
    assert float(capsys.readouterr().out) == pytest.approx(0.1)


@pytest.mark.slow
def test_a_compiled_update_costs_far_less_than_one_that_is_not(capsys):
    run(TIMING)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [name for name, *_ in lines] == ["aes_r", "aes_c"]
    for _, compiled, plain in lines:
        assert 10 * float(compiled) < float(plain)
