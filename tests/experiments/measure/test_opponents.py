"""Constants and controls of a study: who is compared with whom."""

import polars as pl
import pytest

from experiments.measure.opponents import asides_of, best_of, constants_of, opponents_of
from experiments.measure.study import load_study
from tests.experiments.measure.synthetic import RULES, config, manifest, with_controls
from tests.experiments.measure.test_summary import one


@pytest.fixture
def curves():
    return with_controls()[0]


def test_constants_and_controls_are_known_by_their_rule(curves):
    study = load_study(curves, config(), manifest(curves))
    assert constants_of(study) == ["SAC+fixed", "SAC+fixed[base=0.4]"]
    assert asides_of(study) == {m for m, (rule, _) in RULES.items() if "of=" in rule or rule == "fixed"}
    assert asides_of(load_study(curves.drop("schedule"), config(), {})) == set()


def test_a_method_meets_the_best_constant_of_its_carrier_and_its_own_controls(curves):
    study = load_study(curves, config(), manifest(curves))
    found = opponents_of(study, "SAC+AES-R")
    assert set(found) == {"best_constant", "constant_at_mean"}
    assert found["constant_at_mean"]["toy", "abrupt"] == "SAC+constant_at_mean(aes_r)"
    assert found["best_constant"]["toy", "abrupt"] == "SAC+fixed[base=0.4]"  # suffers less than the other
    other = opponents_of(study, "SAC+AES-R+window[window.power=1]")
    assert other["permuted"]["toy", "steady"] == "SAC+permuted(aes_r+window:power=1)"
    assert opponents_of(study, "PPO+AES-R") == {}  # of another carrier
    assert opponents_of(study, "SAC+fixed") == {}


def test_one_constant_is_no_choice_but_an_opponent(curves):
    study = load_study(curves.filter(pl.col("method") != "SAC+fixed"), config(), {})
    found = opponents_of(study, "SAC+AES-R")
    assert set(found) == {"constant", "constant_at_mean"}
    assert set(found["constant"].values()) == {"SAC+fixed[base=0.4]"}
    assert opponents_of(study, "SAC") == {}  # the same pair stands as the constant against its baseline


def test_a_carrier_that_is_a_constant_by_itself_is_the_baseline_and_no_second_opponent(curves):
    plain = curves.filter(pl.col("method").is_in(["SAC", "SAC+AES-R"]))
    rules = pl.when(pl.col("method") == "SAC").then(pl.lit("fixed")).otherwise(pl.col("schedule"))
    study = load_study(plain.with_columns(schedule=rules), config(), {})
    assert constants_of(study) == ["SAC"]
    assert opponents_of(study, "SAC+AES-R") == {}


def test_the_frame_compares_with_them_and_corrects_each_kind_by_itself(curves):
    _, frame = with_controls()
    row = one(frame, "paired:nauc_task_safe:vs=best_constant", method="SAC+AES-R")
    assert "baseline=SAC+fixed[base=0.4]" in row["flag"]
    best = one(frame, "nauc_task_safe", method="SAC+fixed[base=0.4]")["value"]
    assert row["value"] == pytest.approx(one(frame, "nauc_task_safe", method="SAC+AES-R")["value"] - best)
    p = frame.filter(metric="p:nauc_task_safe:vs=best_constant", task="toy")
    holm = frame.filter(metric="p_holm:nauc_task_safe:vs=best_constant", task="toy")
    assert p.height == holm.height == 6  # three methods, two patterns
    assert holm["value"].min() == pytest.approx(6 * p["value"].min())
    assert frame.filter(method="SAC+fixed").filter(pl.col("metric").str.contains(":vs=")).is_empty()


def test_the_best_is_chosen_by_the_seeds_that_all_have():
    scores = {"few": {"abrupt": {1: 4.0, 2: 4.0}}, "more": {"abrupt": {1: 5.0, 2: 5.0, 3: -50.0}}}
    assert best_of(scores, ["few", "more"], "abrupt") == "more"
    apart = {"few": {"abrupt": {1: 4.0}}, "more": {"abrupt": {2: 3.0}}}  # no seed in common: each by its own
    assert best_of(apart, ["few", "more"], "abrupt") == "few"
    assert best_of(scores, ["nobody"], "abrupt") is None
