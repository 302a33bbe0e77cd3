"""A simulator in a process of its own: the same numbers, and every way in which it can end."""

import multiprocessing
import subprocess
import sys

import numpy as np
import pytest

from envs.bridge import errors
from envs.bridge.transport import SCRIPT, Worker
from tests.envs.bridge.common import LIMIT, ROOT, short_ant, short_lab
from tests.envs.bridge.common import torch as installed

torch = installed()

from envs.bridge.host import InProcess  # noqa: E402

N = 4
HERE = "tests.envs.bridge."


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def opened(factory, **options):
    worker = Worker(HERE + factory, N, **options)
    worker.drift({"gravity": 0.9, "joint_damping": 1.2})
    return worker


@pytest.mark.parametrize(
    ("factory", "build", "final"),
    [("common:short_ant", short_ant, False), pytest.param("common:short_lab", short_lab, True, marks=pytest.mark.slow)],
)
def test_a_worker_gives_the_numbers_of_the_same_simulation_in_this_process(factory, build, final):
    worker, here = opened(factory, simulation={"final": final}), InProcess(build(N, 0), final=final)
    here.drift({"gravity": 0.9, "joint_damping": 1.2})
    assert worker.about == here.about
    for ours, theirs in zip(worker.restart(5), here.restart(5), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    random, before = np.random.default_rng(0), None
    for _ in range(3 * LIMIT):
        actions = random.uniform(-1, 1, (N, 8)).astype(np.float32)
        rows, expected = worker.step(actions), here.step(actions)
        assert (rows.final is None) is not final
        for ours, theirs in zip(rows, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        if before is not None:  # two slots: what the step before handed out still stands
            np.testing.assert_array_equal(before[0], before[1])
        before = rows.obs, rows.obs.copy()
    process = worker._process
    worker.close()
    assert process.returncode == 0


@pytest.fixture
def mortal(monkeypatch, tmp_path):
    fate = tmp_path / "fate"
    monkeypatch.setenv("FATE", str(fate))
    worker = opened("points:mortal", timeout=3.0)
    worker.restart(0)
    yield worker, fate
    worker.close()


def test_actions_are_checked_before_they_are_sent_and_a_dead_worker_is_reported(mortal):
    """With its exit code and the lines that it printed last."""
    worker, fate = mortal
    actions = np.zeros((N, 2), np.float32)
    with pytest.raises(errors.SimBridgeError, match=r"actions must have shape \(4, 2\); got \(4, 1\)"):
        worker.step(actions[:, :1])
    with pytest.raises(errors.SimBridgeError, match="float32, as there is no silent cast; got float64"):
        worker.step(np.zeros((N, 2)))
    with pytest.raises(errors.SimBridgeError, match="action of 4 of 4 copies is not finite at step 1, that of copy 0"):
        worker.step(actions + np.float32(np.nan))
    worker.step(actions)
    fate.write_text("die")
    with pytest.raises(errors.SimBridgeError, match=r"exit code 17; it printed last:\n(.*\n)*the simulator has had"):
        worker.step(actions)


def test_a_worker_that_hangs_is_ended(mortal):
    worker, fate = mortal
    fate.write_text("hang")
    with pytest.raises(errors.SimBridgeError, match=r"did not answer within 3 s and was ended"):
        worker.step(np.zeros((N, 2), np.float32))
    assert worker._process.poll() is not None


def test_the_child_goes_when_its_parent_is_gone():
    ours, theirs = multiprocessing.Pipe()
    number = theirs.fileno()
    child = subprocess.Popen([sys.executable, str(SCRIPT), str(number), str(number)], pass_fds=[number])
    theirs.close()
    ours.send_bytes(b'{"command": "nonsense"}')
    assert b"AttributeError" in ours.recv_bytes()
    ours.close()
    assert child.wait(20) == 0
