"""ANYmal against a transcription of its tables, and on its feet."""

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from envs.isaac.anymal import DEFAULT, Anymal
from envs.isaac.base import IsaacParams
from envs.physics import FACTORS, Drive, Physics
from envs.physics.fields import scaled_fields
from tests.envs.isaac.common import Stepped, mjx_run, noise_of, random_actions, run

COM = np.array([-0.01779, -0.00018, 0.0085])
LEGS = ("LF", "LH", "RF", "RH")


@pytest.fixture(scope="module")
def task():
    return Anymal()


def transcribed(qpos, qvel, command, action):
    """The 48 numbers of one copy, as the reference's table lists them."""
    rotation = Rotation.from_quat(qpos[[4, 5, 6, 3]])
    w = rotation.apply(qvel[3:6])
    v = qvel[:3] + np.cross(w, rotation.apply(COM))
    obs = np.empty(48)
    obs[0:3] = 2.0 * rotation.inv().apply(v)
    obs[3:6] = 0.25 * rotation.inv().apply(w)
    obs[6:9] = rotation.apply([0, 0, -1])
    obs[9:12] = command * [2.0, 2.0, 0.25]
    obs[12:24] = qpos[7:] - np.array([0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, -0.03, -0.4, 0.8])
    obs[24:36] = 0.05 * qvel[6:]
    obs[36:48] = action
    return np.clip(obs, -5, 5)


