"""What the README shows works: its code runs, its commands run, its links lead somewhere."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aesjax.audit import output
from experiments.cli import main

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


COMMANDS = [line for block in blocks("bash") for line in block.strip().splitlines()]


def test_the_plug_in_example_raises_the_weight_when_the_best_arm_moves(capsys):
    scope = {}
    exec(compile(blocks("python")[0], "README.md", "exec"), scope)
    weights = scope["weights"]
    assert weights.shape == (1000,)
    assert weights[499] < weights[100]  # calm: the mean residual falls
    assert weights[600] > weights[499]  # the change is felt
    assert len(capsys.readouterr().out.split()) == 3


def test_the_theory_example_repairs_the_start(capsys):
    exec(compile(blocks("python")[1], "README.md", "exec"), {})
    paper, prior, maximal = (float(line.split()[1]) for line in capsys.readouterr().out.splitlines())
    assert maximal < prior < paper


@pytest.mark.slow
def test_the_commands_run_in_the_order_shown(tmp_path, monkeypatch, capsys):
    """At a smaller size: the last word of an option wins."""
    monkeypatch.chdir(tmp_path)
    shown = ("list", "run", "report", "verify", "replay", "video", "calibrate")
    assert [shlex.split(line)[:2] for line in COMMANDS] == [["aesjax", word] for word in shown]
    for line in COMMANDS:
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


def test_the_console_script_and_the_experiment_script_offer_the_same_options():
    console = Path(sys.executable).with_name("aesjax")
    texts = []
    scripts = ("toy_sac.py",)
    for command in ([str(console), "run"], *([sys.executable, str(ROOT / "experiments" / name)] for name in scripts)):
        result = subprocess.run([*command, "--help"], capture_output=True, text=True, cwd=ROOT)
        assert result.returncode == 0, result.stderr
        texts.append(result.stdout)
    for option in ("--out", "--schedules", "--sweep", "--resume", "--devices"):
        assert all(option in text for text in texts)


@pytest.mark.parametrize("study", re.findall(r"`((?:toy_table|ablation|sensitivity)\w*)`", TEXT))
def test_every_study_it_names_exists(study):
    from experiments.study.named import STUDIES

    assert study in STUDIES


def test_what_reproduces_is_what_the_audit_found(monkeypatch):
    """The sentence comes from the record that lies beside the results, and the record from the results."""
    monkeypatch.chdir(ROOT)
    told = re.findall(r"<!-- audit -->\n(.*?)\n<!-- /audit -->", TEXT, flags=re.DOTALL)
    record = json.loads((ROOT / "experiments" / "results" / "audit.json").read_text())
    assert told == [record["sentence"]]
    found = output.record(output.audit([Path("experiments/results")]))
    assert found["sentence"] == record["sentence"]
    for name in ("claims", "questions"):
        ours, theirs = ([(c["key"], c["verdict"], c["why"]) for c in data[name]] for data in (found, record))
        assert ours == theirs


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", TEXT))
def test_links_lead_somewhere(link):
    assert link.startswith("https://") or (ROOT / link).exists()


def test_every_make_target_it_names_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", TEXT, flags=re.MULTILINE)
    assert len(targets) >= 4
    for target in map("".join, targets):
        assert f"\n{target}:" in makefile


@pytest.mark.slow
def test_the_notebook_runs(monkeypatch, tmp_path):
    import json

    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "experiments" / "notebooks" / "explore.ipynb").read_text())
    scope = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "explore.ipynb", "exec"), scope)
    assert scope["curves"].height > 0
