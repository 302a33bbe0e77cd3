"""What is kept beside the code is what an audit reads, and names no place on the machine that trained it."""

import json
import re
import shutil
from pathlib import Path

import pytest

from experiments.cli.errors import Refusal
from experiments.keep_result import keep
from experiments.study import checksums, store
from experiments.study.results import open_results

KEPT = Path(__file__).resolve().parents[2] / "experiments" / "results"
PLACE = "/home/somebody/runs/methods"


def finished(folder, **config):
    """A study that was played from another one's record, with the files that are not kept."""
    shutil.copytree(KEPT / "toy-quick", folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    config |= json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "agents").mkdir()
    (folder / "agents" / "sac.npz").write_bytes(b"large")
    manifest["warm_start"] = {"from": PLACE, "sha256": "00ff"}
    manifest["command"] = f"aesjax run --out DIR --controls-from {PLACE} --steps 2400"
    checksums.write_manifest(folder, manifest)
    return folder


def test_folders_of_other_studies_are_kept_by_name(tmp_path, capsys):
    study = finished(tmp_path / "study", controls={"from": PLACE, "streams": "00ff"})
    assert keep(study, tmp_path / "kept") == 0
    results = open_results(tmp_path / "kept")
    config = json.loads(results.check(store.CONFIG))
    assert config["controls"] == {"from": "methods", "streams": "00ff"}
    assert results.manifest["command"] == "aesjax run --out DIR --controls-from methods --steps 2400"
    assert results.manifest["warm_start"] == {"from": "methods", "sha256": "00ff"}
    assert results.check(store.CURVES) == (study / store.CURVES).read_bytes()
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == sorted(
        [store.CONFIG, store.CURVES, "manifest.json", "manifest.sha256"]
    )
    assert results.manifest["command"] in capsys.readouterr().out


def test_a_command_may_be_told(tmp_path):
    keep(finished(tmp_path / "study"), tmp_path / "kept", command="python experiments/toy_table.py --out DIR")
    assert open_results(tmp_path / "kept").manifest["command"] == "python experiments/toy_table.py --out DIR"


def test_what_was_damaged_is_not_kept(tmp_path):
    study = finished(tmp_path / "study")
    curves = bytearray((study / store.CURVES).read_bytes())
    curves[100] ^= 1
    (study / store.CURVES).write_bytes(curves)
    with pytest.raises(Refusal, match=store.CURVES):
        keep(study, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_no_kept_result_names_a_place():
    for path in KEPT.glob("*/*.json"):
        assert not re.findall(r'(?<=["\s=,])/\w[^"\s]*', path.read_text()), path
