"""Error messages for a missing or incomplete simulator: every cause with its remedy.

Simulators that fail in the known ways are stood in for by modules that raise their messages.
"""

import importlib.util
import sys

import numpy as np
import pytest

import envs
from envs.bridge import errors
from envs.bridge.env import BridgeEnv
from envs.bridge.transport import SCRIPT, Worker
from tests.envs.bridge.common import short
from tests.envs.bridge.common import torch as installed

torch = installed()

from envs.bridge.host import InProcess, SimEnv  # noqa: E402
from envs.bridge.torch_tasks import TorchVecTask  # noqa: E402

PLAIN = short()


def started(monkeypatch, tmp_path, modules, task="Ant", **options):
    """A worker whose interpreter finds these modules: name -> source."""
    for name, source in modules.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Worker(task, 2, options={"sim_device": "cpu"}, **options)


def raising(kind, text):
    return f"raise {kind}({text!r})\n"


CAUSES = [
    ({}, "Ant", errors.SimulatorNotInstalledError, "cannot import isaacgym: install it there.*--sim-python.*isaac_ant"),
    ({}, "FrankaCabinet", errors.SimulatorNotInstalledError, "run our own isaac_franka_cabinet"),
    ({"isaacgym": ""}, "Ant", errors.SimulatorNotInstalledError, "cannot import isaacgymenvs"),
    ({}, "Isaac-Ant-Direct-v0", errors.SimulatorNotInstalledError, "cannot import isaaclab"),
    (
        {"isaacgym": raising("RuntimeError", "No gym module found for the active version of Python (3.11)")},
        "Ant",
        errors.PythonVersionError,
        r"Python 3\.6 to 3\.8; .* is \d\.\d+",
    ),
    (
        {"isaacgym": raising("ImportError", "libpython3.8.so.1.0: cannot open shared object file")},
        "Ant",
        errors.PythonVersionError,
        "LD_LIBRARY_PATH",
    ),
    (
        {"isaacgym": "import torch\n" + raising("ImportError", "PyTorch was imported before isaacgym modules. torch")},
        "Ant",
        errors.ImportOrderError,
        "torch was imported first; isaacgym must be",
    ),
    (
        {"isaaclab": "", "isaaclab_": "", "omni": ""},
        "Isaac-Ant-Direct-v0",
        errors.SimulatorNotInstalledError,
        "isaaclab",
    ),
    (
        {"isaacgym": "", "isaacgymenvs": raising("AttributeError", "module 'numpy' has no attribute 'float'")},
        "Ant",
        errors.SimulatorDependencyError,
        "want of numpy .* needs a numpy below 1.24",
    ),
    (
        {"isaacgym": raising("RuntimeError", "Ninja is required to load C++ extensions")},
        "Ant",
        errors.SimulatorDependencyError,
        "pip install ninja",
    ),
    (
        {"isaacgym": raising("RuntimeError", "Error building extension 'gymtorch'")},
        "Ant",
        errors.SimulatorDependencyError,
        r"needs a C\+\+ compiler",
    ),
    (
        {"isaacgym": raising("ImportError", "libcuda.so.1: cannot open shared object file")},
        "Ant",
        errors.SimulatorDependencyError,
        "NVIDIA driver",
    ),
    (
        {"isaacgym": "", "isaacgymenvs": raising("RuntimeError", "CUDA error: no kernel image is available")},
        "Ant",
        errors.UnsupportedGpuError,
        rf"compute capability unknown, which PyTorch {torch.__version__.split('+')[0]}",
    ),
]


@pytest.mark.parametrize(("modules", "task", "kind", "text"), CAUSES, ids=range(len(CAUSES)))
def test_a_simulator_that_cannot_be_had(monkeypatch, tmp_path, modules, task, kind, text):
    with pytest.raises(kind, match=text):
        started(monkeypatch, tmp_path, modules, task)


def test_a_lab_module_before_the_app():
    spec = importlib.util.spec_from_file_location("worker_under_test", SCRIPT)
    assert spec
    assert spec.loader
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    kind, text = worker.explained(ModuleNotFoundError("No module named 'omni'", name="omni.kit"), "Isaac-Ant-Direct-v0")
    assert kind == "ImportOrderError"
    assert text == "omni.kit was imported first; the app (isaaclab.app.AppLauncher) must be started"
    with pytest.raises(worker.Refused, match="torch was imported first; isaacgym must be"):
        worker.build("Ant", 2, 0, {"sim_device": "cpu"})  # in this process, which has torch
    assert worker.explained(ZeroDivisionError(), "Ant") is None


