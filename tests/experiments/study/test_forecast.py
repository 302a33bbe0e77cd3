"""Dry runs: sizes equal those of the study, times add up, and no files remain."""

import json
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from experiments import Study
from experiments.cli import main
from experiments.measure.stats import detectable
from experiments.session.forecast import Seconds, forecast, power, shortened
from experiments.study.checkpoint import save
from experiments.study.prepare import prepare, results_bytes
from experiments.study.program import Plan
from experiments.study.store import write_manifest
from experiments.study.text import parse_methods
from tests.experiments.configs import config_of
from tests.experiments.conftest import small_config
from tests.refusals import refused

FAST = "--task toy_multigoal_classic --steps 2000 --patterns steady --schedules baseline --seeds 1:2".split()


@pytest.mark.slow
def test_sizes_are_those_of_the_study_and_the_memory_adds_up():
    config = small_config(patterns="abrupt", schedules="baseline", seeds="1:3")
    plan = Plan(config)
    (prepared,) = prepare(plan)
    lines = forecast(plan, [prepared], seconds=0.1)
    count, width = prepared.batches.count, prepared.batches.width
    assert f"{prepared.share.learner.updates:,} updates, " in lines[0]
    assert lines[0].endswith(f"{count} batches of {width}")
    numbers = [[float(n.replace(",", "")) for n in re.findall(r"([\d.,]+) MiB", line)] for line in lines]
    assert numbers[1][1] == pytest.approx(config.replay_capacity * (2 * 2 + 2 + 2) * 4 / 2**20, rel=1e-3)
    assert numbers[1][0] > numbers[1][1]
    whole, process, saved, results = numbers[3]
    assert whole == pytest.approx(process + saved + results, rel=1e-3)
    assert process > 100.0  # JAX alone
    assert results == pytest.approx(results_bytes(config, 3) / 2**20, rel=1e-3)


@pytest.mark.parametrize(
    ("done", "intervals", "evaluations"),
    [(0, 30, 33), (4, 26, 28), (10, 20, 22), (12, 18, 19), (30, 0, 0)],
)
def test_times_of_what_is_left_add_up(done, intervals, evaluations):
    assert Seconds(3.5, 4.0, 0.25).total(3, 10, done) == 3.5 + intervals * 4 + evaluations * 0.25


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ("1:5", "5 seeds detect differences of 1.7 (1) and 2.5 (4);"),
        ("1:10", "10 seeds detect differences of 1 (1) and 1.3 (4);"),
        ("1:4", "4 seeds decide nothing;"),
    ],
)
def test_a_forecast_has_the_power_of_the_seeds_and_the_seeds_that_a_difference_needs(seeds, words):
    plan = Plan(small_config(patterns="steady,abrupt", schedules="baseline,aes,aes_r,fixed", seeds=seeds))
    line = power(plan)
    assert words in line
    ones, halves = map(int, re.findall(r"needs (\d+)", line))
    assert detectable(ones, 4) <= 1.0 < detectable(ones - 1, 4)  # two methods, two patterns
    assert detectable(halves, 4) <= 0.5 < detectable(halves - 1, 4)


@pytest.mark.parametrize(
    ("schedules", "tests"),
    [
        ("baseline", 1),
        ("baseline,fixed,fixed:base=0.4", 4),
        ("baseline,fixed,aes", 2),
        ("baseline,fixed+recent,aes", 4),
        ("baseline,permuted:of=aes,aes", 2),
    ],
)
def test_constants_and_controls_are_not_tests_of_other_methods(schedules, tests):
    rows = [SimpleNamespace(method=method) for method in parse_methods("sac", schedules)]
    plan = SimpleNamespace(rows=rows, config=SimpleNamespace(seeds=range(10), patterns=("steady", "abrupt")))
    assert power(plan).endswith(f"({tests})")


@pytest.mark.parametrize(
    ("options", "steps", "pieces"),
    [
        ({"steps": 4_000}, 40, 1),  # short already
        ({"preset": "paper"}, 40, 25),
        ({"carriers": "ppo", "task": "hopper", "preset": "mujoco-paper", "engine": "mujoco"}, None, None),
    ],
)
def test_the_trial_takes_short_intervals_of_whole_rollouts(options, steps, pieces):
    config = config_of(**options)
    carrier = config.carriers[0]
    short, count = shortened(config, carrier)
    assert short.interval(carrier) * count == config.interval(carrier)
    assert short.interval(carrier) % config.settings[carrier].config.get("rollout", 1) == 0
    if steps is not None:
        assert (short.interval(carrier), count) == (steps, pieces)


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("experiments.session.forecast.forecast", partial(forecast, seconds=0.1))
    assert main(["run", "--out", str(tmp_path / "new"), "--dry-run", *FAST]) == 0
    said = capsys.readouterr().out
    assert said.startswith("sac: 2 runs of 2,000 environment steps and 1,872 updates, 4,000 steps in all; 1 batch")
    assert re.search(r"a batch is 100 times \S+ s of training and 101 evaluations of \S+ s", said)
    assert re.search(r"^estimated: \d+ s \(.*\) on 2 cpu devices, without the report; nothing was written$", said, re.M)
    assert not any(tmp_path.iterdir())


def test_a_dry_run_refuses_what_a_run_refuses(tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").touch()
    for words, text in (
        (("--out", "new", "--steps", "1234"), "nearest is 1200"),
        (("--out", "full"), "full is not empty"),
        (("--out", "full/notes"), "is a file; give a folder"),
    ):
        given = [words[0], str(tmp_path / words[1]), *FAST, *words[2:]]
        assert text in refused(capsys, "run", "--dry-run", *given)
    assert {path.name for path in tmp_path.iterdir()} == {"full"}


def test_a_dry_run_of_a_study_that_began_needs_its_options(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("experiments.session.forecast.forecast", partial(forecast, seconds=0.1))
    config = Study("toy_multigoal_classic", ["sac"], patterns="steady", seeds="1:2", steps=2000).config
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    (tmp_path / "checkpoints").mkdir()
    words = ["--dry-run", "--resume", "--out", str(tmp_path), *FAST]
    assert main(["run", *words]) == 0
    assert "nothing was written" in capsys.readouterr().out
    assert 'patterns: ["steady"] -> ["abrupt"]' in refused(capsys, "run", *words, "--patterns", "abrupt")


def test_a_dry_run_of_a_study_that_began_estimates_what_is_left(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("experiments.session.forecast.forecast", partial(forecast, seconds=0.1))
    study = Study("toy_multigoal_classic", ["sac"], patterns="steady", seeds="1:2", steps=2000)
    (tmp_path / "config.json").write_text(json.dumps(study.config.to_json()))
    save(tmp_path / "checkpoints" / "sac", study.config.fingerprint(), 0, 60, {"x": np.zeros(2)}, pl.DataFrame())
    words = ["run", "--dry-run", "--resume", "--out", str(tmp_path)]
    assert main(words) == 0
    assert "60 of 100 are done" in capsys.readouterr().out
    write_manifest(tmp_path, {"runs": []})
    assert main(words) == 0
    assert capsys.readouterr().out == "the training has ended; nothing is trained again\n"
