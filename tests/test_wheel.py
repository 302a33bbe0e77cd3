"""The wheel: everything it needs is inside, and it works where the clone is not."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.pages import ROOT

PACKAGES = ("aesjax", "agents", "envs", "experiments")
pytestmark = pytest.mark.slow

CHECK = """
from pathlib import Path
import sys
import aesjax, agents, envs, experiments
for package in (aesjax, agents, envs, experiments):
    assert Path(package.__file__).is_relative_to(sys.prefix), package.__file__
from experiments.measure import paper_table
assert paper_table("recovery")
import envs
assert envs.make("isaac_ant", engine="mujoco").env.spec.obs_size == 60
from experiments.cli import main
sizes = "--patterns abrupt --seeds 1:2 --steps 2000 --evaluations 20 --episodes 2".split()
assert main(["run", "--schedules", "baseline,aes_r", *sizes, "--out", "study"]) == 0
page = Path("study", "report", "index.html")
page.unlink()
assert main(["report", "study"]) == 0
assert page.stat().st_size > 10_000
"""


def run(*words, cwd, **more):
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([str(w) for w in words], cwd=cwd, env=clean, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing is left in the clone."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    run(*pip, "--no-build-isolation", "--wheel-dir", out, source, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """An environment with the wheel; libraries are lent to it, the clone is not."""
    place = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", place, cwd=place)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--no-index", "--no-deps", wheel, cwd=place)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")  # whose own .pth files are not read
    return python


def test_modules_data_and_the_licence_are_inside(wheel):
    with zipfile.ZipFile(wheel) as file:
        inside = set(file.namelist())
    modules = {str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    assert modules | {f"{name}/py.typed" for name in PACKAGES} <= inside
    kinds = (
        "experiments/measure/paper",
        "experiments/report/assets",
        "experiments/report/templates",
        "envs/isaac/assets",
    )
    for kind in kinds:
        data = {str(path.relative_to(ROOT)) for path in (ROOT / kind).iterdir() if path.is_file()}
        assert data, kind
        assert data <= inside, kind
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert not [name for name in inside if name.startswith("tests")]


def test_it_trains_and_reports_where_the_clone_is_not(python, tmp_path):
    aesjax = Path(python).with_name("aesjax")
    assert "multi-goal" in run(aesjax, "list", cwd=tmp_path)
    assert "study" in run(python, "-c", CHECK, cwd=tmp_path)
