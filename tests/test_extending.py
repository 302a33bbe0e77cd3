"""Examples of `docs/extend.md` outside this repository: by module:name and as an installed package."""

import json
import os
import re
import shutil
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


def config(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The page's package of two files, installed by pip into a folder of its own, and an empty folder to work in."""
    source, site, work = (tmp_path_factory.mktemp(name) for name in ("source", "site", "work"))
    write(source, "mylab.py", "pyproject.toml")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(site), str(source)], check=True, timeout=300)
    return site, work


@pytest.fixture(scope="module")
def study(installed):
    site, work = installed
    (listed, *_), _ = aesjax(work, *INSTALLED[:2], site=site)
    return work / "runs" / "installed", listed


@pytest.fixture(scope="module")
def reported(installed, study):
    """The study after the page's other commands and a resumption, in a new process; stdout of each."""
    site, work = installed
    before = (study[0] / "curves.parquet").read_bytes()
    said, _ = aesjax(work, *INSTALLED[2:], INSTALLED[1] + " --resume", site=site)
    assert (study[0] / "curves.parquet").read_bytes() == before
    return study[0], said


@pytest.mark.slow
class TestAnInstalledPackage:
    def test_stands_in_the_list_with_its_summary_and_origin(self, study):
        _, listed = study
        assert re.search(r"  calm +Base weight times 1 .* \[mylab:calm\]", listed)
        assert re.search(r"  square +Nominal and high by turns, a segment each. \[mylab:square\]", listed)
        assert re.search(r"  reach +a point on a line whose target drifts \[mylab:reach\]", listed)

    def test_trains_with_its_option_as_an_axis_of_one_program(self, study):
        rows = pl.read_parquet(study[0] / "curves.parquet")
        assert set(rows["pattern"]) == {"steady", "square"}
        assert set(rows["task"]) == {"reach"}
        methods = {"SAC", "SAC+CALM", "SAC+CALM[gain=4]", "SAC+CALM[decay=0.999]", "SAC+CALM[decay=0.999,gain=4]"}
        assert set(rows["method"]) == methods
        assert rows["return_mean"].is_finite().all()
        weights = (
            rows.filter(pl.col("entropy_weight").is_finite()).group_by("method").agg(pl.col("entropy_weight").mean())
        )
        assert weights["entropy_weight"].n_unique() == len(methods)  # every value of the option is in force

    def test_is_recorded_with_its_place(self, study):
        definitions = config(study[0])["definitions"]
        assert definitions["schedule"]["calm"]["object"] == "mylab:calm"
        assert definitions["task"]["reach"]["object"] == "mylab:reach"
        manifest = json.loads((study[0] / "manifest.json").read_text())
        square = {"jumps": True, "recovery": True, "summary": "Nominal and high by turns, a segment each."}
        assert manifest["patterns"]["square"] == square

    def test_its_jumping_pattern_is_measured_and_drawn_without_an_edit(self, reported):
        study, _ = reported
        tables = (study / "report" / "tables.md").read_text()
        assert "reach · square | SAC+CALM |" in tables
        metrics = pl.read_parquet(study / "report" / "metrics.parquet")
        recovered = metrics.filter(pl.col("metric") == "recovery_robust", pl.col("pattern") == "square")
        assert recovered.height > 0

    def test_is_missed_by_name_where_it_is_not_installed(self, study, installed):
        _, work = installed
        (listed, *_), said = aesjax(work, INSTALLED[0], f"aesjax video {study[0]}", code=2)
        assert "calm" not in listed
        assert re.search(r"it uses (task|schedule|pattern) '\w+', which", said)

    def test_an_edited_package_is_another_definition(self, study, installed, tmp_path):
        site, work = installed
        newer = shutil.copytree(site, tmp_path / "site")
        (newer / "mylab.py").write_text(FILES["mylab.py"].replace("gain=1.0", "gain=2.0"))
        _, said = aesjax(work, INSTALLED[1] + " --resume", site=newer, code=2)
        assert re.search(r"(task|schedule|pattern) '\w+' is not the one that the study was trained with", said)


@pytest.mark.slow
class TestAModuleInTheCurrentDirectory:
    def test_the_commands_shown_run_from_training_to_resuming(self, tmp_path):
        write(tmp_path, "mylab.py")
        train, *rest = NAMED
        aesjax(tmp_path, train)
        study = tmp_path / "runs" / "named"
        assert config(study)["definitions"]["pattern"]["mylab:SQUARE"]["object"] == "mylab:square"
        (study / "report" / "index.html").unlink()
        aesjax(tmp_path, *rest, train + " --resume")
        assert (study / "report" / "index.html").exists()
        _, said = aesjax(tmp_path, "aesjax video runs/named", code=2)
        assert "reading a study imports nothing" in said

    def test_a_proxy_feeds_the_schedules_here(self, tmp_path):
        write(tmp_path, "fast_proxies.py")
        aesjax(tmp_path, PROXY[0])
        rows = pl.read_parquet(tmp_path / "runs" / "proxy" / "curves.parquet")
        assert set(rows["method"]) == {f"SAC+{name}[proxy=fast_proxies:td_max]" for name in ("AES", "AES-R")}
        assert (rows.filter(pl.col("step") == 2000)["proxy"] > 0).all()

    @pytest.mark.learning
    def test_a_carrier_trains_and_learns(self, tmp_path):
        write(tmp_path, "gridq.py")
        aesjax(tmp_path, CARRIER[0])
        rows = pl.read_parquet(tmp_path / "runs" / "carrier" / "curves.parquet")
        last = rows.filter(pl.col("step") > 15_000, pl.col("method") == "GridQ")["return_mean"].mean()
        assert last > 0.8 * 47.8  # the optimum of the steady toy task