def placed(task, qpos, qvel=None, force=0.0):
    """One copy's physics at ``qpos`` (19,), with every joint torque ``force``."""
    data = mujoco.MjData(task.model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(task.model, data)
    mats = data.geom_xmat.reshape(1, -1, 3, 3).copy()
    found = {"geom_xpos": data.geom_xpos[None].copy(), "geom_xmat": mats, "actuator_force": np.full((1, 12), force)}
    return Physics(qpos=data.qpos[None].copy(), qvel=np.zeros((1, 18)) if qvel is None else qvel[None], **found)


def standing(height=0.6, joints=DEFAULT):
    return np.concatenate([[0, 0, height, 1, 0, 0, 0], joints])


def result(task, physics, memory, action=None):
    action = np.zeros((1, 12)) if action is None else action
    return task.outcome(np, physics, memory[None], action, Drive(np.zeros((1, 12))), IsaacParams())


def test_the_observation_is_the_table_index_by_index(task):
    stepped = Stepped(task, 5)
    command = stepped.memory.copy()
    np.testing.assert_allclose(
        stepped.obs, [transcribed(*x, np.zeros(12)) for x in zip(stepped.qpos, stepped.qvel, command, strict=True)]
    )
    for action in 1.3 * random_actions(task, 25, 5):
        found = stepped.step(action)
        np.testing.assert_array_equal(stepped.memory, command)
        rows = zip(stepped.qpos, stepped.qvel, command, np.clip(action, -1, 1), strict=True)
        np.testing.assert_allclose(found.obs, [transcribed(*row) for row in rows], atol=1e-12)
    assert np.ptp(found.obs, axis=0).min() > 0.0


def test_the_model_has_the_robots_mass_frames_and_joints(task):
    model = task.model
    assert model.body_mass.sum() == pytest.approx(52.135, abs=1e-3)
    names = [model.joint(model.actuator_trnid[i, 0]).name for i in range(12)]
    assert names == [f"{leg}_{joint}" for leg in LEGS for joint in ("HAA", "HFE", "KFE")]
    data = mujoco.MjData(model)
    data.qpos[:] = standing()
    mujoco.mj_kinematics(model, data)
    feet = np.array([data.geom(f"{leg}_FOOT").xpos for leg in LEGS])
    np.testing.assert_allclose(feet[:, 2] - 0.03 - 0.6, -0.543, atol=1e-3)  # soles
    np.testing.assert_array_equal(np.sign(feet[:, :2]), [[1, 1], [-1, 1], [1, -1], [-1, -1]])


def test_the_torque_that_counts_is_the_servos_after_its_limit(task):
    stepped = Stepped(task, 3)
    for action in random_actions(task, 10, 3):
        found = stepped.step(action)
        tracking = [transcribed(*x, np.zeros(12)) for x in zip(stepped.qpos, stepped.qvel, stepped.memory, strict=True)]
        v, w = np.array(tracking)[:, :2] / 2, np.array(tracking)[:, 5] * 4
        best = np.exp(-np.sum((stepped.memory[:, :2] - v) ** 2, -1) / 0.25)
        best += 0.5 * np.exp(-((stepped.memory[:, 2] - w) ** 2) / 0.25)
        paid = best - found.reward / 0.02  # 2.5e-5 sum tau^2, up to the limit of 80 N m
        assert (paid[found.reward > 0] > 0.0).all()
        assert (paid[found.reward > 0] <= 2.5e-5 * 12 * 80**2).all()


@pytest.mark.parametrize("legs", ["stance", "drawn up"])
def test_a_touch_of_the_base_or_a_thigh_ends_the_episode_and_one_of_a_shank_does_not(task, legs):
    joints = DEFAULT.copy()
    if legs == "drawn up":
        joints[1::3] = 1.5  # thighs along the body
    qpos = standing(1.0, joints)
    lowest = task.lowest(np, placed(task, qpos))[0]
    for gap, ends in ((1e-3, False), (-1e-3, True)):
        qpos[2] = 1.0 - lowest + gap
        assert bool(result(task, placed(task, qpos), np.zeros(3)).terminated[0]) == ends
    shanks = result(task, placed(task, standing(0.45)), np.zeros(3))  # feet well under the floor
    assert not shanks.terminated[0]


def test_the_lowest_point_is_the_shapes(task):
    """Against points on the surfaces of all shapes that count."""
    rng, kinds = np.random.default_rng(0), mujoco.mjtGeom
    directions = rng.normal(size=(20000, 3))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    for _ in range(5):
        qpos = standing(1.0, rng.uniform(-1, 1, 12))
        qpos[3:7] = rng.normal(size=4)
        qpos[3:7] /= np.linalg.norm(qpos[3:7])
        physics, heights = placed(task, qpos), []
        for geom in task.guarded:
            size, kind = task.model.geom_size[geom], task.model.geom_type[geom]
            if kind == kinds.mjGEOM_BOX:
                points = np.sign(directions) * size
            elif kind == kinds.mjGEOM_CYLINDER:
                radial = directions[:, :2] / np.linalg.norm(directions[:, :2], axis=-1, keepdims=True)
                points = np.concatenate([size[0] * radial, size[1] * np.sign(directions[:, 2:])], -1)
            else:
                along = size[1] * (kind == kinds.mjGEOM_CAPSULE) * np.sign(directions[:, 2])
                points = size[0] * directions + along[:, None] * [0, 0, 1]
            heights.append((physics.geom_xpos[0, geom] + points @ physics.geom_xmat[0, geom].T)[:, 2].min())
        assert task.lowest(np, physics)[0] == pytest.approx(min(heights), abs=1e-4)


def test_resets_follow_the_references_law(task):
    start = task.start(np, noise_of(task, 10000), IsaacParams())
    q, v, command = start.qpos[:, 7:], start.qvel[:, 6:], start.memory
    np.testing.assert_array_equal(start.qpos[:, :7], np.tile([0, 0, 0.62, 1, 0, 0, 0], (10000, 1)))
    assert not start.qvel[:, :6].any()
    factors = q / DEFAULT
    for values, low, high in ((factors, 0.5, 1.5), (v, -0.1, 0.1), (command / [2, 1, 1], -1, 1)):
        assert low <= values.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < values.max() <= high
        np.testing.assert_allclose(values.mean(axis=0), 0.5 * (low + high), atol=0.015 * (high - low))
    assert len(np.unique(q, axis=0)) == 10000


def test_both_channels_are_live_and_damping_is_the_servos_velocity_gain(task):
    actions = random_actions(task, 20, 2)
    plain = Stepped(task, 2).along(actions)
    np.testing.assert_array_equal(plain, Stepped(task, 2).along(actions))
    for factors in ({"gravity": 0.8}, {"joint_damping": 1.3}):
        assert np.abs(Stepped(task, 2, **factors).along(actions) - plain).max() > 1e-3
    fields = scaled_fields(task.model, FACTORS["joint_damping"], np.array(1.3))
    expected = task.model.actuator_biasprm.copy()
    expected[:, 2] *= 1.3
    np.testing.assert_allclose(fields["actuator_biasprm"], expected, rtol=1e-15)
    np.testing.assert_array_equal(expected[:, :3], [[0.0, -85.0, -2.6]] * 12)


def test_the_omni_variant_moves_targets_and_judges_by_what_was_before():
    task = Anymal("omni")
    model = task.model
    np.testing.assert_array_equal(model.actuator_biasprm[0, :3], [0.0, -400.0, -40.0])
    np.testing.assert_array_equal(Anymal().model.actuator_biasprm[0, :3], [0.0, -85.0, -2.0])
    stepped, action = Stepped(task, 2), 0.5 * random_actions(task, 3, 2)
    np.testing.assert_allclose(stepped.qpos[:, 7:], [DEFAULT] * 2)
    first, moved = stepped.step(action[0]), action[0].reshape(2, 3, 4).swapaxes(1, 2).reshape(2, 12)  # leg by leg
    np.testing.assert_allclose(stepped.memory[:, 3:15], np.clip(DEFAULT + 13.5 / 60 * moved, task.low, task.high))
    speeds = stepped.qvel[:, 6:].copy()
    second = stepped.step(action[1])
    np.testing.assert_array_equal(stepped.memory[:, 15:27], action[1])
    np.testing.assert_array_equal(stepped.memory[:, 27:], stepped.qvel[:, 6:])
    obs, command = second.obs, stepped.memory[:, :3]
    assert np.abs(obs[:, :6]).max() < 5.0  # so that velocities can be read off
    v, w = obs[:, :3] / 2, obs[:, 3:6] * 4
    expected = np.exp(-np.sum((command[:, :2] - v[:, :2]) ** 2, -1) / 0.25)
    expected += 0.5 * np.exp(-((command[:, 2] - w[:, 2]) ** 2) / 0.25) - 0.03 * v[:, 2] ** 2
    expected -= 0.0003 * np.sum((stepped.qvel[:, 6:] - speeds) ** 2, -1)
    expected -= 0.006 * np.sum((action[1] - action[0]) ** 2, -1)
    expected -= 0.06 * np.sum(np.abs(stepped.qpos[:, 7::3] - DEFAULT[::3]), -1)
    np.testing.assert_allclose(second.reward, np.maximum(expected / 60, 0.0), atol=1e-12)
    assert first.reward.shape == (2,)
    low = placed(task, standing(0.5))
    fallen = task.outcome(np, low, stepped.memory[:1], action[2][:1], Drive(np.zeros((1, 12))), IsaacParams())
    assert (fallen.reward[0], bool(fallen.terminated[0])) == (-1.0, True)


@pytest.mark.slow
def test_mjx_moves_as_the_c_engine_and_pays_the_same_in_contact(task):
    """Contact is chaotic, so single copies part after some steps; what they earn must not."""
    actions = random_actions(task, 200, 32)
    theirs, (obs, reward, _) = run(task, actions), mjx_run(task, actions)
    np.testing.assert_allclose(obs[:3], theirs.obs[:3], atol=1e-4)  # in the air
    assert np.isfinite(reward).all()
    assert abs(reward.mean() - theirs.reward.mean()) < 0.1 * np.abs(theirs.reward).mean()
