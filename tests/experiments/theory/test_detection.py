"""The study of detection: its detectors against river's, its streams, its record."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from river.drift import PageHinkley

from experiments.theory.detection_methods import METHODS, adwin, cusum, page_hinkley
from experiments.theory.detection_streams import FAMILIES, recorded

ROOT = Path(__file__).resolve().parents[3]


def rising(count=2, length=1500, by=1.0):
    logs = FAMILIES["log-normal 1"](np.random.default_rng(0), (count, length))
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
def test_a_more_cautious_setting_gives_no_more_alarms(name):
    method = METHODS[name]
    ends = method.settings[[0, -1]]
    eager, cautious = method.alarms(rising(), ends)
    assert eager.sum() > cautious.sum()


def test_the_committed_record_holds_both_carriers_and_every_rollout_once():
    streams = recorded(ROOT / "benchmarks" / "recorded_proxies.parquet")
    assert set(streams) == {"sac td_quantile/fresh", "sac td_quantile/update", "ppo td_quantile/update"}
    assert streams["sac td_quantile/fresh"]["steady"].shape == (5, 24_750)
    assert streams["ppo td_quantile/update"]["abrupt"].shape == (5, 100)


def test_records_that_cannot_be_used_are_refused_in_one_sentence(tmp_path):
    (tmp_path / "text.parquet").write_text("no")
    pl.DataFrame({"carrier": ["sac"], "pattern": ["steady"], "seed": [1]}).write_parquet(tmp_path / "half.parquet")
    for name, said in (
        ("none", "cannot be read"),
        ("text", "cannot be read"),
        ("half", "no run of the pattern 'abrupt'"),
    ):
        with pytest.raises(ValueError, match=said):
            recorded(tmp_path / f"{name}.parquet")
    command = [sys.executable, "-m", "experiments.theory", "detection", "--out", str(tmp_path / "out")]
    command += ["--recorded", str(tmp_path / "half.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("aesjax: --recorded")
    assert not (tmp_path / "out").exists()
