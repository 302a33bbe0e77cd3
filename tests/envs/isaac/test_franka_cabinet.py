"""The Franka arm and its drawer against a transcription of their tables."""

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import envs
from envs.isaac.base import IsaacParams
from envs.isaac.franka_cabinet import DEFAULT, FrankaCabinet, Grasp
from envs.physics import FACTORS, Drive, Physics
from envs.physics.fields import scaled_fields
from tests.envs.isaac.common import Stepped, noise_of, random_actions

LOW = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973, 0, 0])
HIGH = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973, 0.04, 0.04])


@pytest.fixture(scope="module")
def task():
    return FrankaCabinet()


def kinematics(task, qpos):
    data = mujoco.MjData(task.model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(task.model, data)
    mujoco.mj_comPos(task.model, data)
    return data


def frame_of(data, body):
    return data.body(body).xpos, Rotation.from_matrix(data.body(body).xmat.reshape(3, 3))


def grasp_of(task, data):
    """The frames of one copy, from the matrices of the bodies."""
    place, turn = frame_of(data, "link7")
    hand = turn * Rotation.from_euler("z", -45, degrees=True)
    return Grasp(
        hand=place + turn.apply([0, 0.04, 0.1654]),
        forward=hand.apply([0, 0, 1]),
        up=hand.apply([0, 1, 0]),
        drawer=data.body("drawer_top").xpos + np.array([0.3, 0.01, 0]),
        left=data.body("leftfinger").xpos,
        right=data.body("rightfinger").xpos,
    )


def transcribed(task, qpos, qvel):
    """The 23 numbers of one copy, as the reference's table lists them."""
    grasp, obs = grasp_of(task, kinematics(task, qpos)), np.empty(23)
    obs[0:9] = 2 * (qpos[1:] - LOW) / (HIGH - LOW) - 1
    obs[9:18] = 0.1 * qvel[1:]
    obs[18:21] = grasp.drawer - grasp.hand
    obs[21], obs[22] = qpos[0], qvel[0]
    return np.clip(obs, -5, 5)


def reference_reward(grasp, opened, action):
    """The sum as the reference writes it, one copy."""
    d = np.linalg.norm(grasp.hand - grasp.drawer)
    near = (1 / (1 + d**2)) ** 2 * (2 if d <= 0.02 else 1)
    c1, c2 = grasp.forward @ [-1, 0, 0], grasp.up @ [0, 0, 1]
    turned = 0.5 * (np.sign(c1) * c1**2 + np.sign(c2) * c2**2)
    around = grasp.left[2] > grasp.drawer[2] and grasp.right[2] < grasp.drawer[2]
    a = 0.5 * around
    f = around * ((0.04 - abs(grasp.left[2] - grasp.drawer[2])) + (0.04 - abs(grasp.right[2] - grasp.drawer[2])))
    r = 2 * near + 0.5 * turned + 0.25 * a + 7.5 * (opened * a + opened) + 5 * f - 0.01 * np.sum(action**2)
    r += 0.5 * (opened > 0.01) + a * (opened > 0.2) + 2 * a * (opened > 0.39)
    behind = min(grasp.left[0], grasp.right[0]) < grasp.drawer[0] - 0.04
    return -1.0 if behind else r


def around_the_handle(opened):
    """A gripper level with the handle, 1 cm before it, fingers 2 cm above and below."""
    drawer = np.array([[0.3515 + opened, 0.01, 0.7172]])
    unit = np.eye(3)[:, None]
    fingers = {"left": drawer + 0.02 * unit[2], "right": drawer - 0.02 * unit[2]}
    return Grasp(hand=drawer + 0.01 * unit[0], forward=-unit[0], up=unit[2], drawer=drawer, **fingers)


def test_the_observation_is_the_table_index_by_index(task):
    stepped = Stepped(task, 4)
    rows = zip(stepped.qpos, stepped.qvel, strict=True)
    np.testing.assert_allclose(stepped.obs, [transcribed(task, *row) for row in rows], atol=1e-12)
    for action in 1.3 * random_actions(task, 15, 4):
        stepped.rows[:, stepped.engine.positions.start] = 0.1  # so that the drawer shows
        found = stepped.step(action)
        rows = zip(stepped.qpos, stepped.qvel, strict=True)
        np.testing.assert_allclose(found.obs, [transcribed(task, *row) for row in rows], atol=1e-9)
        grasps = [grasp_of(task, kinematics(task, qpos)) for qpos in stepped.qpos]
        clipped = np.clip(action, -1, 1)
        expected = [reference_reward(*each) for each in zip(grasps, stepped.qpos[:, 0], clipped, strict=True)]
        np.testing.assert_allclose(found.reward, expected, atol=1e-9)


def test_the_frames_are_the_references_at_its_default_pose(task):
    data = kinematics(task, [0, *DEFAULT])
    assert task.model.body("link1").subtreemass[0] == pytest.approx(15.982 + 0.709 + 2 * 0.022, abs=1e-3)
    assert task.model.body("drawer_top").mass[0] == pytest.approx(5.33)
    known = {"xpos": data.xpos[None], "xquat": data.xquat[None]}
    grasp = task.grasp(np, Physics(qpos=data.qpos[None], qvel=np.zeros((1, 10)), **known))
    for found, expected in (
        (grasp.hand, (0.7844, 0.0823, 0.8199)),
        (grasp.drawer, (0.3515, 0.01, 0.7172)),
        (grasp.left, (0.7591, 0.0710, 0.8287)),
        (grasp.right, (0.7576, 0.0618, 0.7593)),
    ):
        np.testing.assert_allclose(found[0], expected, atol=6e-5)
    assert np.linalg.norm(grasp.hand - grasp.drawer) == pytest.approx(0.451, abs=1e-3)
    np.testing.assert_array_equal(task.low, LOW)
    np.testing.assert_array_equal(task.high, HIGH)


@pytest.mark.parametrize(
    ("opened", "bonus"), [(0.005, 0.0), (0.02, 0.5), (0.25, 0.5 + 0.5), (0.395, 0.5 + 0.5 + 2 * 0.5)]
)
def test_the_reward_climbs_with_the_drawer(task, opened, bonus):
    """2 D, doubled within 2 cm, 0.5 R, 0.25 A, 7.5 (x A + x), 5 F, the ladder; an action of 1 costs 0.01."""
    action, near = np.eye(9)[:1], 2 * (1 / (1 + 0.01**2)) ** 2
    expected = 2 * near + 0.5 + 0.25 * 0.5 + 7.5 * 1.5 * opened + 5 * (2 * 0.02) - 0.01 + bonus
    qpos = np.array([[opened, *DEFAULT]])
    grasp = around_the_handle(opened)
    assert task.reward(np, grasp, qpos, action)[0] == pytest.approx(expected)
    behind = grasp._replace(right=grasp.right - [0.0401, 0, 0])
    assert task.reward(np, behind, qpos, action)[0] == -1.0
    off = grasp._replace(right=grasp.left)  # both above: neither around nor fingers count
    expected -= 0.125 + 7.5 * 0.5 * opened + 0.2 + (bonus - 0.5 if bonus else 0.0)
    assert task.reward(np, off, qpos, action)[0] == pytest.approx(expected)


def test_the_omni_variant_pays_more_for_the_fingers_and_forgives_them():
    task, grasp, qpos = FrankaCabinet("omni"), around_the_handle(0.005), np.array([[0.005, *DEFAULT]])
    near = 2 * (1 / (1 + 0.01**2)) ** 2
    expected = 2 * near + 0.5 + 10 * 0.5 + 7.5 * 1.5 * 0.005 + 100 * 0.04 + 10 * (0.005 + 0.005)
    assert task.reward(np, grasp, qpos, np.zeros((1, 9)))[0] == pytest.approx(expected)
    behind = grasp._replace(right=grasp.right - [0.1, 0, 0])
    assert task.reward(np, behind, qpos, np.zeros((1, 9)))[0] == pytest.approx(expected)
    assert task.model.opt.timestep * task.substeps == pytest.approx(1 / 60)
    assert FrankaCabinet().model.opt.timestep * task.substeps == pytest.approx(0.0166)


def test_an_open_drawer_is_success_and_ends_the_episode(task):
    for opened, ends in ((0.39, False), (0.3901, True)):
        data = kinematics(task, [opened, *DEFAULT])
        known = {"xpos": data.xpos[None], "xquat": data.xquat[None]}
        physics = Physics(qpos=data.qpos[None], qvel=np.zeros((1, 10)), **known)
        found = task.outcome(np, physics, DEFAULT[None], np.zeros((1, 9)), Drive(DEFAULT[None]), IsaacParams())
        assert bool(found.terminated[0]) == ends
    assert envs.make("isaac_franka_cabinet", engine="mujoco").env.spec.time_limit == 499


@pytest.mark.parametrize("damping", [0.7, 1.0, 1.3])
def test_joints_keep_to_their_speed_whatever_the_damping(task, damping):
    stepped = Stepped(task, 8, joint_damping=damping)
    speeds = []
    for action in np.sign(random_actions(task, 120, 8, 3)):
        stepped.step(action)
        speeds.append(np.abs(stepped.qvel[:, 1:8]))
    fastest = np.max(speeds, axis=(0, 1))
    assert (fastest < 1.4 * np.array([2.175] * 4 + [2.61] * 3)).all()


def test_resets_follow_the_references_law(task):
    start = task.start(np, noise_of(task, 10000), IsaacParams())
    q = start.qpos[:, 1:]
    assert not start.qpos[:, 0].any()
    assert not start.qvel.any()
    np.testing.assert_array_equal(start.memory, q)
    assert (q >= LOW).all()
    assert (q <= HIGH).all()
    np.testing.assert_allclose(np.ptp(q[:, :7], axis=0), 0.25, atol=1e-3)
    np.testing.assert_allclose(q[:, :7].mean(axis=0), DEFAULT[:7], atol=4e-3)
    shut, wide = (q[:, 7:] == 0.0).mean(), (q[:, 7:] == 0.04).mean()  # 0.035 +- 0.125, clipped
    np.testing.assert_allclose([shut, wide], [0.36, 0.48], atol=0.02)


def test_damping_is_live_and_gravity_inert(task):
    actions = random_actions(task, 100, 3)
    plain = Stepped(task, 3).along(actions)
    assert np.abs(Stepped(task, 3, joint_damping=1.3).along(actions) - plain).max() > 1e-3
    assert np.abs(Stepped(task, 3, gravity=1.2).along(actions) - plain).max() < 1e-3
    assert envs.make("isaac_franka_cabinet", engine="mujoco").inert == ("gravity",)
    fields = scaled_fields(task.model, FACTORS["joint_damping"], np.array(0.7))
    bias = task.model.actuator_biasprm.copy()
    bias[:, 2] *= 0.7
    np.testing.assert_allclose(fields["actuator_biasprm"], bias, rtol=1e-15)
    np.testing.assert_allclose(fields["dof_damping"], [7.0] + [0.0] * 9)
