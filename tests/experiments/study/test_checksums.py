"""Checksums of a finished study: every flipped bit is found, by every reader."""

import json
import subprocess

import pytest

from experiments.cli import main
from experiments.study import store
from experiments.study.results import open_results
from tests.experiments.measure.synthetic import make_curves
from tests.experiments.report.pages import reseal, save


@pytest.fixture
def study(tmp_path):
    folder = save(tmp_path / "study", make_curves(("SAC", "SAC+AES"), ("steady", "abrupt"), [1, 2], every=20_000))
    (folder / "agents" / "sac").mkdir(parents=True)
    (folder / "agents" / "sac" / "state").write_bytes(b"weights")
    reseal(folder)
    return folder


def test_every_flipped_bit_of_manifest_and_configuration_is_refused(study):
    for name in ("manifest.json", "config.json", "manifest.sha256"):
        whole = (study / name).read_bytes()
        for at in range(0, 8 * len(whole), 7):
            flipped = bytearray(whole)
            flipped[at // 8] ^= 1 << at % 8
            (study / name).write_bytes(flipped)
            with pytest.raises(ValueError, match="was changed or damaged") as caught:
                open_results(study)
            assert "\n" not in str(caught.value)
        (study / name).write_bytes(whole)
    open_results(study)


def test_flipped_bits_of_curves_and_agents_are_refused(study, capsys):
    for name, place in (("curves.parquet", -200), ("agents/sac/state", 2)):
        whole = (study / name).read_bytes()
        flipped = bytearray(whole)
        flipped[place] ^= 4
        (study / name).write_bytes(flipped)
        assert main(["verify", str(study)]) == 2
        assert f"{name} was changed or damaged" in capsys.readouterr().err
        (study / name).write_bytes(whole)
    (study / "curves.parquet").write_bytes(bytes(8))
    with pytest.raises(ValueError, match=r"curves.parquet was changed or damaged"):
        open_results(study).rows(store.CURVES)


def test_files_that_are_missing_or_too_many_are_told(study, capsys):
    (study / "agents" / "sac" / "state").rename(study / "agents" / "sac" / "other")
    assert main(["verify", str(study)]) == 2
    text = capsys.readouterr().err
    assert "agents/sac/other is not one of the study's files; agents/sac/state is missing" in text


def test_the_sum_is_one_that_other_tools_check(study):
    result = subprocess.run(["sha256sum", "-c", "manifest.sha256"], cwd=study, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "manifest.json: OK\n")


def test_curves_of_another_study_are_refused(study):
    make_curves(("SAC", "SAC+AES"), ("steady", "abrupt"), [1, 9], every=20_000).write_parquet(study / "curves.parquet")
    reseal(study)
    with pytest.raises(ValueError, match=r"a run that is not in manifest.json: .* seed 9"):
        open_results(study).rows(store.CURVES)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("segments", "five", "'segments' must be a whole number from 1 to 10000; got \"five\""),
        ("segments", 1e9, "'segments' must be"),
        ("options", 0.5, "'options' must be an object of values or of lists of text; got 0.5"),
        ("settings", {"sac": {"num_envs": {}}}, "'settings.sac.num_envs' must be a positive whole number; got {}"),
        ("warm_start", [1], "'warm_start' must be an object"),
        ("evaluations", 0, "'evaluations' must be a positive whole number; got 0"),
        ("evaluations", -5, "'evaluations' must be"),
        ("steps", True, "'steps' must be a positive whole number; got true"),
        ("steps", {}, "'steps' must be"),
        ("settings", 0.5, "'settings' must be an object of objects; got 0.5"),
    ],
)
def test_a_configuration_of_wrong_kinds_is_refused(study, name, value, says):
    path = study / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    reseal(study)
    with pytest.raises(ValueError) as caught:
        open_results(study)
    assert says in str(caught.value)


def test_a_manifest_with_which_no_replay_can_count_is_refused(study):
    path = study / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"parts": {"sac": {"updates": []}}}))
    reseal(study)
    with pytest.raises(ValueError, match=r"'parts.sac.updates' must be a whole number; got \[\]"):
        open_results(study)


def test_what_is_nested_a_hundred_thousand_deep_is_refused(study):
    (study / "config.json").write_text("[" * 100_000 + "]" * 100_000)
    reseal(study)
    with pytest.raises(ValueError, match="nested too deep"):
        open_results(study)
