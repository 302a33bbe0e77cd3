"""Strict settings for the whole suite, shared compilations, and the order in which files are given out."""

import os
import shutil
import signal
import sys
import tempfile
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

# The suite compiles thousands of small programs and runs each for an instant: optimising them costs more than it saves.
# The older code generation takes a third less time; a jaxlib without the choice would refuse to start. Tests compile
# functions of their own, too, so the fusions that `aesjax.safe_options` leaves out are off for all.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1 --xla_cpu_experimental_ynn_fusion_type=-reduce"
    + " --xla_cpu_use_fusion_emitters=false" * version("jaxlib").startswith("0.10."),
)
os.environ.setdefault("MPLBACKEND", "Agg")

import jax
import pytest

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

LARGEST_CACHE = 2**31  # bytes of compiled programs; a larger folder is emptied before a run

#: Given out first, the longest of them first, so that no worker ends the run alone.
LONGEST = (
    "test_extending.py",
    "test_page_code.py",
    "experiments/study/test_bridge_study.py",
    "experiments/study/test_lowering.py",
    "experiments/study/test_faults.py",
    "envs/physics/test_mjx_engine.py",
    "experiments/bench/test_bench.py",
    "envs/physics/test_warp_engine.py",
    "experiments/test_single_file.py",
    "experiments/test_tables.py",
    "experiments/study/test_slurm.py",
    "test_readme.py",
    "experiments/test_torch_ppo.py",
    "test_pages.py",
    "envs/physics/test_protocol.py",
    "agents/test_train.py",
    "agents/test_learning.py",
    "experiments/study/test_references.py",
    "experiments/study/test_warm.py",
    "experiments/test_notebooks.py",
    "experiments/theory/test_schedules.py",
    "agents/test_formulas.py",
    "experiments/study/test_program.py",
    "experiments/study/test_forecast.py",
    "experiments/study/test_observe.py",
    "agents/test_carriers_contract.py",
    "experiments/study/test_checkpoint.py",
    "experiments/cli/test_cli.py",
    "agents/common/test_loops.py",
    "agents/test_ppo.py",
)


def pytest_configure(config):
    share_compilations(config)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in the background of a script; tests' processes inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def share_compilations(config):
    """Keep compiled programs in the virtual environment for later runs, pytest's workers and processes of tests.

    A folder named in the environment is used instead. Programs of another jaxlib are never read. Python's bytecode is
    kept there, too, even where the environment says that none be written: a start reads some thousand modules.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = Path(sys.prefix) / "compiled-tests"
        current = folder / version("jaxlib")
        if sum(file.stat().st_size for file in current.glob("*")) > LARGEST_CACHE:
            shutil.rmtree(current, ignore_errors=True)
        for outdated in set(folder.glob("*")) - {current}:
            shutil.rmtree(outdated, ignore_errors=True)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(current)
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(
        Path(os.environ["JAX_COMPILATION_CACHE_DIR"], "python")
    )
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    settings = {"min_compile_time_secs": 0.0, "min_entry_size_bytes": -1}  # everything
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    for name, value in settings.items():
        os.environ[f"JAX_PERSISTENT_CACHE_{name.upper()}"] = str(value)
        jax.config.update(f"jax_persistent_cache_{name}", value)


def pytest_collection_modifyitems(items):
    rank = {f"tests/{file}": at for at, file in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.location[0], len(rank)))


@pytest.fixture(scope="session", autouse=True)
def temporary(tmp_path_factory):
    """Keep folders of studies and libraries that no test named where pytest removes them."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("temporary"))
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)  # of processes
        yield


@pytest.fixture
def registries(tmp_path):
    """Remove a test's registrations, and each module of its folder, afterwards."""
    with as_registered():
        yield
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@contextmanager
def as_registered():
    """Remove the registrations of the block afterwards."""
    import envs
    from aesjax.adaptations import ADAPTATIONS
    from aesjax.schedules import PROXIES, SCHEDULES
    from agents import CARRIERS

    registries = (SCHEDULES, ADAPTATIONS, PROXIES, CARRIERS, envs.TASKS, envs.PATTERNS)
    saved = [(registry, dict(registry)) for registry in registries]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        yield
    for registry, before in saved:
        registry.clear()
        registry.update(before)
