"""Drift through a simulator's calls: from nominal values read once, in quanta, read back, without moving the state."""

import numpy as np
import pytest

from envs.bridge import errors
from tests.envs.bridge.common import LIMIT, short
from tests.envs.bridge.common import torch as installed

torch = installed()

from envs.bridge.host import InProcess, SimEnv  # noqa: E402
from tests.envs.bridge.fake_gym import FakeGym, Handled  # noqa: E402
from tests.envs.bridge.lab import TorchLabTask  # noqa: E402

N = 3


class Disturbed(FakeGym):
    """Setting the joints of a copy moves them."""

    def set_actor_dof_properties(self, env, handle, props):
        super().set_actor_dof_properties(env, handle, props)
        env[0].dof[env[1]] += 0.01


def simulated(name="isaac_ant", label="Ant", gym=FakeGym, limit=LIMIT, **options):
    env = Handled(short(name, limit), N)
    env.gym = gym()
    simulation = InProcess(env, label, **options)
    env.sim.calls.clear()
    return env, SimEnv(simulation)


def calls(env, name):
    return [value for call, value in env.sim.calls if call == name]


@pytest.mark.parametrize(("name", "gravity", "damping"), [("isaac_ant", -9.81, 0.1), ("isaac_ingenuity", -3.721, 0.0)])
def test_what_is_set_is_the_factor_times_what_was_there_at_the_start(name, gravity, damping):
    env, sim = simulated(name, "Ant" if damping else "Ingenuity")
    assert sim.about["nominal"] == {"gravity": gravity, "joint_damping": damping}
    assert sim.about["inert"] == ([] if damping else ["joint_damping"])
    for scale in (0.8, 1.2, 1.1):
        sim.drift(scale, scale)
    np.testing.assert_allclose(calls(env, "set_sim_params"), [s * gravity for s in (0.8, 1.2, 1.1)], rtol=1e-12)
    set_joints = [value for copy, value in calls(env, "set_actor_dof_properties") if copy == 0]
    np.testing.assert_allclose(set_joints, [s * damping for s in (0.8, 1.2, 1.1)] if damping else [], rtol=1e-12)


def test_small_changes_of_the_damping_wait_until_they_add_up_and_gravity_never_waits():
    env, sim = simulated()
    for scale in (1.002, 1.004, 1.006, 1.007):
        sim.drift(scale, scale)
    assert len(calls(env, "set_sim_params")) == 4
    assert calls(env, "set_actor_dof_properties") == [(i, pytest.approx(0.1006)) for i in range(N)]


def test_on_reset_a_copy_gets_its_damping_when_its_episode_begins():
    """Although every step has equal values, and also at a restart in the middle of episodes."""
    env, sim = simulated(mode="on_reset", limit=5)
    sim.reset(seed=0)

    def stepped(scale):
        sim.drift(1.0, scale)
        sim.step(np.zeros((N, 8), np.float32))
        return calls(env, "set_actor_dof_properties")

    assert not stepped(1.2)
    sim.simulation.simulation.pending[1] = True
    assert stepped(1.2) == [(1, pytest.approx(0.12))]
    assert [stepped(1.2) for _ in range(3)][-1] == [(1, pytest.approx(0.12))]  # episodes end in the last step
    assert stepped(1.2)[1:] == [(i, pytest.approx(0.12)) for i in (0, 2)]
    stepped(1.1)
    sim.reset(seed=1)
    assert calls(env, "set_actor_dof_properties")[3:] == [(i, pytest.approx(0.11)) for i in range(N)]


def test_a_simulator_that_does_not_do_what_it_is_told_is_noticed():
    env, sim = simulated()
    env.sim.deaf = 1e-3
    with pytest.raises(errors.SimBridgeError, match=r"gravity was set to -7\.848 and reads back as -7\.85"):
        sim.drift(0.8, 1.0)
    env.sim.deaf = 0.0
    sim.drift(0.9, 1.0)
    env.sim.deaf = -1e-3
    with pytest.raises(errors.SimBridgeError, match=r"joint_damping was set to 0\.12 and reads back as 0\.11988"):
        sim.drift(0.9, 1.2)


def test_a_state_that_moved_is_written_back_once_and_the_probe_tells():
    env, sim = simulated(gym=Disturbed)
    assert sim.about["damping_disturbs_state"] is True
    sim.reset(seed=0)
    before = env.sim.dof.copy()
    sim.drift(1.0, 1.2)
    np.testing.assert_array_equal(env.sim.dof, before)
    assert len(calls(env, "set_dof_state_tensor")) == len(calls(env, "set_actor_root_state_tensor")) == 1
    assert env.sim.factors()[1] == pytest.approx(1.2)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("actuator", ["ImplicitActuator", "DCMotor"])
def test_isaac_labs_damping_acts_once_whoever_exerts_it(actuator, version):
    """The simulator for implicit actuators, the actuator's own gain for explicit ones; and it goes back."""
    env = TorchLabTask(short(), N, actuator=actuator, version=version)
    handed_out, sim = env.legs.damping, SimEnv(InProcess(env))
    assert sim.about["nominal"]["joint_damping"] == pytest.approx(0.1)
    for scale in (0.8, 1.2, 1.0):
        sim.drift(scale, scale)
        assert env.gravity[2] == pytest.approx(-9.81 * scale)
        assert env._params().joint_damping == pytest.approx(scale)
        assert float(env.damping.max()) == pytest.approx(0.1 * scale * (actuator == "ImplicitActuator"))
        assert float(handed_out[0, 0]) == pytest.approx(0.1 * scale)


def test_isaac_labs_damping_is_read_back_at_the_start_and_learned_actuators_have_none():
    with pytest.raises(errors.SimBridgeError, match=r"joint_damping was set to 0\.099 and reads back as 0\.1"):
        InProcess(TorchLabTask(short(), N, deaf=True))
    learned = SimEnv(InProcess(TorchLabTask(short(), N, actuator="ActuatorNetLSTM")))
    learned.drift(0.9, 1.0)
    with pytest.raises(errors.SimBridgeError, match=r"ActuatorNetLSTM.*nominal 0\.1"):
        learned.drift(0.9, 1.1)
