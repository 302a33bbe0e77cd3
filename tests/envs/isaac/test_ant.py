"""Ant against its definition, written down a second time."""

import copy

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import envs
from envs.isaac.ant import Ant
from envs.physics import Physics, batch
from tests.envs.isaac.common import mjx_run, params_of, random_actions, run
from tests.envs.isaac.walker import physics_of, root_numbers, wrench_of

N = 16
LOW = np.deg2rad([-40, 30, -40, -100, -40, -100, -40, 30])
HIGH = np.deg2rad([40, 100, 40, -30, 40, -30, 40, 100])
MIDDLE = (LOW + HIGH) / 2
FEET = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")


@pytest.fixture(scope="module")
def task():
    return Ant()


def outcome(task, physics, action=None, before=None):
    action = np.zeros((1, 8)) if action is None else np.asarray(action, float)[None]
    before = physics.qpos[:, :2] if before is None else np.asarray(before, float)[None]
    return task.outcome(np, physics, before, action, None, params_of(1))


def test_every_observed_number_is_the_definitions(task):
    rng = np.random.default_rng(0)
    rotation, position = Rotation.random(random_state=1), np.array([3.0, -4.0, 0.7])
    linear, angular = rng.normal(size=3), rng.normal(size=3)
    q, qd, action = rng.uniform(LOW, HIGH), rng.normal(size=8), rng.uniform(-1.5, 1.5, 8)
    found = outcome(task, physics_of(task, position, rotation, linear, angular, q, qd), action).obs[0]
    assert found.shape == (60,)
    np.testing.assert_allclose(found[:12], root_numbers(position, rotation, linear, angular, False, 1.0), atol=1e-9)
    np.testing.assert_allclose(found[12:20], (2 * q - LOW - HIGH) / (HIGH - LOW))
    np.testing.assert_allclose(found[20:28], 0.2 * qd)
    np.testing.assert_array_equal(found[28:52], 0.0)
    np.testing.assert_allclose(found[52:60], np.clip(action, -1, 1))


def test_the_angle_to_the_target_takes_the_height_for_y(task):
    found = outcome(task, physics_of(task, (0.0, 500.0, 300.0))).obs[0, 9]
    assert found == pytest.approx(np.arctan2(-300, 1000))


@pytest.mark.parametrize("variant", ["gym", "omni"])
def test_feet_feel_force_and_torque_in_their_own_frame(variant):
    task, rng = Ant(variant), np.random.default_rng(4)
    bodies = task.model.nbody
    frames, com = Rotation.random(bodies, random_state=3).as_matrix(), rng.normal(size=(bodies, 3))
    forces = {task.felt[0]: np.zeros((bodies, 6)), "subtree_com": com, "xmat": frames}
    forces["xpos"] = rng.normal(size=(bodies, 3))
    expected = []
    for foot in FEET:
        force, point, at = rng.normal(size=3), rng.normal(size=3), task.model.body(foot).id
        forces = wrench_of(task, foot, force, point, **forces)
        torque = np.cross(point - forces["xpos"][at], force)
        expected += [*(frames[at].T @ force), *(frames[at].T @ torque)]
    found = outcome(task, physics_of(task, **forces)).obs[0, 28:52]
    np.testing.assert_allclose(found, 0.1 * np.array(expected), atol=1e-12)


def test_feet_can_feel_all_that_acts_on_them_or_nothing(task):
    """The net force is the change of momentum; of a foot at rest, none."""
    net, h = Ant(foot_sensor="net"), 1e-5
    model, feet = copy.copy(task.model), [task.model.body(foot).id for foot in FEET]
    model.opt.timestep = h
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    data.qpos[2], data.qpos[7:], data.qvel[:] = 0.3, MIDDLE, rng.normal(size=14)
    data.ctrl[:] = rng.uniform(-1, 1, 8)

    def momenta():
        places, jacobian = [], np.empty((3, model.nv))
        for foot in feet:
            mujoco.mj_jacBodyCom(model, data, jacobian, None, foot)
            places.append(model.body_mass[foot] * jacobian @ data.qvel)
        return np.array(places)

    mujoco.mj_step(model, data, 3)
    mujoco.mj_forward(model, data)
    mujoco.mj_rnePostConstraint(model, data)
    assert data.ncon
    names = ("cfrc_ext", "cfrc_int", "xpos", "xipos", "subtree_com", "qpos", "qvel")
    physics = Physics(xmat=data.xmat.reshape(1, -1, 3, 3).copy(), **{n: getattr(data, n)[None].copy() for n in names})
    found = 10 * outcome(net, physics).obs[0, 28:52].reshape(4, 6)
    before = momenta()
    mujoco.mj_step(model, data)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    force = np.einsum("fij,fj->fi", physics.xmat[0, feet], found[:, :3])
    np.testing.assert_allclose(force, (momenta() - before) / h, atol=0.02 * np.abs(force).max())
    assert np.abs(10 * run(net, np.zeros((400, 1, 8))).obs[-1, 0, 28:52]).max() < 1e-2
    nothing = run(Ant(foot_sensor="zero"), random_actions(task, 20, 2)).obs
    np.testing.assert_array_equal(nothing[..., 28:52], 0.0)
    np.testing.assert_array_equal(nothing[..., :28], run(task, random_actions(task, 20, 2)).obs[..., :28])


