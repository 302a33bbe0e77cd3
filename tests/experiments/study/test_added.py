"""Runs added to a finished study: trained apart, joined to the study that has all of them, safe against kills."""

import dataclasses
import json
import os
import shutil

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from experiments.study import folder, parts, store
from experiments.study.checkpoint import load_agent
from experiments.study.folder import claim, missing, open_study
from experiments.study.prepare import prepare
from experiments.study.process import numerics
from experiments.study.program import Plan
from experiments.study.train import Refused, train
from tests.experiments.configs import config_of, small_ppo

FILES = (store.CONFIG, store.CURVES, store.STREAMS)


def config(seeds, **options):
    return small_ppo("baseline,aes", steps=3200, seeds=seeds, patterns="steady,abrupt", **options)


def trained(config, out):
    """Train a study, or the rest of it, into a folder."""
    added = missing(config, out)
    plan = Plan(added or config)
    prepared = prepare(plan)
    claimed = claim(config, out, resume=(out / store.CONFIG).exists(), added=added)
    train(plan, claimed, prepared, quiet=True, facts={"command": "aesjax run"})
    return out


def files_of(place):
    return {path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished study of two seeds."""
    return trained(config("1,3"), tmp_path_factory.mktemp("finished") / "study")


@pytest.fixture(scope="module")
def unjoined(finished, tmp_path_factory):
    """The study with the trained runs of one more seed, ended before the join."""
    out = shutil.copytree(finished, tmp_path_factory.mktemp("unjoined") / "study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.study.train.add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(config("1:3"), out)
    return out


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_study_with_an_added_seed_is_the_one_that_had_it_from_the_start(finished, unjoined, tmp_path):
    """Up to rounding, because the batches of runs have other widths; the runs of before are not touched."""
    out = trained(config("1:3"), shutil.copytree(unjoined, tmp_path / "added"))
    whole = trained(config("1:3"), tmp_path / "whole")
    for name in (store.CURVES, store.STREAMS):
        before, ours, theirs = (pl.read_parquet(place / name) for place in (finished, out, whole))
        assert_frame_equal(ours, theirs, rel_tol=1e-3, abs_tol=1e-3)
        assert ours.filter(pl.col("seed") != 2).equals(before)
    assert (out / store.CONFIG).read_bytes() == (whole / store.CONFIG).read_bytes()
    ours, theirs = (json.loads((place / store.MANIFEST).read_text()) for place in (out, whole))
    same = ours.keys() - {"wall_seconds", "parts", "files", "resumed"}
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
    assert sum(run["seed"] == 2 for run in ours["runs"]) == 4
    study = open_study(out)
    share = Plan(study.config).share("ppo")
    for label in share.labels:
        assert load_agent(out, study.config, share.learner, label).step == 3200
    assert not (out / store.ADDED).exists()


@pytest.mark.slow
@pytest.mark.parametrize("count", range(7))
def test_a_kill_while_studies_are_joined_loses_nothing(finished, unjoined, tmp_path, monkeypatch, count):
    """The folder opens as before, or is unfinished; the same study then completes it without training."""
    out, moves = shutil.copytree(unjoined, tmp_path / "study"), iter(range(100))

    def replace(source, target, replace=os.replace):
        if store.ADDED in str(source) and store.ADDED not in str(target) and next(moves) == count:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(folder.os, "replace", replace)
        if count == 6:  # before the first of six moves
            patch.setattr(parts, "write_manifest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(config("1:3"), out)
    if count == 6:
        assert store.open_results(out).rows(store.CURVES).equals(pl.read_parquet(finished / store.CURVES))
    else:
        with pytest.raises(ValueError, match=r"is not finished: .*continue it with --resume"):
            store.open_results(out)
    monkeypatch.setattr("experiments.study.train._train_share", interrupted)
    trained(config("1:3"), out)
    assert store.open_results(out).rows(store.CURVES)["seed"].n_unique() == 3
    store.check_folder(out, out)
    assert not (out / store.ADDED).exists()


@pytest.mark.slow
def test_an_interrupted_seed_is_continued_and_the_finished_study_stays_readable(finished, tmp_path):
    out = shutil.copytree(finished, tmp_path / "study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.study.train.save_agents", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(config("1:3"), out)
    assert store.open_results(out).rows(store.CURVES)["seed"].n_unique() == 2
    assert trained(config("1,3"), out) == out
    added = missing(config("1:3"), out)
    assert added.seeds == (2,)
    claimed = claim(config("1:3"), out, resume=True, added=added)
    claimed.owner.release()
    assert claimed.resume


@pytest.mark.slow
def test_a_damaged_study_is_refused_before_a_seed_is_added(finished, unjoined, tmp_path):
    out = shutil.copytree(finished, tmp_path / "study")
    damaged = next((out / store.AGENTS).rglob("rows.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"rows\.parquet was changed or damaged"):
        trained(config("1:3"), out)
    assert not (out / store.ADDED).exists()
    out = shutil.copytree(unjoined, tmp_path / "part")
    damaged = next((out / store.ADDED).rglob("agents/ppo/*/*/rows.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(Refused, match="no usable checkpoint"):
        trained(config("1:3"), out)
    assert files_of(out).items() >= files_of(finished).items()


@pytest.mark.parametrize(
    ("options", "lacking"),
    [
        ({"seeds": "1:3"}, {"seeds": (3,)}),
        ({"seeds": "3,2,1,7"}, {"seeds": (3, 7)}),
        ({"patterns": "steady,abrupt,linear"}, {"patterns": ("linear",)}),
        ({"schedules": "baseline,aes,aes_r"}, {"methods": 1}),
        ({"seeds": 2}, None),
        ({"seeds": 1}, r"seeds: \[1, 2\] -> \[1\]"),
        ({"seeds": "2:3"}, r"seeds: \[1, 2\] -> \[2, 3\]"),
        ({"seeds": "1:3", "steps": 4000}, r"steps: .* -> 4000"),
        ({"seeds": "1:3", "block": "1:2"}, "block: "),
        ({"seeds": "1:3", "patterns": "steady,abrupt,linear"}, "patterns: "),
    ],
)
def test_only_missing_runs_are_added_and_other_differences_are_named(tmp_path, options, lacking):
    plain = {"seeds": 2, "patterns": "steady,abrupt", "schedules": "baseline,aes"}
    store.write_json(tmp_path / store.CONFIG, config_of(**plain).to_json())
    store.write_manifest(tmp_path, {"runs": []})
    wanted, before = config_of(**plain | options), files_of(tmp_path)
    added = missing(wanted, tmp_path)
    if isinstance(lacking, dict):
        (name, values), *_ = lacking.items()
        chosen = wanted.methods[-1:] if name == "methods" else values
        assert added == dataclasses.replace(wanted, **{name: chosen})
        return
    assert added is None
    if lacking is not None:
        with pytest.raises(ValueError, match=f"^--resume: .*has another configuration .*{lacking}"):
            claim(wanted, tmp_path, resume=True, added=added)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("added", [{"seeds": [2]}, {"patterns": "ou"}])
def test_change_points_of_added_runs_join_those_of_the_finished_study(tmp_path, added):
    made, whole = [], {"seeds": 1, "patterns": "steady,abrupt", "changes": "random"}
    for name, options in (("finished", {}), ("added", added)):
        folder, own = tmp_path / name, config_of(**whole | options)
        folder.mkdir()
        runs = [(pattern, seed) for pattern in own.patterns for seed in own.seeds]
        rows = pl.DataFrame({"method": "SAC", "pattern": pattern, "seed": seed, "step": 0} for pattern, seed in runs)
        for file in (store.CURVES, store.STREAMS):
            store.write_rows(folder / file, rows)
        store.write_json(folder / store.CONFIG, own.to_json())
        stated = {"toy": {pattern: {str(seed): [seed]} for pattern, seed in runs if pattern != "steady"}}
        statuses = rows.select("method", "pattern", "seed").to_dicts()
        about = {"runs": statuses, "changes": stated, "wall_seconds": 1.0, "resumed": False, "parts": {}}
        store.write_manifest(folder, about)
        made.append(store.open_results(folder))
    joined, config = tmp_path / "joined", config_of(**whole | {"seeds": 2, "patterns": "steady,abrupt,ou"})
    joined.mkdir()
    parts.join_parts(joined, config.to_json(), made, "")
    changes = store.read_manifest(joined)["changes"]["toy"]
    wanted = {"abrupt": {"1": [1], "2": [2]}} if "seeds" in added else {"abrupt": {"1": [1]}, "ou": {"1": [1]}}
    assert changes == wanted


@pytest.mark.parametrize("name", numerics())
def test_no_run_is_added_to_a_study_that_was_made_with_another_setting_or_version(tmp_path, name):
    store.write_json(tmp_path / store.CONFIG, config_of(seeds=2).to_json())
    store.write_manifest(tmp_path, {"runs": [], "numerics": numerics() | {name: "other"}})
    assert missing(config_of(seeds=2), tmp_path) is None
    with pytest.raises(ValueError, match=f"^--resume: .* needs {name}=other, with which it was made; "):
        missing(config_of(seeds=3), tmp_path)
