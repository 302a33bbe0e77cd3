"""`aesjax replay` on a finished study: recorded weights come back, impossible wishes are refused with the reason."""

import dataclasses
import json
import shutil

import numpy as np
import polars as pl
import pytest

from experiments.cli import main
from experiments.report import replay
from experiments.study import checksums
from experiments.study.folder import claim
from experiments.study.parser import parse, text_of
from experiments.study.rescore import load
from experiments.study.train import train
from tests.experiments.configs import config_of
from tests.refusals import refused

STEPS, EVALUATIONS = 3200, 50


METHODS = ["PPO+AES[lambda_max=2]", "PPO+AES[kappa=0.3,lambda_max=0.4]", "PPO+AES-R"]
METHODS += ["PPO+fixed+refresh+rate[refresh.threshold=1.05]"]
TRAINED_WITH = dict(zip(METHODS[:3], ("aes", "aes", "aes_r"), strict=True))
RESPONDING = "fixed:base=0.07+refresh+rate"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """PPO on a small network, which compiles fastest; the README's and the command line's tests replay SAC."""
    directory = tmp_path_factory.mktemp("replay") / "study"
    names = "aes:lambda_max=2,aes:kappa=0.3:lambda_max=0.4,aes_r,fixed+refresh:threshold=1.05+rate"
    config = config_of("ppo", names, patterns="abrupt", seeds=2, steps=STEPS)
    own = config.settings["ppo"]
    settings = {"ppo": own | {"config": own["config"] | {"rollout": 8, "hidden": (8,)}}}
    config = dataclasses.replace(config, evaluations=EVALUATIONS, episodes=1, settings=settings)
    train(claim(config, directory, resume=False))
    return directory


@pytest.fixture(scope="module")
def replayed(study):
    out = study.parent / "out"
    assert main(["replay", str(study), "--schedules", f"aes,aes_r,{RESPONDING}", "--out", str(out)]) == 0
    return out


