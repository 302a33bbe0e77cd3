"""A task of a module from the shell and in Python: stopped, resumed, filmed, exported, continued under drift."""

import os
import signal
import sys

import numpy as np
import pytest
from PIL import Image

from experiments import Results, Study
from experiments.cli import main
from experiments.study.program import Plan, runs_of
from experiments.study.train import Progress
from experiments.study.warm import warm_of
from tests.refusals import refused

THERMO = """
import gymnasium
import numpy as np

AMBIENT = -2.0

class Thermo(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (1,))
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))

    def __init__(self):
        self.ambient, self.x = AMBIENT, np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        return self.x.copy(), {}

    def step(self, action):
        self.x = np.clip(self.x + 0.1 * (self.ambient - self.x) + 0.5 * action, -9.0, 9.0).astype(np.float32)
        return self.x.copy(), -abs(float(self.x[0])), False, False, {}

    def render(self):
        picture = np.zeros((20, 400, 3), np.uint8)
        picture[:, int(200 + 20 * self.x[0])] = 255
        return picture

def make():
    return gymnasium.wrappers.TimeLimit(Thermo(), 20)
"""


@pytest.mark.slow
def test_a_task_of_a_module_goes_through_all_commands(tmp_path, monkeypatch, capsys, registries):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thermo.py").write_text(THERMO)
    sizes = "--carriers ppo --schedules baseline --seeds 1:2 --steps 800 --num-envs 2 --evaluations 5 --episodes 1"
    task = ["--task", "thermo:make"]
    words = ["run", *task, "--channels", "ambient=-5:5", *sizes.split(), "--quiet", "--no-report"]
    first = [*words, "--patterns", "steady", "--out", "a"]
    with monkeypatch.context() as patch:
        tick = Progress.tick

        def interrupted(self, now):
            tick(self, now)
            if now.number == 2:
                os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(Progress, "tick", interrupted)
        assert main(first) == 130
    (tmp_path / "thermo.py").write_text(THERMO.replace("0.5 * action", "0.25 * action"))
    del sys.modules["thermo"]
    capsys.readouterr()
    assert "thermo:Thermo" in refused(capsys, *first, "--resume")
    (tmp_path / "thermo.py").write_text(THERMO)
    del sys.modules["thermo"]
    assert main([*first, "--resume"]) == 0

    for command in (["video", "a"], ["export", "a", "--out", "agents"]):
        capsys.readouterr()
        assert "add --task thermo:make" in refused(capsys, *command)
        assert main([*command, *task]) == 0
    with Image.open("a/video/PPO-steady-1.gif") as image:
        assert image.size == (400, 20)
        assert image.n_frames > 2  # equal pictures become one

    import thermo

    with pytest.raises(ValueError, match=r"Results.open\(FOLDER, task=...\)"):
        Results.open("a").policy("PPO", "steady", 1)
    options = {
        "num_envs": 2,
        "evaluations": 5,
        "episodes": 1,
        "seeds": 2,
        "steps": 800,
        "channels": {"ambient": (-5, 5)},
    }
    study = Study(thermo.make, "ppo", "steady", **options)
    opened = [Results.open("a", study), Results.open("a", task=thermo.make), Results.open("a", task="thermo:make")]
    policies = [results.policy("PPO", "steady", 1) for results in opened]
    assert len({float(policy(np.ones(1))[0]) for policy in policies}) == 1
    assert policies[0].evaluate([3.0], episodes=2).shape == (2,)

    assert main([*words, "--patterns", "abrupt", "--out", "b", "--warm-start", "a"]) == 0
    begun = Results.open("b").curves.filter(step=0, seed=1)["return_mean"][0]
    ended = Results.open("a").curves.filter(step=800, seed=1)["return_mean"][0]
    assert abs(begun - ended) < 5.0  # the same agent on other starts
    starts = {}
    for start in ("a", Results.open("a"), opened[0], policies[1]):
        config = Study(thermo.make, "ppo", "abrupt", **options, start=start).config
        share = Plan(config).share("ppo")
        warm = warm_of(share, runs_of(share, {}))
        starts[type(start)] = [agent["trained"] for agent in warm.agents]
    assert starts[str] == starts[Results]
    assert starts[type(policies[1])][0] == starts[str][0]

    more = [word if word != "1:2" else "1:3" for word in first]
    assert main([*more, "--resume"]) == 0
    assert Results.open("a").curves["seed"].unique().sort().to_list() == [1, 2, 3]


@pytest.mark.slow
def test_the_drift_of_a_task_of_a_module_has_an_onset_random_changes_and_random_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thermo.py").write_text(THERMO)
    words = "run --task thermo:make --channels ambient=-5:5 --carriers sac,ppo --schedules fixed --quiet --no-report"
    words += (
        " --patterns steady,abrupt,ou --seeds 1:2 --steps 800 --num-envs 2 --evaluations 20 --episodes 1 --out drift"
    )
    words += " --onset 0.4 --changes random --observe change"
    assert main(words.split()) == 0
    results = Results.open("drift")
    assert (results.config.onset, results.config.changes) == (0.4, "random")
    changes = next(iter(results._recorded.stated.values()))
    assert changes["ou"] == {"1": [], "2": []}
    assert changes["abrupt"]["1"] != changes["abrupt"]["2"]
    for steps in changes["abrupt"].values():
        assert np.diff([320, *steps, 800]).min() >= 24  # a quarter of a fifth of 480
    drift = results.curves.filter(pattern="abrupt", carrier="sac", seed=1).sort("step")
    nominal = drift.filter(drift["step"] < changes["abrupt"]["1"][0])["drift_0"]
    assert set(nominal) == {-2.0}
    assert drift["drift_0"][-1] != -2.0
    for runs in results.curves.partition_by("pattern", "seed"):
        one, other = (runs.filter(carrier=carrier).sort("step")["drift_0"] for carrier in ("sac", "ppo"))
        assert one.equals(other)
    at = next(step for step in changes["abrupt"]["1"] if step >= 40)
    named = Results.open("drift", task="thermo:make")
    assert named.policy("SAC+fixed", "abrupt", 1, at=at)(np.zeros(2)).shape == (1,)
    assert main(["report", "drift"]) == 0
