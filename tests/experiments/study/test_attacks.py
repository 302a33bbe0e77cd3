"""Crafted and damaged folders of studies: no code of theirs runs, no file outside is touched, one sentence refuses."""

import hashlib
import json
import os
from pathlib import Path

import polars as pl
import pytest

from experiments.cli import main
from experiments.study import checksums, store
from tests.experiments.configs import config_of
from tests.experiments.measure.synthetic import make_curves
from tests.experiments.report.pages import configure, reseal, save
from tests.refusals import refused

EVIL = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from aesjax import fixed
def x(*, base):
    return fixed.make(base)
"""
PLUGINS = {"schedule": {"evil:x": {"object": "evil:x", "package": None, "version": None}}}
ENTRY_POINT = {"schedule": {"x": {"object": "evil:x", "package": "evil", "version": "1"}}}
ATTACKS = {
    "package of the folder": {"schedules": ["x"], "plugins": ENTRY_POINT},
    "plug-in": {"schedules": ["evil:x"], "plugins": PLUGINS},
    "bare name": {"schedules": ["evil:x"]},
    "simulator": {"task": "bridge:evil:x"},
    "another kind": {"plugins": {"task": {"toy_evil": {"object": "evil:x", "package": "numpy", "version": "1"}}}},
}
COMMANDS = {
    "verify": "verify .",
    "status": "status .",
    "join": "join .",
    "report": "report .",
    "calibrate": "calibrate .",
    "audit": "audit .",
    "export": "export . --out out",
    "video": "video .",
    "resume": "run --resume --out . --no-report",
    "submit": "submit --resume --out .",
}


def crafted(folder, attack):
    """A finished study of which `attack` changes the configuration, with its plan and a module beside it."""
    config = config_of(steps=400).to_json() | {"steps": 400, "together": 8} | attack
    curves = make_curves(("SAC",), ("steady",), range(1, 2), every=20_000)
    curves = curves.with_columns(pl.col("step") * config["steps"] // curves["step"].max())
    config["evaluations"] = curves["step"].n_unique() - 1
    save(folder, curves)
    (folder / "config.json").write_text(json.dumps(config))
    lists = pl.lit([0.5, 0.25]).cast(pl.List(pl.Float32))
    streams = curves.filter(step=0).select(
        "family", "task", "method", "pattern", "seed", "carrier", lists.alias("a/update")
    )
    streams.write_parquet(folder / "streams.parquet")
    reseal(folder)
    (folder / "evil.py").write_text(EVIL)
    (folder / "evil-1.dist-info").mkdir()
    (folder / "evil-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    (folder / "evil-1.dist-info" / "entry_points.txt").write_text("[aesjax.schedules]\nx = evil:x\n")
    return folder


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_the_code_of_a_study(command, attack, tmp_path, monkeypatch, registries):
    folder = crafted(tmp_path / "study", ATTACKS[attack])
    if command in ("status", "join", "submit"):
        plan = {"format": 1, "config": json.loads((folder / "config.json").read_text()), "parts": 1, "words": []}
        plan |= {"report": False, "cluster": {"name": "local"}, "jobs": {}}
        (folder / "plan.json").write_text(json.dumps(plan))
    if command in ("resume", "status", "join"):
        for name in ("manifest.json", "manifest.sha256", "curves.parquet", "streams.parquet"):
            (folder / name).unlink()
    monkeypatch.chdir(folder)
    code = main(COMMANDS[command].split())
    assert code in (0, 2)
    assert not (folder / "ran").exists()


def test_a_named_plug_in_is_imported_if_it_is_the_recorded_file(tmp_path, monkeypatch, registries, capsys):
    folder = crafted(tmp_path / "study", ATTACKS["plug-in"])
    monkeypatch.chdir(folder)
    words = ("--plugins", "evil", "calibrate", ".")
    origin = PLUGINS["schedule"]["evil:x"]
    configure(folder, plugins={"schedule": {"evil:x": origin | {"sha256": "0" * 64}}})
    assert "--plugins evil" in refused(capsys, *words[2:])
    assert "was edited since the study began" in refused(capsys, *words)
    assert not Path("ran").exists()
    digest = hashlib.sha256(EVIL.encode()).hexdigest()
    configure(folder, plugins={"schedule": {"evil:x": origin | {"sha256": digest}}})
    main(list(words))
    assert Path("ran").exists()


@pytest.mark.parametrize("name", ["curves.parquet", "agents", ".lock", "report", ".calibration.json.partial"])
def test_a_folder_with_links_is_refused(name, tmp_path, capsys):
    folder, outside = crafted(tmp_path / "study", {}), tmp_path / "outside"
    if (folder / name).exists():
        (folder / name).rename(outside)
    else:
        outside.write_text("precious")
    before = outside.read_bytes()
    (folder / name).symlink_to(outside)
    for command in ("report", "verify", "calibrate"):
        assert "is a link" in refused(capsys, command, folder)
    assert outside.read_bytes() == before


def test_what_lies_in_place_of_a_partial_file_is_not_written_through(tmp_path):
    outside, target = tmp_path / "outside", tmp_path / "file"
    outside.write_text("precious")
    (tmp_path / ".file.partial").symlink_to(outside)
    store.write_text(target, "text")
    assert (outside.read_text(), target.read_text(), target.is_symlink()) == ("precious", "text", False)


@pytest.mark.parametrize("words", [("--json",), ("--out",)])
def test_a_device_is_written_to_and_stays(words, tmp_path, capsys):
    folder, pipe = crafted(tmp_path / "study", {}), tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert main(["audit", str(folder), *words, str(pipe)]) == 0
    assert pipe.is_fifo()
    assert os.read(reader, 100)
    os.close(reader)
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    refused(capsys, "audit", folder, *words, full)
    assert full.is_symlink()
    assert main(["audit", str(folder), *words, "-"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("{" if words == ("--json",) else "<!")


def edited(name, change):
    """A crafted folder in which `change` was made to the rows of one file, and every checksum made again."""

    def make(folder):
        path = folder / name
        change(pl.read_parquet(path)).write_parquet(path)
        manifest = json.loads((folder / "manifest.json").read_text())
        checksums.write_manifest(folder, manifest)

    return make


def configured(**changes):
    return lambda folder: configure(folder, **changes)


CURVES, STREAMS = "curves.parquet", "streams.parquet"
DAMAGED = {
    "a missing run": lambda folder: checksums.write_manifest(
        folder,
        (m := json.loads((folder / "manifest.json").read_text())) | {"runs": [*m["runs"], m["runs"][0] | {"seed": 2}]},
    ),
    "a run listed twice": lambda folder: checksums.write_manifest(
        folder, (m := json.loads((folder / "manifest.json").read_text())) | {"runs": [*m["runs"], *m["runs"]]}
    ),
    "rows twice": edited(CURVES, lambda rows: pl.concat([rows, rows])),
    "fewer evaluations": edited(CURVES, lambda rows: rows.filter(pl.col("step") != rows["step"][1])),
    "a longer horizon": configured(steps=800),
    "other seeds": configured(seeds=[7]),
    "other patterns": configured(patterns=["abrupt"]),
    "a method twice": configured(schedules=["baseline", "baseline"]),
    "a carrier's method twice": configured(schedules={"sac": ["aes", "aes"]}),
    "a carrier twice": configured(carriers=["sac", "sac"]),
    "no rows": edited(CURVES, lambda rows: rows.clear()),
    "text for numbers": edited(CURVES, lambda rows: rows.with_columns(entropy_weight=pl.lit("x"))),
    "lists for numbers": edited(CURVES, lambda rows: rows.with_columns(train_return=pl.lit([1.0]))),
    "numbers for text": edited(CURVES, lambda rows: rows.with_columns(variant=pl.lit(1))),
    "no returns": edited(CURVES, lambda rows: rows.with_columns(return_mean=pl.lit(None, pl.Float64))),
    "a row without a seed": edited(CURVES, lambda rows: rows.with_columns(seed=pl.lit(None, pl.Int64))),
}
DAMAGED_STREAMS = {
    "no rows": edited(STREAMS, lambda rows: rows.clear()),
    "empty lists": edited(
        STREAMS, lambda rows: rows.with_columns(pl.lit([]).cast(pl.List(pl.Float32)).alias("a/update"))
    ),
    "text": edited(STREAMS, lambda rows: rows.with_columns(pl.lit("x").alias("a/update"))),
    "lists of text": edited(STREAMS, lambda rows: rows.with_columns(pl.lit(["x"]).alias("a/update"))),
    "rows twice": edited(STREAMS, lambda rows: pl.concat([rows, rows])),
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_rows_that_contradict_the_manifest_are_refused_everywhere(fault, tmp_path, capsys):
    folder = crafted(tmp_path / "study", {})
    for command in ("verify", "report", "audit"):
        assert main([command, str(folder)]) == 0, capsys.readouterr().err
    capsys.readouterr()
    DAMAGED[fault](folder)
    for command in ("verify", "report", "audit"):
        refused(capsys, command, folder)


@pytest.mark.parametrize("fault", DAMAGED_STREAMS)
def test_crafted_streams_are_refused(fault, tmp_path, capsys):
    folder = crafted(tmp_path / "study", {})
    DAMAGED_STREAMS[fault](folder)
    for words in (("verify",), ("calibrate",)):
        refused(capsys, *words, folder)


def test_enormous_returns_are_reported(tmp_path):
    folder = crafted(tmp_path / "study", {})
    edited(CURVES, lambda rows: rows.with_columns(return_mean=pl.col("return_mean") * 1e30))(folder)
    assert main(["report", str(folder)]) == 0


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "manifest.sha256", "curves.parquet"])
def test_a_pipe_in_place_of_a_file_does_not_hang(name, tmp_path, capsys):
    folder = crafted(tmp_path / "study", {})
    (folder / name).unlink()
    os.mkfifo(folder / name)
    for command in ("report", "verify"):
        refused(capsys, command, folder)


def test_text_of_a_study_stays_text_in_the_tables(tmp_path):
    folder = crafted(tmp_path / "study", {})
    configure(folder, preset="<script>[x](http://evil)\n# heading")
    assert main(["report", str(folder)]) == 0
    text = (folder / "report" / "tables.md").read_text()
    assert "\\<script>[x]\\(http://evil) # heading" in text


@pytest.mark.parametrize("words", [("--partition", "a\n#SBATCH --uid=0"), ("--mem", "1G\nx"), ("--sbatch", "qos=a\nb")])
def test_no_option_ends_a_line_of_the_job_script(words, tmp_path, capsys):
    given = ("submit", "--cluster", "slurm", "--parts", "1", "--out", tmp_path / "out", *words)
    assert "must be one line" in refused(capsys, *given)
    assert not (tmp_path / "out").exists()
