"""Error messages for a missing or incomplete simulator: every cause with its remedy."""

import importlib.util
import re
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

from envs.bridge.host import InProcess  # noqa: E402
from envs.bridge.torch_tasks import TorchVecTask  # noqa: E402
from tests.envs.bridge.fake_gym import Handled  # noqa: E402

PLAIN = short()


#: Modules of the interpreter, task, and the message of the worker's start.
STARTS = [
    ({}, "Ant", "cannot import isaacgym: install it there.*--sim-python.*isaac_ant"),
    ({}, "Isaac-Ant-Direct-v0", "cannot import isaaclab"),
    (
        {"isaacgym": "1 / 0\n"},
        "Ant",
        r"failed with ZeroDivisionError(.*\n)*.*isaacgym",
    ),
]


@pytest.mark.parametrize(("modules", "task", "text"), STARTS, ids=range(len(STARTS)))
def test_a_simulator_that_cannot_be_had(monkeypatch, tmp_path, modules, task, text):
    for name, source in modules.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(errors.SimBridgeError, match=text):
        Worker(task, 2, options={"sim_device": "cpu"})


#: Messages of simulators that fail in known ways, error and its remedy.
CAUSES = [
    (RuntimeError("No gym module found for the active version of Python (3.11)"), r"3\.6 to 3\.8"),
    (ImportError("libpython3.8.so.1.0: cannot open shared object file"), "LD_LIBRARY_PATH"),
    (ImportError("PyTorch was imported before isaacgym modules. torch"), "isaacgym must be"),
    (ModuleNotFoundError("No module named 'omni'", name="omni.kit"), "AppLauncher.* must be started"),
    (AttributeError("module 'numpy' has no attribute 'float'"), "needs a numpy below 1.24"),
    (RuntimeError("Ninja is required to load C++ extensions"), "pip install ninja"),
    (ImportError("libcuda.so.1: cannot open shared object file"), "NVIDIA driver"),
    (RuntimeError("CUDA error: no kernel image is available"), "which PyTorch .* was not built for"),
]


@pytest.mark.parametrize(("error", "text"), CAUSES, ids=range(len(CAUSES)))
def test_a_known_failure_has_its_remedy(error, text):
    spec = importlib.util.spec_from_file_location("worker_under_test", SCRIPT)
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    assert re.search(text, worker.explained(error, "Ant"))


def test_an_interpreter_that_is_none(tmp_path):
    with pytest.raises(errors.SimBridgeError, match=r"nowhere.* cannot be started .*--sim-python"):
        Worker("Ant", 2, python=str(tmp_path / "nowhere"))


def test_names_that_no_simulator_has():
    with pytest.raises(errors.SimBridgeError, match=r"'Annt'; did you mean 'Ant'.*Gym: Ant.*Isaac-Ant-Direct-v0"):
        envs.make("bridge:Annt")
    with pytest.raises(errors.SimBridgeError, match="immediate or on_reset; got 'later'"):
        InProcess(Handled(PLAIN, 2), mode="later")


def test_a_simulation_has_one_run_and_one_drift():
    env = BridgeEnv(lambda num: InProcess(TorchVecTask(PLAIN, num)), InProcess(TorchVecTask(PLAIN, 1)).about)
    words = np.zeros((2, 4), np.uint32)
    words[:, -2:] = np.array([[1.0, 1.0], [0.9, 1.0]], np.float32).view(np.uint32)
    with pytest.raises(errors.SimBridgeError, match="gravity is one number; runs of other drifts take turns"):
        env.guarded(env._host_start)(words)
    assert "gravity is one number" in env.failed()
    assert env.failed() is None
    words = np.zeros((2, 11), np.uint32)
    words[1, 0] = 5
    with pytest.raises(errors.SimBridgeError, match="interleave runs"):
        env._host_step(words)
    words = np.zeros((2, 4), np.uint32)
    words[:, -2:] = np.ones(2, np.float32).view(np.uint32)
    env._host_start(words)
    words = np.concatenate([np.full((2, 1), 7, np.uint32), words[:, -2:], np.zeros((2, 8), np.uint32)], 1)
    with pytest.raises(errors.SimBridgeError, match="step 7 was requested from a simulation at step 0"):
        env._host_step(words)


def test_without_pytorch_the_bridge_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError):
        import torch  # noqa: F401
    for function in (lambda: TorchVecTask(PLAIN, 2), lambda: InProcess(None)):
        with pytest.raises(errors.TorchNotInstalledError, match=r"pip install torch==2\.13\.0"):
            function()
