"""Facts about a drift pattern: from the manifest, in its order, or from the built-in table where it has none."""

import math

from envs import PATTERNS as DRIFT
from experiments.measure import summarise
from experiments.measure.patterns import STEADY, PatternFacts, describe, describe_runs
from experiments.measure.study import load_study
from tests.experiments.measure.synthetic import MADE_UP, PATTERNS, config, make_curves, manifest


def test_a_manifest_without_patterns_means_the_built_in_ones():
    known = describe({})
    assert tuple(known) == PATTERNS
    assert [name for name, facts in known.items() if facts.recovery] == ["abrupt"]
    assert {name: facts.jumps for name, facts in known.items()} == {n: DRIFT[n].jumps for n in PATTERNS}
    assert describe({"patterns": None}) == describe({"patterns": {}}) == known


def test_steady_comes_first_then_the_manifests_order_then_the_built_in_rest():
    entries = {"mixed": MADE_UP["square"]} | MADE_UP | {STEADY: MADE_UP["ramp"]}
    known = describe({"patterns": entries})
    assert list(known) == ["steady", "mixed", "square", "ramp", "abrupt", "linear", "periodic"]
    assert known["mixed"] == PatternFacts(True, True, "up and down between two values")  # the manifest wins
    assert list(describe_runs({"patterns": entries}, ["other", "ramp", "linear", "mixed", "steady"])) == [
        *("steady", "mixed", "ramp", "linear"),
        "other",
    ]
    assert describe_runs({}, ["other"])["other"] == PatternFacts(jumps=False, recovery=False)


def test_recovery_is_measured_where_the_manifest_says_so():
    curves = make_curves(("SAC", "SAC+AES"), ("ramp", "square", "abrupt", "steady"), [1, 2])
    info = manifest(curves) | {"patterns": MADE_UP}
    assert list(load_study(curves, config(), info).patterns) == ["steady", "square", "ramp", "abrupt"]
    frame = summarise(curves, config(), info, replicates=50)
    rows = frame.filter(level="method", metric="recovery_robust", method="SAC", task="toy").to_dicts()
    assert {row["pattern"] for row in rows if math.isfinite(row["value"])} == {"square", "abrupt"}
    assert {row["reason"] for row in rows if row["pattern"] in ("ramp", "steady")} == {"only_abrupt"}
