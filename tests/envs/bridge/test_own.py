"""An environment of one's own: what it may return, what drifts in it, and what is said where it is wrong."""

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

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


def poisoned(obs, reward, *rest):
    obs["obs"][1:, 1] = float("nan")
    return obs, reward, *rest


RETURNED = {
    "three": (lambda o, r, d, e: (o, r, d), r"must return \(\{'obs'.*got \['dict', 'Tensor', 'Tensor'\]"),
    "tensor": (lambda o, r, d, e: o["obs"], "must return.*got Tensor"),
    "shape": (lambda o, *rest: ({"obs": o["obs"][:, :1]}, *rest), r"\(3, 2\); got \(3, 1\)"),
    "dtype": (
        lambda o, r, *rest: (o, r.double(), *rest),
        "must be float32.*silent cast; got float64",
    ),
    "grad": (
        lambda o, r, *rest: (o, r.clone().requires_grad_(), *rest),
        "requires a gradient",
    ),
    "nan": (poisoned, "observation of 2 of 3 copies is not finite at step 1, that of copy 1 first"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_results_of_a_simulator_are_checked(name):
    change, text = RETURNED[name]
    with pytest.raises(errors.SimBridgeError, match=text):
        rows_of(change)


def test_actions_are_checked_and_a_reset_comes_first():
    env = SimEnv(InProcess(Own()))
    with pytest.raises(errors.SimBridgeError, match="before the first reset"):
        env.step(np.zeros((3, 2), np.float32))
    env.reset(seed=0)
    with pytest.raises(errors.SimBridgeError, match=r"\(3, 2\); got \(2, 2\)"):
        env.step(np.zeros((2, 2), np.float32))


def test_its_channels_are_applied_and_a_wrong_declaration_is_refused():
    env = Windy()
    sim = SimEnv(InProcess(env))
    assert sim.about["nominal"] == {"wind": 0.0}
    assert sim.about["inert"] == []  # 0 is a value here, not the lack of one
    sim.drift(wind=0.25)
    assert env.wind == 0.25
    with pytest.raises(errors.SimBridgeError, match="'gravity' does not drift here; channels: wind"):
        sim.drift(gravity=0.8)
    for channels in ({"wind": (0.0, 1.0)}, {"wind": (0.0, 2.0, 1.0)}, {"a b": (0.0, 0.5, 1.0)}):
        env = Windy()
        env.drift_channels = channels
        with pytest.raises(errors.SimBridgeError, match="lowest, nominal, highest"):
            InProcess(env)
    env = Own()
    env.drift_channels = Windy().drift_channels
    with pytest.raises(errors.SimBridgeError, match="go together"):
        InProcess(env)


def test_channels_that_are_not_given_are_nominal():
    env, seen = Own(), []
    env.drift_channels, env.apply_drift = {"gravity": (-12.0, -9.81, -8.0), "mass": (0.5, 1.0, 1.5)}, seen.append
    sim = SimEnv(InProcess(env))
    sim.drift(gravity=-9.0, mass=1.2)
    sim.drift(gravity=-9.0)
    sim.drift(mass=1.2)
    assert seen == [{"gravity": -9.0, "mass": 1.2}, {"gravity": -9.0, "mass": 1.0}, {"gravity": -9.81, "mass": 1.2}]


@pytest.mark.parametrize(
    ("task", "pattern", "expected"),
    [
        ("plain", "abrupt", ["has no drift channel, so its pattern is steady; got 'abrupt'"]),
        ("failing", "steady", ["KeyError", "wheels.py", "    raise KeyError('no such wheel')"]),
    ],
)
def test_a_wrong_task_is_reported_before_anything_is_written(task, pattern, expected, tmp_path, monkeypatch, capsys):
    """Without the hook of drift only steady is allowed; an exception of its own is printed with its traceback."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wheels.py").write_text(WHEELS)
    assert main(f"run --task bridge:wheels:{task} --patterns {pattern} --seeds 1:1 --out out".split()) == 2
    printed = capsys.readouterr().err
    assert all(text in printed for text in expected)
    assert not (tmp_path / "out").exists()


class Choosing(Own):
    """Points that move by one of three numbers, -1 to 1; it records them."""

    def __init__(self):
        super().__init__()
        self.action_space, self.numbers = Discrete(3, start=-1), []

    def step(self, actions):
        self.numbers.append(actions.tolist())
        return super().step(torch.stack([actions, actions], 1).float())


class ChoosingLab(Choosing):
    """Choices with the interface of Isaac Lab."""

    device, scene = "cpu", SimpleNamespace(articulations={})
    unwrapped = property(lambda self: self)

    def __init__(self):
        super().__init__()
        self.single_observation_space = {"policy": Box(-np.inf, np.inf, (2,))}
        self.single_action_space = self.action_space
        gravity = (0.0, 0.0, -9.81)
        view = SimpleNamespace(set_gravity=lambda value: None, get_gravity=lambda: list(gravity))
        self.sim = SimpleNamespace(cfg=SimpleNamespace(gravity=gravity), physics_sim_view=view)

    def reset(self):
        return {"policy": torch.zeros(N, 2)}, {}

    def step(self, actions):
        self.numbers.append(actions.tolist())
        flags = torch.zeros(N, dtype=torch.bool)
        return {"policy": torch.zeros(N, 2)}, torch.zeros(N), flags, flags, {}


@pytest.mark.parametrize(("kind", "sent"), [(Choosing, [-1, 1, 0]), (ChoosingLab, [[-1], [1], [0]])])
def test_discrete_actions_reach_a_simulator_as_its_numbers(kind, sent):
    env = kind()
    sim = SimEnv(InProcess(env))
    assert (sim.about["action_size"], sim.about["discrete"]) == (3, True)
    sim.reset(seed=0)
    sim.step(np.eye(3, dtype=np.float32)[[0, 2, 1]])
    assert env.numbers[-1] == sent
