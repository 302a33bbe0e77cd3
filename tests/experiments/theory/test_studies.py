"""Games, the learner, and the three studies with their files."""

import json

import jax
import numpy as np
import pytest

from aesjax.schedules import aes_prior
from experiments.theory import oco, simplex
from experiments.theory.__main__ import TheoryStudy, main

ARMS, ROUNDS, FLOOR, C = 4, 60, 1e-3, 4.0


@pytest.mark.parametrize("entropy", [1.0, 0.0])
def test_play_takes_the_steps_of_mirror_descent(entropy):
    """Weight t uses the proxy of round t; without the entropy term the steps are those of exponential weights."""
    g = oco.switching(np.random.default_rng(0), ARMS, ROUNDS, 3, floor=FLOOR)
    schedule = aes_prior(oco.drift_proxy, kappa=0.3, beta=0.0, lambda_min=0.0, lambda_max=np.inf)
    played = jax.jit(lambda: oco.play(schedule, g, C, FLOOR, entropy=entropy))()
    points, t = np.exp(played.log_x), np.arange(1, ROUNDS + 1)
    np.testing.assert_allclose(played.weight, 0.3 * np.sqrt((1 + np.cumsum(g.proxy)) / t), rtol=1e-6)
    np.testing.assert_allclose(points[0], 1 / ARMS)
    lam = np.asarray(played.weight)[:, None]
    y = np.log(points) - C * lam * (g.loss + entropy * lam * (1 + np.log(points)))
    np.testing.assert_allclose(points[1:], np.exp(jax.jit(simplex.project)(y[:-1], FLOOR)), rtol=1e-12)
    np.testing.assert_allclose(played.regret, np.sum(g.loss * (points - g.comparator), -1), atol=1e-12)


def test_prior_mass_repairs_the_schedule_that_loses_to_a_constant(monkeypatch):
    monkeypatch.setattr(oco, "SWITCHES", (0, 4))
    monkeypatch.setattr(oco, "SCALES", 2.0 ** np.arange(-2, 7))
    rows = oco.run(4, rounds=512)
    assert set(rows) == {f"{name}, S={switches}" for name in oco.METHODS for switches in (0, 4)}
    for switches in (0, 4):
        of = {name: rows[f"{name}, S={switches}"] for name in oco.METHODS}
        assert of["aes_prior"]["theory"] < of["aes"]["theory"] < 1.01 * of["per-round oracle"]["theory"]
        assert of["constant"]["hindsight"] > of["aes_m"]["hindsight"]
        assert all(row["hindsight"] <= row["theory"] for row in of.values())
    assert rows["aes, S=0"]["hindsight"] > 2 * rows["constant, S=0"]["hindsight"]


@pytest.mark.parametrize("name", ["softmdp", "calibration"])
def test_a_study_writes_its_record_and_never_over_another(name, tmp_path, capsys):
    options = TheoryStudy(name, seeds=2, out=tmp_path / "out")
    assert main(options) == 0
    record = json.loads((options.out / f"{name}.json").read_text())
    assert (record["seeds"], record["study"]) == (2, name)
    text = (options.out / f"{name}.md").read_text()
    assert all(key in text for key in record["data"])
    assert text in capsys.readouterr().out
    for wrong, part in ((options, "--out"), (TheoryStudy(name, seeds=1), "--seeds must be at least 2")):
        assert main(wrong) == 2
        assert part in capsys.readouterr().err
