"""The notebooks: committed with their outputs, which are small and name no machine; they run, in a short form."""

import json
import os
import re

import pytest

from tests.pages import ROOT

BOOKS = sorted((ROOT / "experiments" / "notebooks").glob("*.ipynb"))
#: Contents of the cell tagged `parameters` in notebooks that take minutes; the others run as they are committed.
SHORT = {"explore": "STEPS, SEEDS = 2_000, 2", "own_schedule": "STEPS, SEEDS = 2_000, 2"}
NUMBER = re.compile(r"[-+]?\d+\.\d+")


def named(book):
    return book.stem


@pytest.mark.parametrize("book", BOOKS, ids=named)
def test_outputs_are_there_small_and_without_names_of_machines(book):
    text = book.read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in shown if output["output_type"] == "error"]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert len(text) < 250_000
    outputs = json.dumps([{k: v for k, v in o.get("data", {}).items() if k != "image/png"} | o for o in shown])
    outputs = re.sub(r'"image/png": "[^"]*"', "", outputs)
    assert not re.findall(r"/(?:home|root|tmp|usr|Users|var|mnt)/", outputs)


@pytest.mark.slow
@pytest.mark.parametrize("book", BOOKS, ids=named)
def test_it_runs_and_prints_the_committed_numbers(book, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="`make docs` and `make test-all` install what notebooks run in")
    from nbclient import NotebookClient

    notebook, committed = nbformat.read(book, 4), nbformat.read(book, 4)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    parameters.source = SHORT.get(book.stem, parameters.source)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT)]))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    if book.stem not in SHORT:  # floats differ a little between processors
        assert NUMBER.sub("#", printed(notebook)) == NUMBER.sub("#", printed(committed))
        pairs = zip(*(map(float, NUMBER.findall(printed(one))) for one in (notebook, committed)), strict=True)
        assert all(abs(a - b) <= 0.01 + 0.01 * abs(b) for a, b in pairs)


def printed(notebook):
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
