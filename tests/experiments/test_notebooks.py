"""The notebooks: committed with their outputs, which are small and name no machine; they run, in a short form."""

import json
import os
import re

import pytest

from tests.pages import ROOT

BOOKS = sorted((ROOT / "experiments" / "notebooks").glob("*.ipynb"))
#: What the cell tagged `parameters` is replaced by.
SHORT = {
    "tour": "STEPS, SEEDS = 500, 2",
    "explore": 'STEPS, SEEDS = 2_000, "1:2"',
    "own_schedule": 'STEPS, SEEDS = 2_000, "1:2"',
    "responses": 'STEPS, SEEDS = 2_000, "1:2"',
    "theory": "ROUNDS, SEEDS, MDPS = 200, 2, 10",
}


def named(book):
    return book.stem


def test_every_notebook_has_a_short_form():
    assert {book.stem for book in BOOKS} == set(SHORT)


@pytest.mark.parametrize("book", BOOKS, ids=named)
def test_outputs_are_there_small_and_without_names_of_machines(book):
    text = book.read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in shown if output["output_type"] == "error"]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert len(text) < 250_000
    told = json.dumps([{k: v for k, v in o.get("data", {}).items() if k != "image/png"} | o for o in shown])
    told = re.sub(r'"image/png": "[^"]*"', "", told)
    assert not re.findall(r"/(?:home|root|tmp|usr|Users|var|mnt)/", told)


@pytest.mark.slow
@pytest.mark.parametrize("book", BOOKS, ids=named)
def test_it_runs_in_a_short_form(book, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="`make docs` and `make test-all` install what notebooks run in")
    from nbclient import NotebookClient

    notebook = nbformat.read(book, 4)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    parameters.source = SHORT[book.stem]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT)]))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
