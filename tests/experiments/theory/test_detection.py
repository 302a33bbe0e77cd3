"""The study of detection: its detectors against river's, its streams, its record."""

import json
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
from river.drift import PageHinkley

from aesjax import aes_r, dynamics
from experiments import Method, Study
from experiments.theory import alarms
from experiments.theory.__main__ import main
from experiments.theory.detection_methods import METHODS, adwin, cusum, page_hinkley
from experiments.theory.detection_parts import COMPARED, NEAR, SHIPPED, compare, delays
from experiments.theory.detection_streams import Streams, read, recorded, synthetic
from experiments.theory.findings import TheoryStudy

RECORD = Path(__file__).resolve().parents[3] / "benchmarks" / "recorded_proxies.parquet"


@pytest.fixture(scope="module")
def toy():
    return recorded(read([RECORD]))


def rising(count=2, length=1500, by=1.0):
    logs = np.random.default_rng(0).standard_normal((count, length))
    logs[:, 1000:] += by
    return logs


def test_page_hinkley_is_rivers():
    logs, thresholds = rising(length=2500), np.array([5.0, 20.0])
    ours = page_hinkley(logs, thresholds)
    for h, threshold in enumerate(thresholds):
        for i, stream in enumerate(logs):
            theirs = PageHinkley(threshold=threshold, mode="up")
            alarms = []
            for t, x in enumerate(stream):
                theirs.update(x)
                if theirs.drift_detected:
                    alarms.append(t)
            assert np.flatnonzero(ours[h, i]).tolist() == alarms
    assert ours[0].any()


def test_cusum_counts_what_exceeds_its_slack():
    logs = np.tile([-1.0, 1.0], 300)[None]  # location 0, deviation 1
    logs[:, 500:] = 2.0
    assert np.flatnonzero(cusum(logs, np.array([5.0]))[0, 0])[:2].tolist() == [502, 505]


@pytest.mark.parametrize("find", [adwin, cusum, page_hinkley])
def test_only_a_rise_is_an_alarm(find):
    settings = {adwin: [1e-3], cusum: [40.0], page_hinkley: [60.0]}[find]
    up, down = (find(rising(by=by), np.array(settings))[0] for by in (1.5, -1.5))
    assert np.all(up[:, 1000:].any(1))
    assert not up[:, :1000].any()
    assert not down.any()


@pytest.mark.parametrize("name", METHODS)
def test_a_more_cautious_setting_begins_later(name):
    method = METHODS[name]
    begun = method.alarms(rising(), method.settings[[0, -1]])
    eager, cautious = np.where(begun.any(-1), begun.argmax(-1), begun.shape[-1])
    assert np.all(eager < cautious)


def blind(begun):
    """The first alarm of every stream only."""
    return begun & (begun.cumsum(-1) == 1)


def test_every_jump_is_found_and_a_blind_detector_would_show():
    of = synthetic("log-normal", 4)
    short = Streams([x[:, :1500] for x in of.tuning], [x[:, :1500] for x in of.quiet], {1000: of.jumps[1000]})
    rows = compare({"log-normal": short})["log-normal"]
    for name in COMPARED:
        assert np.isfinite(rows[name]["own"]["1000"]).mean() >= 0.85, name
    assert np.isfinite(rows["aes_c"]["common"]["1000"]).all()
    logs, changes = of.jumps[1000]
    late = delays(blind(METHODS["cusum_restarted"].alarms(logs, np.array([20.0]))[0]), changes, NEAR)
    assert np.isfinite(late).mean(0).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_the_shipped_detector_finds_later_recorded_jumps_too(toy):
    logs, changes = toy["td_quantile/update"].jumps[1000]
    found = np.isfinite(delays(METHODS["aes_c"].alarms(logs, SHIPPED)[0], changes, NEAR))
    assert found.mean(0).min() >= 0.7


def test_the_stored_record_has_three_distances_and_separate_runs_for_thresholds(toy):
    for of in toy.values():
        assert sorted(of.jumps) == [500, 1000, 2000]
        for tuning, quiet, (logs, changes) in zip(of.tuning, of.quiet, of.jumps.values(), strict=True):
            assert tuning.shape[1] == quiet.shape[1] == logs.shape[1]
            rise = [np.median(logs[:, at : at + 40].mean(1) - logs[:, at - 40 : at].mean(1)) for at in changes]
            assert min(rise) > 0.05  # the changes are where they are said to be
    seeds = read([RECORD]).filter(pl.col("pattern") == "abrupt")["seed"]
    assert set(seeds).isdisjoint(range(1, 11))


def test_records_that_cannot_be_used_are_refused_in_one_sentence(tmp_path, capsys):
    (tmp_path / "text.parquet").write_text("no")
    row = {"carrier": ["sac"], "pattern": ["steady"], "seed": [1]}
    pl.DataFrame(row).write_parquet(tmp_path / "unknown.parquet")
    pl.DataFrame(row | {"apart": [500]}).write_parquet(tmp_path / "half.parquet")
    (tmp_path / "folder").mkdir()
    for name, said in (
        ("none.parquet", "cannot be read"),
        ("text.parquet", "cannot be read"),
        ("folder", "cannot be read"),
        ("unknown.parquet", "lacks the column 'apart'"),
        ("half.parquet", "no run of the pattern 'abrupt'"),
    ):
        assert main(TheoryStudy(tmp_path / "out", name="detection", recorded=(tmp_path / name,))) == 2
        message = capsys.readouterr().err
        assert message.startswith(f"aesjax: --recorded {tmp_path / name}: ")
        assert said in message
        assert message.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_alarms_are_counted_by_study_and_proxy(tmp_path, capsys):
    methods = [Method("sac", aes_r(dynamics(), gain=0.0)), Method("sac", aes_r(gain=0.0))]
    study = Study("toy", methods, patterns=["steady", "abrupt"], seeds=2, steps=4000)
    with jax.enable_x64(False):  # as agents train
        study.run(out=tmp_path / "study", quiet=True)
    out = tmp_path / "alarms.json"
    assert alarms.main([str(tmp_path / "study"), "--out", str(out)]) == 0
    assert "| study | sac dynamics/fresh |" in capsys.readouterr().out
    rows = json.loads(out.read_text())["data"]["study"]
    assert set(rows) == {"sac dynamics/fresh", "sac td_quantile/fresh", "sac td_quantile/update"}
    for row in rows.values():
        assert row["changes"] == 4
        assert len(row["found"]) == 2
        assert max(row["found"]) <= 4
        assert row["rise"] > 0
    assert alarms.main([str(tmp_path / "study"), "--out", str(out)]) == 2
    assert alarms.main([str(tmp_path), "--out", str(tmp_path / "new.json")]) == 2
    assert "holds no study" in capsys.readouterr().err
