"""What the README and the pages it leads to show works: code runs, commands run, names exist."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from experiments.cli import main
from experiments.paper import audit
from tests.pages import ROOT, blocks, commands

README = ROOT / "README.md"
FIRST = ROOT / "docs" / "first_study.md"
OWN = ROOT / "docs" / "own_schedule.md"
TEXT = README.read_text()


def test_the_plug_in_example_raises_the_weight_when_the_best_arm_moves(capsys):
    scope = {}
    exec(compile(blocks(README, "python")[0], "README.md", "exec"), scope)
    weights = scope["weights"]
    assert weights.shape == (1000,)
    assert weights[499] < weights[100]  # calm: the mean residual falls
    assert weights[600] > weights[499]  # the change is felt
    assert len(capsys.readouterr().out.split()) == 3


@pytest.mark.slow
def test_the_study_in_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in blocks(README, "python")[1:]:
        exec(compile(block, "README.md", "exec"), scope)
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
def test_what_reproduces_is_what_the_audit_found(monkeypatch):
    """The sentence comes from the record that lies beside the results, and the record from the results."""
    monkeypatch.chdir(ROOT)
    told = re.findall(r"<!-- audit -->\n(.*?)\n<!-- /audit -->", TEXT, flags=re.DOTALL)
    record = json.loads((ROOT / "experiments" / "results" / "audit.json").read_text())
    assert told == [record["sentence"]]
    found = audit.record(audit.audit([Path("experiments/results")]))
    assert found["sentence"] == record["sentence"]
    for name in ("claims", "questions"):
        ours, theirs = ([(c["key"], c["verdict"], c["why"]) for c in data[name]] for data in (found, record))
        assert ours == theirs


PATTERNS = ("steady", "abrupt", "linear", "periodic", "mixed")


def table(name):
    """Rows of a table of the README: its first cell, and the others."""
    body = TEXT.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()[2:]]
    return [(row[0], row[1:]) for row in rows]


def test_its_table_of_aes_is_the_record():
    record = (ROOT / "benchmarks" / "toy_table.md").read_text()
    for carrier, cells in table("aes"):
        for pattern, cell in zip(PATTERNS, cells, strict=True):
            start = rf"safe nAUC \(higher is better\) · {pattern} \| {carrier}\+AES \| {carrier} \| 5/5 \| [▼▲ ]*"
            difference, below, p = re.search(start + r"(-?[\d.]+) [^\n]* \| (< )?([\d.]+) \|\n", record).groups()
            assert cell == f"{float(difference):+.2f}" + ("*" if below or float(p) < 0.05 else "")


def test_its_table_of_recent_data_is_the_record():
    named = {"fixed+recent": "fixed+recent"}
    named["aes_c+recent+refresh:threshold=3"] = "AES-C+refresh+recent[refresh.threshold=3]"
    for label, cells in table("recent"):
        carrier, method = label.replace("`", "").split()
        record = json.loads((ROOT / "benchmarks" / f"responses_toy_{carrier.lower()}.json").read_text())
        rows = record["contrasts"]["hindsight"]
        for pattern, cell in zip(PATTERNS, cells, strict=True):
            [own] = [r for r in rows if (r["first"], r["pattern"]) == (f"{carrier}+{named[method]}", pattern)]
            assert cell == f"{own['difference'][0]:+.1f}" + ("*" if own["p_holm"] < 0.05 else "")


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