def test_forces_are_those_that_mujoco_computes_afterwards(task, monkeypatch):
    def played(computes):
        monkeypatch.setattr(batch, "_computes_forces", lambda model: computes)
        return run(task, random_actions(task, 60, 4)).obs

    bound, looped = played(True), played(False)
    assert np.abs(looped[..., 28:52]).max() > 0.1
    np.testing.assert_allclose(bound, looped, atol=1e-9)


def test_reward_has_its_golden_values(task):
    assert outcome(task, physics_of(task, q=MIDDLE)).reward[0] == pytest.approx(1.1)
    ahead = outcome(task, physics_of(task, (0.0166, 0.0, 1.0), q=MIDDLE), before=(0.0, 0.0)).reward[0]
    assert ahead == pytest.approx(2.1)  # one metre per second
    sideways = physics_of(task, rotation=Rotation.from_euler("z", 60, degrees=True), q=MIDDLE)
    assert outcome(task, sideways).reward[0] == pytest.approx(0.5 + 0.1 + 0.5 * 0.5 / 0.8)
    tilted = physics_of(task, rotation=Rotation.from_euler("x", 0.4), q=MIDDLE)
    assert outcome(task, tilted).reward[0] == pytest.approx(0.5 + 0.5)  # cos 0.4 < 0.93
    action, qd = np.linspace(-1, 1, 8), np.linspace(5, -3, 8)
    costs = 0.005 * np.sum(action**2) + 0.05 * np.sum(np.abs(action * 0.2 * qd))
    assert outcome(task, physics_of(task, q=MIDDLE, qd=qd), action).reward[0] == pytest.approx(1.1 - costs)


def test_joint_limits_cost_at_the_upper_end_only(task):
    assert outcome(task, physics_of(task, q=HIGH)).reward[0] == pytest.approx(1.1 - 0.8)
    assert outcome(task, physics_of(task, q=LOW)).reward[0] == pytest.approx(1.1)


@pytest.mark.parametrize(("height", "fallen"), [(0.31, False), (0.3099, True)])
def test_falls_below_its_height_for_minus_two(task, height, fallen):
    found = outcome(task, physics_of(task, (0.0, 0.0, height), q=MIDDLE), before=(-5.0, 0.0))
    assert found.terminated[0] == fallen
    assert (found.reward[0] == -2.0) == fallen


@pytest.mark.parametrize("drift", [{"gravity": 1.2}, {"joint_damping": 1.3}])
def test_both_channels_change_the_walk(task, drift):
    actions = random_actions(task, 20, N)
    base = run(task, actions)
    assert np.abs(run(task, actions, **drift).qpos - base.qpos).max() > 1e-3
    assert envs.make("isaac_ant").inert == ()


@pytest.mark.slow
def test_mjx_moves_as_the_c_engine(task):
    """Seven steps in the air and the rest on the floor; what remains is float32."""
    actions = 0.5 * random_actions(task, 20, 8)
    theirs, (obs, reward, terminated) = run(task, actions), mjx_run(task, actions)
    difference = (np.abs(obs - theirs.obs) + 1) % (2 * np.pi) - 1  # yaw and roll jump by a turn
    assert np.abs(difference[:7]).max() < 2e-4
    assert np.abs(difference).max() < 2e-3
    np.testing.assert_allclose(reward, theirs.reward, atol=1e-3)
    np.testing.assert_array_equal(terminated, theirs.terminated)
