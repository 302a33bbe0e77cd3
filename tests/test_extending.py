"""Examples of `docs/extend.md` outside this repository: by module:name and as an installed package."""

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "extend.md").read_text()
FILES = {
    re.match(r"# (\S+)\n", body).group(1): body.partition("\n")[2]
    for body in re.findall(r"```(?:python|toml)\n(.*?)```", TEXT, flags=re.DOTALL)
}
NAMED, INSTALLED, PROXY, CARRIER = (
    block.strip().splitlines() for block in re.findall(r"```bash\n(.*?)```", TEXT, flags=re.DOTALL)
)
SMALL = "--steps 2000"


RUNNER = """
import shlex, sys
from experiments.cli import main
for line in sys.argv[1:]:
    code = main(shlex.split(line)[1:])
    print("\f", end="", flush=True)
    if code:
        sys.exit(code)
"""


def aesjax(place, *lines, site=None, code=0):
    """Command lines of the page in one process of their own, in the folder ``place``; stdout of each, and stderr."""
    lines = [f"{line} {SMALL}" if " run " in line and "carrier" not in line else line for line in lines]
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
    for place in (source, site, work):
        place.mkdir()
    write(source, "mylab.py", "pyproject.toml")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(site), str(source)], check=True, timeout=300)
    (listed, *_), _ = aesjax(work, *INSTALLED[:2], site=site)
    assert re.search(r"  calm +Base weight times 1 .* \[mylab:calm\]", listed)
    assert re.search(r"  square +Nominal and high by turns, a segment each. \[mylab:square\]", listed)
    assert re.search(r"  reach +a point on a line whose target drifts \[mylab:reach\]", listed)
    study = work / "runs" / "installed"
    before = (study / "curves.parquet").read_bytes()
    aesjax(work, *INSTALLED[2:], INSTALLED[1] + " --resume", site=site)
    assert (study / "curves.parquet").read_bytes() == before

    rows = pl.read_parquet(study / "curves.parquet")
    assert (set(rows["pattern"]), set(rows["task"])) == ({"steady", "square"}, {"reach"})
    assert rows["return_mean"].is_finite().all()
    methods = {"SAC", "SAC+CALM", "SAC+CALM[gain=4]", "SAC+CALM[decay=0.999]", "SAC+CALM[decay=0.999,gain=4]"}
    weights = rows.filter(pl.col("entropy_weight").is_finite()).group_by("method").agg(pl.col("entropy_weight").mean())
    assert set(weights["method"]) == methods
    assert weights["entropy_weight"].n_unique() == len(methods)  # every value of the option is in force
    assert "reach · square | SAC+CALM |" in (study / "report" / "tables.md").read_text()
    metrics = pl.read_parquet(study / "report" / "metrics.parquet")
    assert metrics.filter(pl.col("metric") == "recovery_robust", pl.col("pattern") == "square").height > 0
    assert "calm" not in aesjax(work, INSTALLED[0])[0][0]


@pytest.mark.slow
def test_the_commands_shown_run_from_training_to_resuming(tmp_path):
    write(tmp_path, "mylab.py")
    train, *rest = NAMED
    aesjax(tmp_path, train, *rest, train + " --resume")
    assert (tmp_path / "runs" / "named" / "report" / "index.html").exists()


@pytest.mark.slow
def test_a_proxy_feeds_the_schedules_here(tmp_path):
    write(tmp_path, "fast_proxies.py")
    aesjax(tmp_path, PROXY[0])
    rows = pl.read_parquet(tmp_path / "runs" / "proxy" / "curves.parquet")
    assert set(rows["method"]) == {f"SAC+{name}[proxy=td_max]" for name in ("AES", "AES-R")}
    assert (rows.filter(pl.col("step") == 2000)["proxy"] > 0).all()


@pytest.mark.slow
@pytest.mark.learning
def test_a_carrier_trains_and_learns(tmp_path):
    write(tmp_path, "gridq.py")
    aesjax(tmp_path, CARRIER[0])
    rows = pl.read_parquet(tmp_path / "runs" / "carrier" / "curves.parquet")
    last = rows.filter(pl.col("step") > 15_000, pl.col("method") == "GridQ")["return_mean"].mean()
    assert last > 0.8 * 47.8  # the optimum of the steady toy task
