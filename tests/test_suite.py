"""The suite itself: what its processes share, and the order in which its files are given out."""

import os
import subprocess
import sys
import time
from pathlib import Path

import jax

from tests.conftest import LONGEST
from tests.pages import ROOT


def test_files_that_are_given_out_first_are_there():
    assert all((ROOT / "tests" / file).is_file() for file in LONGEST)


def test_processes_of_a_run_share_what_they_compile():
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert jax.config.jax_compilation_cache_dir == str(folder)
    never_seen = time.time_ns() / 1e9

    def tripled(x):
        return 3.0 * x + never_seen

    jax.jit(tripled)(1.0)
    code = "import jax; print(jax.config.jax_compilation_cache_dir)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(folder)
    assert [path for path in folder.iterdir() if "tripled" in path.name]
