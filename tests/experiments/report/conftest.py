"""Two pages that tests of the text and tests in a browser share."""

import numpy as np
import polars as pl
import pytest

from experiments.report import write_report
from tests.experiments.measure.synthetic import config, make_curves, manifest
from tests.experiments.report.pages import SMALL_WINDOW, TROUBLED, configure, save


@pytest.fixture(scope="session")
def troubled(tmp_path_factory):
    """Runs that diverged, stopped early and are missing; no Steady run of one seed of SAC."""
    curves = make_curves(TROUBLED, ("steady", "abrupt"), range(1, 6), every=2_000, gain=0.1)
    noise = pl.col("return_mean") + (pl.col("seed") * 7 + pl.col("method").str.len_chars() * 5).mod(4)
    of = lambda m, p, s: (pl.col("method") == m) & (pl.col("pattern") == p) & (pl.col("seed") == s)  # noqa: E731
    diverged, stopped = of("SAC+AES", "abrupt", 2), of("SAC+AES-R", "abrupt", 3)
    late = pl.col("step")
    curves = curves.with_columns(return_mean=noise)
    curves = curves.filter(~(diverged & (late > 42_000)) & ~(stopped & (late > 70_000)) & ~of("SAC", "steady", 5))
    info = manifest(curves, diverged=[("SAC+AES", "abrupt", 2)])
    info["runs"].append({"task": "toy", "method": "SAC", "pattern": "steady", "seed": 5, "status": ""})
    optimum = {"toy": {"abrupt": {str(seed): [47.8, 47.8] for seed in range(1, 6)}}}
    extra = {"runs": info["runs"], "oracle": optimum, "small_windows": [SMALL_WINDOW]}
    return write_report(save(tmp_path_factory.mktemp("troubled") / "study", curves, **extra), replicates=60)


@pytest.fixture(scope="session")
def crowded(tmp_path_factory):
    """Fourteen methods, of which the last differs from SAC."""
    methods = ("SAC", *(f"SAC+m{i}[kappa={i + 2}]" for i in range(13)))
    schedules = ",".join(f"aes:kappa={i + 2}:label=m{i}" for i in range(13))
    curves = make_curves(methods, ("steady", "abrupt"), range(1, 6), every=2_000, gain=0.0)
    noise = np.random.default_rng(0).normal(0, 1, curves.height) + 9 * (curves["method"] == methods[-1]).to_numpy()
    curves = curves.with_columns(return_mean=pl.col("return_mean") + noise)
    folder = save(tmp_path_factory.mktemp("crowded") / "study", curves, command="aesjax run")
    configure(folder, **config("sac", f"baseline,{schedules}"))
    return write_report(folder, replicates=60)
