"""Detections in the table of proxies."""

import numpy as np
import polars as pl

from experiments.paper.proxies import _delays, detections
from tests.pages import ROOT


def test_jumps_of_recorded_proxies_are_detected_and_quiet_runs_seldom():
    """The proxies of SAC on the toy task, jumps 1,000 updates apart; the first 500 vector steps are without updates."""
    rows = pl.read_parquet(ROOT / "benchmarks" / "recorded_proxies.parquet").filter(apart=1000)
    streams = {}
    for pattern in ("steady", "abrupt"):
        values = np.array(rows.filter(pattern=pattern).sort("seed")["td_quantile/update"].to_list(), np.float64)
        streams[pattern] = np.log(values[:, np.isfinite(values).all(0)])
    length = streams["abrupt"].shape[1]
    changes = [k * 1000 - (5000 - length) for k in range(1, 5)]
    late = _delays(detections(streams["abrupt"]), changes, 300)
    assert np.isfinite(late).mean(0).min() >= 0.7
    assert detections(streams["steady"]).mean() < 1e-4
