"""The README and the pages linked from it: code runs, commands run, names exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import polars as pl
import pytest

from experiments.cli import main
from tests.pages import ROOT, blocks, commands

README = ROOT / "README.md"
FIRST = ROOT / "docs" / "start.md"
OWN = ROOT / "docs" / "write_schedule.md"


def test_the_lines_for_an_agent_follow_its_td_errors():
    scope = {}
    exec(compile(blocks(README, "python")[0], "README.md", "exec"), scope)
    update = jax.jit(scope["schedule"].update)
    for size in (1.0, 4.0):
        state = scope["schedule"].init()
        for _ in range(500):
            state = update(scope["Signals"](td_error=jnp.full(256, size)), state)
        assert state.weight == pytest.approx(0.1 * size**0.5, rel=0.05)


#: Sizes after those of the pages; the last word of an option wins.
SMALL = "--steps 2000 --evaluations 20 --episodes 2 --seeds 1:2 --patterns steady,abrupt".split()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which the first study of the pages is trained, small."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*shlex.split(commands(FIRST)[1])[1:], *SMALL]) == 0
    return folder


@pytest.mark.slow
def test_the_commands_run_in_the_order_shown(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    (place / "runs" / "first" / "report" / "index.html").unlink()
    trained = commands(FIRST)[1]
    for line in dict.fromkeys([*commands(FIRST), *commands(README)]):
        assert line == trained or main(shlex.split(line)[1:]) == 0, line
    assert (place / "runs" / "first" / "report" / "index.html").stat().st_size > 10_000
    said = capsys.readouterr().out
    assert "report: runs/first/report/index.html" in said
    assert "calibration: runs/first/calibration.md" in said
    assert "video: runs/first/video/SAC-abrupt-1.gif" in said
    assert (place / "runs" / "first" / "video" / "SAC-abrupt-1.gif").stat().st_size > 10_000


@pytest.mark.slow
def test_a_schedule_of_ones_own_goes_from_the_page_to_a_comparison_with_its_controls(tmp_path, monkeypatch, registries):
    """The page's module, then its commands and its replay in their order, small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module, replay = blocks(OWN, "python")
    assert module.startswith("# mine.py\n")
    Path("mine.py").write_text(module)
    train, controls, report = (shlex.split(line)[1:] for line in commands(OWN))
    assert main([*train, *SMALL]) == 0
    scope = {}
    exec(compile(replay, "write_schedule.md", "exec"), scope)
    assert set(scope["weights"]["replayed"]) == {"SAC+BURST", "SAC+BURST[gain=3]", "SAC+AES-R", "SAC+AES"}
    assert Path("weights.png").stat().st_size > 10_000
    assert main([*controls, *SMALL]) == 0
    assert main(report) == 0
    del sys.modules["mine"]
    methods = set(pl.read_parquet("runs/both/report/metrics.parquet")["method"])
    assert {"SAC", "SAC+fixed", "SAC+BURST"} <= methods
    assert len([name for name in methods if "permuted" in name or "constant_at_mean" in name]) == 2


TARGET = re.compile(r'^(?:RUN )?make ([a-z-]+)|`make ([a-z-]+)`|"make", "([a-z-]+)"', flags=re.MULTILINE)


def targets():
    """Targets of `make` that pages and the image name."""
    pages = (ROOT / page for page in ("README.md", "docs/clusters.md", "Dockerfile"))
    return sorted({match[match.lastindex] for page in pages for match in TARGET.finditer(page.read_text())})


@pytest.mark.parametrize("target", targets())
def test_every_make_target_that_is_named_exists(target, tmp_path):
    words = ["make", "-n", "-C", ROOT, target, f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("target", ["test", "own"])
def test_make_leaves_the_environment_of_another_checkout_alone(tmp_path, target):
    gone = target == "own"  # of a checkout that is gone nothing is installed here, only the check runs
    other, place = tmp_path / "other checkout", tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    [packages] = place.glob("lib/python*/site-packages")
    (packages / "__editable__.aesjax.pth").write_text(f"{other}\n")
    if not gone:
        (other / "aesjax").mkdir(parents=True)
        (other / "aesjax" / "__init__.py").touch()
    before = sorted(place.rglob("*"))
    words = ["make", "-C", ROOT, target, f"VENV={place}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == gone
    assert (f"has the aesjax of {other} installed" in done.stderr) != gone
    assert sorted(place.rglob("*")) == before