@pytest.fixture
def copied(study, tmp_path):
    """A study that a test may damage."""
    return shutil.copytree(study, tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints"))


def at_evaluations(row):
    """(E,) the weights of one row of weights.parquet at the evaluations after step 0."""
    whole = np.concatenate([np.repeat(row["initial"], row["warmup_samples"]), row["weight"]])
    every = len(whole) // EVALUATIONS
    assert row["steps_per_sample"] * len(whole) == STEPS
    return whole[every - 1 :: every]


@pytest.mark.parametrize(("method", "own"), TRAINED_WITH.items())
def test_a_schedule_on_its_own_proxies_gives_the_weights_it_trained_with(study, replayed, method, own):
    """With the values that the run had of its own."""
    weights, curves = pl.read_parquet(replayed / "weights.parquet"), pl.read_parquet(study / "curves.parquet")
    rows = weights.filter(method=method, replayed=own)
    assert rows.height == 2
    for row in rows.iter_rows(named=True):
        recorded = curves.filter(method=method, seed=row["seed"]).sort("step")["entropy_weight"].to_numpy()[1:]
        assert np.unique(recorded).size > 10
        np.testing.assert_allclose(at_evaluations(row), recorded, atol=1e-5)


def test_what_the_schedule_gives_wins_over_the_runs_own_values(study, tmp_path):
    words = ["--schedules", "aes:kappa=50", "--methods", ",".join(METHODS[:2]), "--out", str(tmp_path / "other")]
    assert main(["replay", str(study), *words]) == 0
    other = pl.read_parquet(tmp_path / "other" / "weights.parquet")
    assert other["method"].unique(maintain_order=True).to_list() == METHODS[:2]
    assert [max(weight) for weight in other["weight"]] == [2.0, 2.0, np.float32(0.4), np.float32(0.4)]  # their bounds


def test_the_folder_holds_weights_summary_and_a_figure_per_carrier_and_pattern(replayed):
    names = ["index.html", "summary.md", "weights.parquet", "weights_ppo_abrupt.png", "weights_ppo_abrupt.svg"]
    assert sorted(p.name for p in replayed.iterdir()) == names
    assert not [p for p in replayed.parent.iterdir() if p.name.startswith(".")]
    frame = pl.read_parquet(replayed / "weights.parquet")
    assert frame.height == 4 * 2 * 3  # methods, seeds, schedules
    assert frame.drop("refresh", "refresh_actor", "rate").null_count().sum_horizontal().item() == 0
    assert frame["rate"].null_count() == 4 * 2 * 2


def test_levers_replayed_on_the_runs_own_proxies_are_those_it_trained_with(study, replayed):
    """Refreshes are counted where they fall due; training does them at the end of the rollout."""
    weights, curves = pl.read_parquet(replayed / "weights.parquet"), pl.read_parquet(study / "curves.parquet")
    for row in weights.filter(method=METHODS[3], replayed=RESPONDING).iter_rows(named=True):
        trained = curves.filter(method=METHODS[3], seed=row["seed"]).sort("step")[1:]
        every = len(row["rate"]) // EVALUATIONS
        in_force = np.r_[1.0, row["rate"][:-1]].reshape(EVALUATIONS, every).mean(1)
        np.testing.assert_allclose(in_force, trained["rate_factor"].to_numpy(), rtol=1e-4)
        assert np.sum(np.array(row["refresh"]) > 0) == trained["refreshes"].sum() >= 1
        assert set(row["weight"]) == {np.float32(0.07)}


def test_nothing_is_overwritten(study, replayed, capsys):
    before = (replayed / "weights.parquet").read_bytes()
    assert "is not an empty folder" in refused(capsys, "replay", study, "--schedules", "fixed", "--out", replayed)
    assert "is not an empty folder" in refused(capsys, "replay", study, "--schedules", "fixed", "--out", study)
    assert (replayed / "weights.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--schedules", "aess"], ["unknown schedule 'aess'", "did you mean 'aes'?"]),
        (["--schedules", "aes:kapa=1"], ["no option 'kapa'", "kappa"]),
        (["--schedules", "aes:kappa=-1"], ["kappa", "-1"]),
        (["--schedules", "fixed,auto"], ["'auto'", "carrier 'ppo'", "log_prob", "not recorded"]),
        (["--schedules", "oracle"], ["'oracle'", "true drift"]),
        (["--schedules", "aes:proxy=td_mean"], ["td_mean/update", "recorded: td_quantile/fresh, td_quantile/update"]),
        (["--schedules", "aes:q=0.5"], ["quantile was measured while training", "q cannot be varied"]),
        (["--schedules", "aes:coupling=1"], ["coupling", "takes training"]),
        (["--schedules", "fixed:signal=oracle+rate"], ["of its signal 'oracle'", "true drift"]),
        (["--schedules", "fixed+window"], ["adaptation 'window' cannot be used with carrier 'ppo'", "no replay"]),
        (["--schedules", "permuted:of=aes"], ["control 'permuted' plays a record"]),
        (["--schedules", "aes", "--methods", "PPO+AESR"], ["unknown method 'PPO+AESR'", "'PPO+AES-R'?"]),
    ],
)
def test_impossible_wishes_are_refused_with_the_reason(study, capsys, words, parts):
    text = refused(capsys, "replay", study, *words)
    for part in parts:
        assert part in text
    assert not (study / "replay").exists()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.json", None, "holds no study"),
        ("manifest.json", None, "is not finished"),
        ("streams.parquet", None, "has no streams.parquet"),
        ("curves.parquet", None, "does not exist"),
        ("config.json", b'{"format": 1}', "config.json was changed or damaged"),
        ("manifest.json", b'{"parts": {"ppo": {}}}', "manifest.json was changed or damaged"),
        ("streams.parquet", b"PAR1", "streams.parquet was changed or damaged"),
    ],
)
def test_missing_and_broken_files_are_named_in_one_sentence(copied, capsys, name, content, says):
    (copied / name).unlink() if content is None else (copied / name).write_bytes(content)
    assert says in refused(capsys, "replay", copied, "--schedules", "fixed")
    assert not (copied / "replay").exists()


def test_a_diverged_run_is_replayed_but_counts_in_no_mean(copied):
    manifest = json.loads((copied / "manifest.json").read_text())
    for entry in manifest["runs"]:
        if entry["method"] == "PPO+AES-R" and entry["seed"] == 2:
            entry["status"] = "diverged"
    checksums.write_manifest(copied, manifest)
    assert main(["replay", str(copied), "--schedules", "fixed", "--methods", "PPO+AES-R"]) == 0
    assert pl.read_parquet(copied / "replay" / "weights.parquet").height == 2
    lines = (copied / "replay" / "summary.md").read_text().splitlines()
    assert [line.split("|")[4].strip() for line in lines if line.startswith("| abrupt")] == ["1", "1"]


def test_all_means_everything_that_can_be_replayed(study):
    recorded = load(study, "PPO+AES-R")
    every = parse({"carriers": ["ppo"], "schedules": "all"})["methods"]
    names = {text_of(request.method) for request in replay._requests(recorded, "ppo", every, lenient=True)}
    assert names == {"fixed", "linear", "aes", "aes_prior", "aes_d", "aes_m", "aes_r", "aes_c"}
