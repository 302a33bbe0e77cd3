"""The code in ``docs/elsewhere.md`` runs."""

import re

import pytest

from experiments.cli import main
from experiments.study.store import read_rows
from tests.envs.bridge.common import ROOT
from tests.envs.bridge.common import torch as installed

installed()

PAGE = (ROOT / "docs" / "elsewhere.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.partition("\n## Train on Isaac Gym")[2], flags=re.DOTALL)


@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_a_block_runs(at, capsys):
    exec(compile(BLOCKS[at], f"elsewhere.md, block {at}", "exec"), {})
    assert capsys.readouterr().out.startswith(("", "(16, 60) [ True", "torch.Size([4, 13]) torch.int64")[at])


@pytest.mark.slow
def test_the_task_of_ones_own_trains_under_abrupt_drift_from_the_page_alone(tmp_path, monkeypatch):
    """Its module is found in the current folder, it needs no PyTorch, and evaluation drifts, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "integrator.py").write_text(BLOCKS[0])
    (tmp_path / "torch.py").write_text("raise ImportError('there is no PyTorch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = "--carriers ppo --schedules baseline --patterns abrupt --seeds 1:1 --num-envs 256 --steps 25600"
    words += " --timeout 60 --out out --no-report --quiet"
    assert main(["run", "--task", "bridge:integrator:make", *words.split()]) == 0
    rows = read_rows(tmp_path / "out" / "curves.parquet")
    assert rows["return_mean"].is_finite().all()
    assert rows["drift_0"].n_unique() > 2
    assert rows["drift_0"].is_between(-1.0, 2.0).all()
