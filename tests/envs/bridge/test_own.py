"""An environment of one's own: what it may return, what drifts in it, and what is said where it is wrong."""

import numpy as np
import pytest

import envs
from envs.bridge import errors
from experiments.cli import main
from tests.envs.bridge.common import torch as installed

torch = installed()

from envs.bridge.host import InProcess, SimEnv  # noqa: E402
from tests.envs.bridge.points import Points  # noqa: E402

N = 3


WHEELS = """
import torch

class Plain:
    num_envs, num_obs, num_acts, max_episode_length = 2, 1, 1, 5

    def __init__(self, fails):
        self.fails, self.reset_buf = fails, torch.ones(2)

    def step(self, actions):
        if self.fails:
            raise KeyError('no such wheel')
        return {'obs': torch.zeros(2, 1)}, torch.zeros(2), torch.zeros(2, dtype=torch.bool), {}

def plain(num_envs, seed):
    return Plain(False)

def failing(num_envs, seed):
    return Plain(True)
"""


class Own(Points):
    """Points without Isaac Gym's handles; ``change`` makes of what a step returns what the test wants."""

    def __init__(self, num_envs=N, seed=0, change=lambda *rows: rows):
        super().__init__(num_envs, seed)
        self.change = change
        del self.gym, self.sim, self.envs, self.rl_device

    def step(self, actions):
        return self.change(*super().step(actions))


class Windy(Own):
    def __init__(self):
        super().__init__()
        self.drift_channels, self.wind = {"wind": (-0.5, 0.0, 1.0)}, None

    def apply_drift(self, values):
        self.wind = values["wind"]


def in_numpy(obs, reward, reset, extras):
    late = {name: value.numpy() for name, value in extras.items()}
    return {"obs": obs["obs"].numpy()}, reward.numpy(), reset.numpy(), late


def rows_of(change):
    env, rows = InProcess(Own(change=change)), []
    env.restart(3)
    for t in range(9):
        rows.append(env.step(np.full((N, 2), 0.1 * t - 0.4, np.float32)))
        rows[-1] = [None if each is None else each.copy() for each in rows[-1]]
    return rows


def test_arrays_of_numpy_are_as_good_as_tensors():
    for ours, theirs in zip(rows_of(in_numpy), rows_of(lambda *rows: rows), strict=True):
        for mine, yours in zip(ours[:6], theirs[:6], strict=True):
            np.testing.assert_array_equal(mine, yours)
    assert any(row[3].any() for row in rows_of(in_numpy))  # time limits


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda o, r, d, e: (o, r, d), r"must return \(\{'obs'.*got \['dict', 'Tensor', 'Tensor'\]"),
        (lambda o, r, d, e: o["obs"], "must return.*got Tensor"),
    ],
)
def test_other_results_are_refused(change, text):
    with pytest.raises(errors.SimBridgeError, match=text):
        rows_of(change)


def test_its_channels_are_applied_and_a_wrong_declaration_is_refused():
    env = Windy()
    sim = SimEnv(InProcess(env))
    assert sim.about["nominal"] == {"wind": 0.0}
    assert sim.about["inert"] == []  # 0 is a value here, not the lack of one
    sim.drift(wind=0.25)
    assert env.wind == 0.25
    for channels in ({"wind": (0.0, 1.0)}, {"wind": (0.0, 2.0, 1.0)}, {"a b": (0.0, 0.5, 1.0)}):
        env = Windy()
        env.drift_channels = channels
        with pytest.raises(errors.SimBridgeError, match="lowest, nominal, highest"):
            InProcess(env)
    env = Own()
    env.drift_channels = Windy().drift_channels
    with pytest.raises(errors.SimBridgeError, match="go together"):
        InProcess(env)


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wheels.py").write_text(WHEELS)


def test_without_the_hook_only_steady_is_allowed_and_nothing_is_written(module, tmp_path, capsys):
    task = envs.make("bridge:wheels:plain")
    assert task.channels == ()
    assert envs.make("bridge:wheels:plain", **task.options) is envs.make("bridge:wheels:plain", **task.options)
    assert main("run --task bridge:wheels:plain --patterns abrupt --seeds 1:1 --out out".split()) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert said == ["aesjax: task 'bridge:wheels:plain' has no drift channel, so its pattern is steady; got 'abrupt'"]
    assert not (tmp_path / "out").exists()


def test_an_exception_of_its_own_is_printed_with_its_traceback_before_anything_is_written(module, tmp_path, capsys):
    assert main("run --task bridge:wheels:failing --patterns steady --seeds 1:1 --out out".split()) == 2
    said = capsys.readouterr().err
    assert "KeyError" in said
    assert "wheels.py" in said
    assert "    raise KeyError('no such wheel')" in said.splitlines()
    assert not (tmp_path / "out").exists()
