"""What the README and the pages it leads to show works: code runs, commands run, names exist."""

import json
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
from experiments.paper import audit
from tests.pages import ROOT, blocks, commands, tables

README = ROOT / "README.md"
FIRST = ROOT / "docs" / "start.md"
OWN = ROOT / "docs" / "own_schedule.md"
TEXT = README.read_text()


def test_the_lines_for_an_agent_follow_its_residuals():
    scope = {}
    exec(compile(blocks(README, "python")[1], "README.md", "exec"), scope)
    update, state, ring = scope["schedule"].update, scope["state"], scope["fresh"]
    update, fill = jax.jit(update), jax.jit(scope["ring"].update)
    for size, above in ((1.0, 1.0), (4.0, 1.2)):
        for _ in range(300):
            ring = fill(ring, jnp.full((2, 4), size))
            state = update(scope["Signals"](td_error=jnp.ones(512), fresh_td_error=ring.td_error), state)
        assert above <= state.weight / scope["weight"] < above + 1.0


@pytest.mark.slow
def test_the_study_in_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(compile(blocks(README, "python")[0], "README.md", "exec"), scope)
    assert scope["results"].methods[:2] == ["SAC", "SAC+AES"]


def test_the_theory_example_repairs_the_start(capsys):
    exec(compile(blocks(ROOT / "docs" / "theory.md", "python")[0], "theory.md", "exec"), {})
    paper, prior, maximal = (float(line.split()[1]) for line in capsys.readouterr().out.splitlines())
    assert maximal < prior < paper


def test_its_commands_are_those_of_the_first_study():
    shown = commands(README)
    assert [line for line in commands(FIRST) if line in shown] == shown


@pytest.mark.slow
def test_the_commands_run_in_the_order_shown(tmp_path, monkeypatch, capsys):
    """At a smaller size: the last word of an option wins."""
    monkeypatch.chdir(tmp_path)
    shown = ("list", "run", "report", "verify", "replay", "video", "calibrate")
    assert [shlex.split(line)[:2] for line in commands(FIRST)] == [["aesjax", word] for word in shown]
    for line in commands(FIRST):
        words = shlex.split(line)[1:]
        smaller = ["--steps", "2000", "--seeds", "1:2", "--patterns", "steady,abrupt"] if words[0] == "run" else []
        if words[0] == "report":
            (tmp_path / "runs" / "first" / "report" / "index.html").unlink()
        assert main([*words, *smaller]) == 0, line
    assert (tmp_path / "runs" / "first" / "report" / "index.html").stat().st_size > 10_000
    said = capsys.readouterr().out
    assert "report: runs/first/report/index.html" in said
    assert "replay: runs/first/replay/summary.md" in said
    assert "calibration: runs/first/calibration.md" in said
    assert "video: runs/first/video/SAC-abrupt-1.gif" in said
    assert (tmp_path / "runs" / "first" / "video" / "SAC-abrupt-1.gif").stat().st_size > 10_000
    table = [[cell.strip() for cell in line.split("|")] for line in said.splitlines() if line.startswith("| abrupt")]
    cells = {(method, name): numbers for _, _, method, name, *numbers in table}
    assert cells["SAC+AES", "trained"] == cells["SAC+AES", "aes"]  # its own proxies give its own weights
    assert cells["SAC", "trained"] != cells["SAC", "aes"]


@pytest.mark.slow
def test_a_schedule_of_ones_own_goes_from_the_page_to_a_comparison_with_its_controls(
    tmp_path, monkeypatch, capsys, registries
):
    """The page's module and its commands, small, after the study that `make run` would have trained."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    small = ["--steps", "2000", "--seeds", "1:2", "--patterns", "steady,abrupt"]
    assert main(["run", "--preset", "quick", "--out", "runs/first", *small]) == 0
    (module,) = blocks(OWN, "python")
    assert module.startswith("# mine.py\n")
    (tmp_path / "mine.py").write_text(module)
    for line in commands(OWN):
        words = shlex.split(line)[1:]
        assert main([*words, *(small if words[0] == "run" else [])]) == 0, line
    methods = set(pl.read_parquet("runs/both/report/metrics.parquet")["method"])
    assert {"SAC", "SAC+fixed", "SAC+BURST"} <= methods
    assert len([name for name in methods if "permuted" in name or "constant_at_mean" in name]) == 2
    assert "mine:burst:gain=3" in capsys.readouterr().out


@pytest.mark.parametrize(
    "study", re.findall(r"`((?:toy_table|ablation|sensitivity)\w*)`", (ROOT / "docs" / "carriers.md").read_text())
)
def test_every_study_that_the_pages_name_exists(study):
    from experiments.study.named import STUDIES

    assert study in STUDIES


@pytest.mark.slow
def test_the_stored_audit_is_that_of_the_stored_results(monkeypatch):
    monkeypatch.chdir(ROOT)
    record = json.loads((ROOT / "experiments" / "results" / "audit.json").read_text())
    again = audit.record(audit.audit([Path("experiments/results")]))
    assert again["sentence"] == record["sentence"]
    for name in ("claims", "questions"):
        ours, theirs = ([(c["key"], c["verdict"], c["why"]) for c in data[name]] for data in (again, record))
        assert ours == theirs


def signs(name):
    """Significant differences without drift and under drift: (better, worse) of each."""
    values = {"+": [0, 0], "-": [0, 0]}
    for line in tables.TABLES[name]().splitlines()[2:]:
        for at, cell in enumerate(line.strip("| ").split(" | ")[1:]):
            if cell.endswith("*"):
                values[cell[0]][at > 0] += 1
    return values


def test_its_sentences_about_results_follow_from_its_tables():
    assert signs("aes") == {"+": [0, 1], "-": [4, 9]}
    assert "worse than all four carriers without drift, better in one setting with drift and worse in nine" in TEXT
    assert signs("robots")["+"] == signs("robot-adaptations")["+"] == [0, 0]
    sizes = [len({c.replace("+fixed", "", 1) for c in tables.constants(carrier)}) for carrier in tables.CARRIERS]
    assert sizes == [4, 6, 2, 1]
    assert "SAC four values, PPO six, SQL two, MEow its default alone" in TEXT.replace("\n", " ")


def test_every_make_target_it_names_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", TEXT, flags=re.MULTILINE)
    assert len(targets) >= 4
    for target in map("".join, targets):
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize("target", ["docs", "test"])
@pytest.mark.parametrize("gone", [False, True], ids=["another checkout", "a checkout that is gone"])
def test_make_leaves_the_environment_of_another_checkout_alone(tmp_path, target, gone):
    other, place = tmp_path / "other checkout", tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    [packages] = place.glob("lib/python*/site-packages")
    (packages / "__editable__.aesjax.pth").write_text(f"{other}\n")
    if not gone:
        (other / "aesjax").mkdir(parents=True)
        (other / "aesjax" / "__init__.py").touch()
    before = sorted(place.rglob("*"))
    # Of a checkout that is gone nothing is installed here, only the check runs.
    words = ["make", "-C", ROOT, "own" if gone else target, f"VENV={place}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == gone
    assert (f"has the aesjax of {other} installed" in done.stderr) != gone
    assert sorted(place.rglob("*")) == before
