"""Every name that a study's metrics can have stands in `docs/metrics.md`."""

import re
from pathlib import Path

import polars as pl
import pytest

from experiments.measure import summarise
from experiments.measure.study import OPTIONAL
from tests.experiments.measure.synthetic import config, make_curves, manifest
from tests.experiments.measure.test_opponents import RULES

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()
DEFINED = set(re.findall(r"`([^`\s]+)`", TEXT))


def in_words(name):
    """The names that define a name: ``iqm:recovered@2`` is ``iqm:X`` of ``recovered@i``."""
    name, _, kind = name.partition(":vs=")
    *prefix, plain = name.split(":")
    yield re.sub(r"@\d+$", "@i", plain)
    if prefix:
        yield f"{prefix[0]}:X" + (":vs=KIND" if kind else "")
    if kind:
        yield kind


@pytest.fixture(scope="module")
def names():
    curves = make_curves(tuple(RULES), ("steady", "abrupt"), [1, 2], every=5_000)
    rule, variant = ({m: told[i] for m, told in RULES.items()} for i in (0, 1))
    curves = curves.with_columns(
        schedule=pl.col("method").replace_strict(rule),
        variant=pl.col("method").replace_strict(variant),
        refreshes=pl.lit(0.0),
        **{name: pl.lit(1.0) for name in OPTIONAL},
    )
    return set(summarise(curves, config(), manifest(curves), replicates=20)["metric"])


def test_every_metric_is_defined(names):
    assert {"nauc_family_safe", "paired:nauc_task_safe:vs=permuted", "robust_recovered@4", "refreshes"} <= names
    missing = {word for name in names for word in in_words(name)} - DEFINED
    assert not missing, sorted(missing)


def test_nothing_is_defined_that_does_not_exist(names):
    known = {word for name in names for word in in_words(name)} | {"playback"}
    rows = re.findall(r"^\| (`[^|]*) \|", TEXT, flags=re.MULTILINE)
    defined = {word for row in rows for word in re.findall(r"`([^`\s]+)`", row)} - {"X"}
    assert not defined - known, sorted(defined - known)
