"""The suite itself: what its targets run, what it shares, and that nothing in it points at what is gone."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jax

from tests.conftest import LONGEST

ROOT = Path(__file__).resolve().parents[1]


def recipe(target):
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
    assert found, target
    (pytest,) = re.findall(r"^PYTEST := (.*)$", makefile, flags=re.MULTILINE)
    return found[1].replace("$(PYTEST)", pytest)


def test_a_call_without_arguments_is_make_test_and_make_test_all_leaves_nothing_out(request):
    assert request.config.getini("addopts")[-2:] == ["-m", "not slow"]
    assert "-m pytest" in recipe("test")
    assert "slow" not in recipe("test")
    assert recipe("test-all").strip() == recipe("test").strip() + ' -m "slow or not slow"'


def test_everything_includes_what_is_shared_with_pytorch():
    """At one version, wherever it is named."""
    assert "test-all: setup $(TORCH) $(DOCS)\n" in (ROOT / "Makefile").read_text()
    (pinned,) = re.findall("^torch==.*$", (ROOT / "requirements-torch.lock").read_text(), flags=re.MULTILINE)
    for file in ("pyproject.toml", "envs/bridge/errors.py", "docs/bridge.md"):
        assert pinned in (ROOT / file).read_text()


def test_continuous_integration_calls_what_the_readme_names():
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "make test-all" in commands
    readme = (ROOT / "README.md").read_text()
    assert "`make test-all`" in readme
    assert "`make test`" in readme


def test_files_that_are_given_out_first_are_there():
    assert len(set(LONGEST)) == len(LONGEST)
    assert all((ROOT / "tests" / file).is_file() for file in LONGEST)


def test_processes_of_a_run_share_what_they_compile():
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert jax.config.jax_compilation_cache_dir == str(folder)
    never_seen = time.time_ns() / 1e9

    def tripled(x):
        return 3.0 * x + never_seen

    jax.jit(tripled)(1.0)
    code = "import jax; print(jax.config.jax_compilation_cache_dir)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == str(folder)
    assert [path for path in folder.iterdir() if "tripled" in path.name]