def test_anything_else_is_reported_with_the_workers_traceback(monkeypatch, tmp_path):
    with pytest.raises(errors.SimBridgeError, match="the simulator failed with ZeroDivisionError: division") as caught:
        started(monkeypatch, tmp_path, {"isaacgym": "1 / 0\n"})
    assert "import isaacgym" in str(caught.value)


def test_an_interpreter_that_is_none(tmp_path):
    with pytest.raises(errors.SimulatorNotInstalledError, match=r"nowhere.* cannot be started .*--sim-python"):
        Worker("Ant", 2, python=str(tmp_path / "nowhere"))


def test_names_that_no_simulator_has():
    with pytest.raises(errors.UnknownTaskError, match=r"'Annt'; did you mean 'Ant'.*Gym: Ant.*Isaac-Ant-Direct-v0"):
        envs.make("bridge:Annt")
    with pytest.raises(errors.SimBridgeError, match="immediate or on_reset; got 'later'"):
        InProcess(TorchVecTask(PLAIN, 2), mode="later")


class Broken(TorchVecTask):
    """Returns what `break_` makes of the observations and rewards."""

    def step(self, actions):
        obs, reward, *rest = super().step(actions)
        obs["obs"], reward = self.break_(obs["obs"], reward) if hasattr(self, "break_") else (obs["obs"], reward)
        return obs, reward, *rest


def poisoned(obs, reward):
    obs[1:, 3] = float("nan")
    return obs, reward


@pytest.mark.parametrize(
    ("break_", "kind", "text"),
    [
        (
            lambda o, r: (o[:, :59], r),
            errors.ShapeMismatchError,
            r"observation must have shape \(3, 60\); got \(3, 59\)",
        ),
        (lambda o, r: (o.double(), r), errors.DtypeError, "observation must be float32.*no silent cast; got float64"),
        (lambda o, r: (o, r.requires_grad_()), errors.GradTensorError, "reward requires a gradient.*detach first"),
        (poisoned, errors.NonFiniteError, "observation of 2 of 3 copies is not finite at step 1, that of copy 1 first"),
    ],
    ids=["shape", "dtype", "grad", "nan"],
)
def test_what_a_simulator_returns_is_checked(break_, kind, text):
    task = Broken(PLAIN, 3)
    env = SimEnv(InProcess(task))
    env.reset(seed=0)
    task.break_ = break_
    with pytest.raises(kind, match=text):
        env.step(np.zeros((3, 8), np.float32))


def test_what_a_simulator_is_given_is_checked():
    env = SimEnv(InProcess(TorchVecTask(PLAIN, 3)))
    with pytest.raises(errors.SimBridgeError, match="before the first reset"):
        env.step(np.zeros((3, 8), np.float32))
    env.reset(seed=0)
    with pytest.raises(errors.ShapeMismatchError, match=r"\(3, 8\); got \(2, 8\)"):
        env.step(np.zeros((2, 8), np.float32))
    with pytest.raises(errors.DtypeError, match="got float64"):
        env.step(np.zeros((3, 8)))


def test_a_simulation_has_one_run_and_one_drift():
    env = BridgeEnv(lambda num: InProcess(TorchVecTask(PLAIN, num)), InProcess(TorchVecTask(PLAIN, 1)).about)
    words = np.zeros((2, 4), np.uint32)
    words[:, -2:] = np.array([[1.0, 1.0], [0.9, 1.0]], np.float32).view(np.uint32)
    with pytest.raises(errors.DriftNotSupportedError, match="gravity is one number; runs of other drifts take turns"):
        env._guarded(env._host_start)(words)
    assert isinstance(env.failed(), errors.DriftNotSupportedError)
    assert env.failed() is None
    words = np.zeros((2, 11), np.uint32)
    words[1, 0] = 5
    with pytest.raises(errors.ProtocolVersionError, match="interleave runs"):
        env._host_step(words)
    words = np.zeros((2, 4), np.uint32)
    words[:, -2:] = np.ones(2, np.float32).view(np.uint32)
    env._host_start(words)
    words = np.concatenate([np.full((2, 1), 7, np.uint32), words[:, -2:], np.zeros((2, 8), np.uint32)], 1)
    with pytest.raises(errors.ProtocolVersionError, match="step 7 was requested from a simulation at step 0"):
        env._host_step(words)


def test_without_pytorch_the_bridge_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError):
        import torch  # noqa: F401
    for function in (lambda: TorchVecTask(PLAIN, 2), lambda: InProcess(None)):
        with pytest.raises(errors.TorchNotInstalledError, match=r"pip install torch==2\.13\.0"):
            function()
