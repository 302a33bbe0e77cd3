"""Modules of pages outside this repository: by module:name and as an installed package."""

import os
import re
import subprocess
import sys

import polars as pl
import pytest

from tests.pages import ROOT, blocks

PAGE, AGENT, CHANGED = (ROOT / "docs" / name for name in ("packaging.md", "write_agent.md", "change_agent.md"))
OF_TASKS = [ROOT / "docs" / name for name in ("own_task.md", "write_task.md")]
CODE = [
    body
    for page in (PAGE, AGENT, CHANGED, ROOT / "docs" / "write_schedule.md", *OF_TASKS)
    for language in ("python", "toml")
    for body in blocks(page, language)
]
FILES = {named[1]: body.partition("\n")[2] for body in CODE if (named := re.match(r"# (\S+\.\w+)\n", body))}
BASH = [body.strip().splitlines() for page in (PAGE, AGENT, CHANGED) for body in blocks(page, "bash")]
NAMED, INSTALLED, PROXY, CARRIER, VARIANTS = BASH
TASKS = [line for page in OF_TASKS for block in blocks(page, "bash") for line in block.strip().splitlines()]
MODULES = ("mine.py", "line.py", "square.py")
SMALL = "--steps 2000 --seeds 1 --evaluations 20 --episodes 2"  # the last word of an option wins


RUNNER = """
import shlex, sys
from experiments.cli import main
for line in sys.argv[1:]:
    code = main(shlex.split(line)[1:])
    print("\f", end="", flush=True)
    if code:
        sys.exit(code)
"""


def small(line, *more):
    """A command line of a page; a training is small, and has ``more`` options."""
    return " ".join((line, SMALL, *more)) if " run " in line else line


def aesjax(place, *lines, site=None, code=0):
    """Command lines in one process of their own, in the folder ``place``; stdout of each, and stderr."""
    path = [str(ROOT), *([str(site)] if site else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", RUNNER, *lines]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.split("\f"), done.stderr


def write(place, *names):
    for name in names:
        (place / name).write_text(FILES[name])


@pytest.mark.slow
def test_an_installed_package_trains_reports_and_resumes_under_its_names(tmp_path):
    source, site, work = (tmp_path / name for name in ("source", "site", "work"))
    for place in (source, source / "mylab", site, work):
        place.mkdir()
    write(source / "mylab", *MODULES)
    write(source, "pyproject.toml")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(site), str(source)], check=True, timeout=300)
    (listed, *_), _ = aesjax(work, *map(small, INSTALLED[:2]), site=site)
    assert re.search(r"  burst +Base weight times a factor .* \[mylab.mine:burst\]", listed)
    assert re.search(r"  square +Alternate between .* \[mylab.square:square\]", listed)
    assert re.search(r"  reach +a point on a line whose target drifts \[mylab.line:reach\]", listed)
    study = work / "runs" / "installed"
    before = (study / "curves.parquet").read_bytes()
    aesjax(work, *INSTALLED[2:], small(INSTALLED[1], "--resume"), site=site)
    assert (study / "curves.parquet").read_bytes() == before

    rows = pl.read_parquet(study / "curves.parquet")
    assert (set(rows["pattern"]), set(rows["task"])) == ({"steady", "square"}, {"reach"})
    assert rows["return_mean"].is_finite().all()
    methods = {"SAC", *(f"SAC+BURST{each}" for each in ("", "[gain=4]", "[decay=0.999]", "[decay=0.999,gain=4]"))}
    weights = rows.filter(pl.col("entropy_weight").is_finite()).group_by("method").agg(pl.col("entropy_weight").mean())
    assert set(weights["method"]) == methods
    assert weights["entropy_weight"].n_unique() == len(methods)  # every value of the option is in force
    assert "| **reach · square** |" in (study / "report" / "tables.md").read_text()
    metrics = pl.read_parquet(study / "report" / "metrics.parquet")
    assert metrics.filter(pl.col("metric") == "recovery_robust", pl.col("pattern") == "square").height > 0
    assert "mylab" not in aesjax(work, INSTALLED[0])[0][0]


@pytest.mark.slow
def test_the_commands_shown_run_from_training_to_resuming(tmp_path):
    write(tmp_path, *MODULES)
    train, *rest = NAMED
    aesjax(tmp_path, small(train), *rest, small(train, "--resume"))
    assert (tmp_path / "runs" / "named" / "report" / "index.html").exists()


@pytest.mark.slow
def test_the_commands_of_tasks_train_under_their_drift(tmp_path):
    write(tmp_path, "line.py", "push.py", "rail.py")
    one = [line.replace("--carriers sac,ppo", "--carriers ppo") for line in TASKS]
    aesjax(tmp_path, *(small(line, "--evaluations 5", "--patterns abrupt") for line in one))
    studies = {study.name: pl.read_parquet(study / "curves.parquet") for study in (tmp_path / "runs").iterdir()}
    assert set(studies) == {"cost", "push", "pendulum", "reach", "rail"}
    for rows in studies.values():
        assert rows["return_mean"].is_finite().all()
        assert rows["drift_0"].n_unique() > 1


@pytest.mark.slow
def test_a_proxy_feeds_the_schedules_here(tmp_path):
    write(tmp_path, "fast_proxies.py")
    aesjax(tmp_path, small(PROXY[0]))
    rows = pl.read_parquet(tmp_path / "runs" / "proxy" / "curves.parquet")
    assert set(rows["method"]) == {f"SAC+{name}[proxy=td_max]" for name in ("AES", "AES-R")}
    assert (rows.filter(pl.col("step") == 2000)["proxy"] > 0).all()


@pytest.mark.slow
def test_variants_of_a_carrier_train(tmp_path):
    write(tmp_path, "tame.py")
    aesjax(tmp_path, small(VARIANTS[0], "--steps 400 --evaluations 5 --schedules fixed"))
    rows = pl.read_parquet(tmp_path / "runs" / "tame" / "curves.parquet")
    last = rows.filter(pl.col("step") == 400)
    assert last["return_mean"].n_unique() == 2
    stored = (tmp_path / "runs" / "tame" / "config.json").read_text()
    assert "scale_by_rms" in stored
    assert "0.1 * size" in stored


@pytest.mark.slow
@pytest.mark.learning
def test_a_carrier_trains_and_learns(tmp_path):
    write(tmp_path, "gridq.py")
    aesjax(tmp_path, CARRIER[0] + " --schedules baseline --seeds 1")
    rows = pl.read_parquet(tmp_path / "runs" / "carrier" / "curves.parquet")
    last = rows.filter(pl.col("step") > 9_000, pl.col("method") == "GridQ")["return_mean"].mean()
    assert last > 0.8 * 47.8  # the optimum of the steady toy task
