"""The environment in ``docs/vector_env.md`` trains."""

import pytest

from experiments.cli import main
from experiments.study.store import read_rows
from tests.envs.bridge.common import torch as installed
from tests.pages import ROOT, blocks

installed()

[MODULE] = [code for code in blocks(ROOT / "docs" / "vector_env.md", "python") if code.startswith("# integrator.py\n")]


@pytest.mark.slow
def test_an_environment_of_your_own_trains_under_abrupt_drift_with_the_code_of_the_page(tmp_path, monkeypatch):
    """Its module is in the current folder, needs no PyTorch, and its evaluations drift."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "integrator.py").write_text(MODULE)
    (tmp_path / "torch.py").write_text("raise ImportError('PyTorch is not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = "--carriers ppo --schedules baseline --patterns abrupt --seeds 1:1 --num-envs 256 --steps 25600"
    options += " --evaluations 20 --timeout 60 --out out --no-report --quiet"
    assert main(["run", "--task", "bridge:integrator:make", *options.split()]) == 0
    rows = read_rows(tmp_path / "out" / "curves.parquet")
    assert rows["return_mean"].is_finite().all()
    assert rows["drift_0"].n_unique() > 2
    assert rows["drift_0"].is_between(-1.0, 2.0).all()
