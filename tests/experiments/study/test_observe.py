"""Studies whose agents observe the true drift: a reference, named as such wherever their numbers are shown."""

import dataclasses
import shutil

import numpy as np
import pytest

from experiments import Results
from experiments.cli import main
from experiments.paper.record import gather
from experiments.report import write_report
from experiments.report.merge import merge_studies
from experiments.study.config import OBSERVED
from experiments.study.prepare import prepare
from experiments.study.program import Plan
from tests.experiments.configs import small_ppo, train_study

pytestmark = pytest.mark.slow


def small(**options):
    options = {"task": "toy_multigoal_classic", "patterns": "steady,abrupt", "seeds": 1} | options
    return dataclasses.replace(small_ppo(evaluations=10, rollout=7, **options), steps=1680, warmup=168)


@pytest.fixture(scope="module")
def observing(tmp_path_factory):
    directory = tmp_path_factory.mktemp("observe") / "study"
    train_study(small(observe="drift"), directory)
    return directory


@pytest.fixture(scope="module")
def blind(observing):
    train_study(small(), observing.parent / "blind")
    return observing.parent / "blind"


@pytest.mark.parametrize("at", ["end", 336])
def test_a_policy_is_evaluated_under_its_drift_and_acts_on_observations_that_contain_one(observing, at):
    policy = Results.open(observing).policy("PPO", pattern="abrupt", seed=1, at=at)
    assert policy.evaluate(drift=[1.0, 0.0], episodes=2).shape == (2,)
    assert policy(np.zeros(4)).shape == (2,)
    with pytest.raises(ValueError, match=r"are \(4,\) or \(N, 4\), the last ones of .*; got \(2,\)"):
        policy(np.zeros(2))


def test_reports_name_the_reference_and_other_commands_keep_it_apart_from_methods(observing, blind, tmp_path):
    copy = shutil.copytree(observing, tmp_path / "copy")
    page = write_report(copy, replicates=100)
    for text in (page.read_text(), (page.parent / "tables.md").read_text()):
        assert OBSERVED["drift"] in text
    assert gather([observing.parent]).runs["study"].unique().to_list() == [blind.as_posix()]
    with pytest.raises(ValueError, match=r"cannot be joined with .*blind: observe: "):
        merge_studies([blind, observing], tmp_path / "merged")


def test_agents_that_observed_the_drift_cannot_begin_without_it(observing):
    with pytest.raises(ValueError, match="observed goal_offset of the drift, which this study does not"):
        prepare(Plan(small(start=observing)))


def test_a_video_shows_what_the_policy_does_with_the_drift(observing, tmp_path):
    out = tmp_path / "film.gif"
    assert main(["video", str(observing), "--pattern", "abrupt", "--out", str(out)]) == 0
    assert out.is_file()
