"""The code of `docs/study_in_python.md`: in a notebook, and cut short as a script on another task."""

import os
import subprocess
import sys

import pytest

from tests.pages import ROOT, blocks

BLOCKS = blocks(ROOT / "docs" / "study_in_python.md", "python")


@pytest.mark.slow
def test_it_runs_on_hopper(tmp_path):
    code = [block.replace('TASK, STEPS = "toy", 1_600', 'TASK, STEPS = "hopper", 3_200') for block in BLOCKS[:4]]
    code = [block.replace("steps=STEPS", "steps=STEPS, evaluations=4") for block in code]
    assert '"hopper"' in code[0]
    (tmp_path / "page.py").write_text("\n".join(code))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    process = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "runs" / "python" / "report" / "index.html").exists()


@pytest.mark.slow
def test_it_runs_in_a_notebook(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="`make docs` and `make test-all` install what notebooks run in")
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(block) for block in BLOCKS]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    study = tmp_path / "runs" / "python"
    assert "def burst(proxy, *, base, decay=0.9):" in (study / "config.json").read_text()
    assert (study / "report" / "index.html").exists()
