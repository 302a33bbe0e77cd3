"""The notebooks: their committed outputs name no machine; they run, in a short form."""

import json
import os
import re
import runpy

import pytest

from tests.pages import ROOT

BOOKS = sorted((ROOT / "experiments" / "notebooks").glob("*.ipynb"))
#: Contents of the cell tagged `parameters` in notebooks that train for minutes; the others run as they are committed.
SHORT = dict.fromkeys(("own_schedule", "own_environment"), "STEPS, SEEDS = 2_000, 2")
#: A cell after a shortened notebook, and its output: methods, patterns or replayed schedules, runs.
LEFT = {
    "own_schedule": (
        "print(*sorted(results.methods), *sorted(set(weights['replayed'])), results.streams.height)",
        "SAC SAC+AES-R SAC+BURST SAC+fixed SAC+AES-R SAC+BURST SAC+BURST[gain=3] 8\n",
    ),
    "own_environment": (
        "print(*sorted(results.methods), *sorted(set(late['pattern'])), results.streams.height)",
        "SAC SAC+AES SAC+fixed+recent[base=0.05] SAC+fixed[base=0.05] abrupt steady 16\n",
    ),
}
NUMBER = re.compile(r"[-+]?\d+\.\d+")


def named(book):
    return book.stem


@pytest.mark.parametrize("book", BOOKS, ids=named)
def test_outputs_have_no_errors_and_no_paths_of_machines(book):
    cells = [cell for cell in json.loads(book.read_text())["cells"] if cell["cell_type"] == "code"]
    shown = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in shown if output["output_type"] == "error"]
    outputs = json.dumps([{k: v for k, v in o.get("data", {}).items() if k != "image/png"} | o for o in shown])
    outputs = re.sub(r'"image/png": "[^"]*"', "", outputs)
    assert not re.findall(r"/(?:home|root|tmp|usr|Users|var|mnt)/", outputs)


def test_the_benchmark_of_the_recommendations_finds_the_environment_and_its_parameters(registries, tmp_path):
    script = runpy.run_path(str(ROOT / "benchmarks" / "own_environment.py"))
    env = script["environment"](tmp_path / "runs")().unwrapped
    for name, (low, high) in script["CHANNELS"].items():
        assert low < getattr(env, name) < high


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A kernel for all notebooks, which share its imports and its compiled programs, in a folder of its own."""
    pytest.importorskip("nbclient", reason="`make docs` and `make test-all` install what notebooks run in")
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    manager.start_kernel(cwd=str(tmp_path_factory.mktemp("notebooks")), env=environment)
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
@pytest.mark.parametrize("book", BOOKS, ids=named)
def test_it_runs_and_prints_the_committed_numbers(book, kernel):
    import nbformat
    from nbclient import NotebookClient

    notebook, committed = nbformat.read(book, 4), nbformat.read(book, 4)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    parameters.source = SHORT.get(book.stem, parameters.source)
    forget = "%reset -f\nimport jax\njax.config.update('jax_enable_x64', False)"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(forget))
    ask, left = LEFT.get(book.stem, ("", ""))
    notebook.cells.append(nbformat.v4.new_code_cell(ask))
    client = NotebookClient(notebook, km=kernel, timeout=600)
    client.execute()
    client.kc.stop_channels()
    # Floats differ a little between processors.
    stated, expected = printed(notebook), printed(committed) + left
    assert NUMBER.sub("#", stated) == NUMBER.sub("#", expected)
    pairs = zip(*(map(float, NUMBER.findall(text)) for text in (stated, expected)), strict=True)
    assert all(abs(a - b) <= 0.01 + 0.01 * abs(b) for a, b in pairs)


def printed(notebook):
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
