"""`aesjax video` on a small study: the policy, drift and pictures that were asked for, and nothing after a refusal."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from experiments import Results
from experiments.cli import main
from experiments.session.video import film
from tests.experiments.configs import small_ppo, train_study

pytestmark = pytest.mark.slow

STEPS, EPISODE = 3200, 50


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory = tmp_path_factory.mktemp("video") / "study"
    config = small_ppo("aes,aes_r", patterns="steady,abrupt", seeds=2, steps=STEPS)
    train_study(config, directory)
    return Results.open(directory)


def test_a_gif_shows_the_requested_policy(results, capsys):
    assert main(["video", str(results.directory), "--method", "PPO+AES-R"]) == 0
    path = results.directory / "video" / "PPO+AES-R-abrupt-1.gif"
    with Image.open(path) as image:
        assert image.size == (480, 480)
        assert EPISODE - 10 < image.n_frames <= EPISODE + 1  # equal pictures become one
        assert image.info["duration"] == 100
        first = np.asarray(image.convert("RGB"))
        image.seek(image.n_frames - 1)
        assert (first != np.asarray(image.convert("RGB"))).any()
    assert f"video: {path}\npolicy of step {STEPS:,}, drift" in capsys.readouterr().out


@pytest.mark.parametrize(("at", "step"), [(0.0, 640), (0.75, 2560)])
def test_the_nearest_stored_policy_acts_in_the_drift_of_the_moment(results, tmp_path, at, step):
    video = film(results, tmp_path / "a.gif", at=at)
    policy = results.policy("PPO+AES", pattern="abrupt", seed=1, at=step)
    values = policy.world.truth(policy.drift, int(at * policy.world.total)).values
    assert video.step == policy.step == step
    np.testing.assert_array_equal(video.drift, values)
    spread = policy.evaluate(drift=values, episodes=64)  # other starts
    assert spread.min() - 3 <= video.episode_return <= spread.max() + 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seed": 7}, "with seed 7"),
        ({"at": 1.5}, "--at is a share of the run, from 0 to 1; got 1.5"),
        ({"out": Path("a.avi")}, "--out must be a new file that ends in .gif; got a.avi"),
    ],
)
def test_wrong_requests_are_refused_and_leave_no_file(results, tmp_path, options, text):
    with pytest.raises(ValueError, match=text):
        film(results, **{"out": tmp_path / "a.gif"} | options)
    assert not list(tmp_path.iterdir())


def test_a_diverged_policy_is_named(results, tmp_path, monkeypatch):
    policy = results.policy("PPO+AES", pattern="abrupt", seed=1)
    broken = dataclasses.replace(policy, agent=jax.tree.map(lambda x: np.nan * x, policy.agent))
    monkeypatch.setattr(Results, "policy", lambda *_, **__: broken)
    with pytest.raises(ValueError, match="diverged"):
        film(results, tmp_path / "b.gif")
    assert not list(tmp_path.iterdir())
