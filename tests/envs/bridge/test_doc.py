"""The code in ``docs/bridge.md`` runs."""

import re

import pytest

from tests.envs.bridge.common import ROOT
from tests.envs.bridge.common import torch as installed

installed()

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "bridge.md").read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_a_block_runs(at, capsys):
    exec(compile(BLOCKS[at], f"bridge.md, block {at}", "exec"), {})
    assert capsys.readouterr().out.startswith(("(16, 60) [ True", "torch.Size([4, 13]) torch.int64")[at])


def test_commands_name_what_is_there():
    text = (ROOT / "docs" / "bridge.md").read_text()
    assert len(BLOCKS) == 2
    assert "experiments/torch_ppo.py" in text
    assert (ROOT / "experiments" / "torch_ppo.py").is_file()
