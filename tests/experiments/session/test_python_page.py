"""The code of `docs/study_in_python.md` in a notebook."""

import pytest

from tests.pages import ROOT, blocks

BLOCKS = blocks(ROOT / "docs" / "study_in_python.md", "python")


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
