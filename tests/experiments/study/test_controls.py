"""Controls made of a finished study's runs: the replayed record equals the run, and the requested runs must exist."""

import shutil

import numpy as np
import polars as pl
import pytest

from experiments.study.config import config_from_json
from experiments.study.program import Plan
from experiments.study.replay import records_of
from tests.experiments.configs import small_ppo, train_study
from tests.refusals import refused

pytestmark = pytest.mark.slow

STEPS, EVALUATIONS = 3200, 50
RESPONDING = "aes_r+refresh:threshold=1.05:strength=0.3+rate"
SCHEDULES = ("baseline", "aes_r:gain=4", RESPONDING)


def small(schedules, **options):
    return small_ppo(schedules, EVALUATIONS, patterns="abrupt", steps=STEPS, **options)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    directory = tmp_path_factory.mktemp("controls") / "study"
    train_study(small(",".join(SCHEDULES), seeds="1:2"), directory)
    return directory


@pytest.fixture(scope="module")
def played(study):
    directory = study.parent / "played"
    names = [f"playback:of={name}" for name in SCHEDULES]
    names += [f"permuted:of={RESPONDING}", "constant_at_mean:of=aes_r:gain=4"]
    config = small(",".join(names), seeds="1:2", controls_from=study)
    assert config_from_json(config.to_json()).to_json() == config.to_json()
    train_study(config, directory)
    return directory, config


def curves(directory, method, column, seed=1):
    rows = pl.read_parquet(directory / "curves.parquet").filter(method=method, seed=seed).sort("step")
    assert rows.height == EVALUATIONS + 1
    return rows[column].to_numpy()


RESPONDED = "PPO+AES-R+refresh+rate[refresh.threshold=1.05,refresh.strength=0.3]"
NAMES = dict(zip(SCHEDULES, ("PPO", "PPO+AES-R[gain=4]", RESPONDED), strict=True))


@pytest.mark.parametrize("of", SCHEDULES)
def test_a_record_played_back_is_the_run_it_came_from(study, played, of):
    directory, _ = played
    for column in ("entropy_weight", "return_mean", "rate_factor", "refreshes"):
        trained, again = (curves(d, m, column)[1:] for d, m in ((study, NAMES[of]), (directory, f"PPO+playback({of})")))
        np.testing.assert_allclose(again, trained, rtol=2e-3, atol=1e-3, err_msg=column)
    if of == RESPONDING:
        assert curves(study, NAMES[of], "refreshes")[1:].sum() >= 1
        assert np.ptp(curves(study, NAMES[of], "rate_factor")[1:]) > 0.05


def test_a_permuted_record_has_the_same_values_at_other_times_and_as_many_refreshes(study, played):
    directory, config = played
    records = records_of(Plan(config).share("ppo"))
    same, other = (records[f"PPO+{c}({RESPONDING})", "abrupt", 2] for c in ("playback", "permuted"))
    np.testing.assert_array_equal(np.sort(other.weight), np.sort(same.weight))
    np.testing.assert_allclose(other.levers.rate / other.weight, same.levers.rate[0] / same.weight[0], rtol=1e-4)
    assert np.mean(other.weight != same.weight) > 0.2
    runs = ((study, RESPONDED), (directory, f"PPO+permuted({RESPONDING})"))
    counts = [curves(folder, method, "refreshes", 2)[1:].sum() for folder, method in runs]
    assert counts[0] == counts[1] >= 1
    returns = [curves(folder, method, "return_mean", 2) for folder, method in runs]
    assert not np.allclose(*returns)


def test_a_constant_at_the_mean_is_the_mean_of_the_run_it_came_from(study, played):
    directory, config = played
    weights = curves(directory, "PPO+constant_at_mean(aes_r:gain=4)", "entropy_weight")[1:]
    assert np.ptp(weights) == 0.0
    record = records_of(Plan(config).share("ppo"))["PPO+playback(aes_r:gain=4)", "abrupt", 1]
    np.testing.assert_allclose(weights[0], record.weight.mean(), rtol=1e-5)
    assert weights[0] > 0.01


@pytest.mark.parametrize(
    ("schedules", "text"),
    [
        ("permuted", "'permuted' needs the method it is made of"),
        ("playback:blocks=3:of=aes", "control 'playback' has no option 'blocks'; allowed: of"),
        ("permuted:blocks=1:of=aes", "'blocks' of control 'permuted' is a whole number, at least 2; got 1"),
        ("permuted:of=aes_r", "give its folder by --controls-from"),
    ],
)
def test_a_control_that_is_not_one_is_refused(tmp_path, capsys, schedules, text):
    words = ["--task", "toy", "--patterns", "abrupt", "--out", tmp_path / "new", "--schedules", schedules]
    assert text in refused(capsys, "run", *words)


def test_a_record_that_does_not_fit_is_refused(study, tmp_path, capsys):
    for schedules, record, text in (
        ("permuted:of=aes_r", study, "evaluations"),
        ("aes_r", study, "no control among --schedules uses it"),
        ("permuted:of=aes_r", tmp_path, "there is no streams.parquet"),
    ):
        words = ["--task", "toy", "--patterns", "abrupt", "--out", tmp_path / "new", "--schedules", schedules]
        words += ["--steps", STEPS, "--carriers", "ppo", "--controls-from", record]
        assert text in refused(capsys, "run", *words)
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("of", "seeds", "says"),
    [("aes", "1", "no finished run of PPO\\+AES on 'abrupt' with seed 1"), ("aes_r:gain=4", "3", "with seed 3")],
)
def test_runs_that_the_record_does_not_have_are_named(study, of, seeds, says):
    config = small(f"permuted:of={of}", seeds=seeds, controls_from=study)
    with pytest.raises(ValueError, match=says):
        records_of(Plan(config).share("ppo"))


def test_a_record_that_was_changed_is_refused(study, tmp_path):
    copy = shutil.copytree(study, tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints", "agents"))
    config = small("permuted:of=aes_r:gain=4", seeds="1", controls_from=copy)
    (copy / "streams.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="is missing, or changed after the study was configured"):
        records_of(Plan(config).share("ppo"))
