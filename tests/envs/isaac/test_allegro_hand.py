"""The Allegro hand and its cube against a transcription of their tables, and holding it."""

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from envs.isaac.allegro_hand import CUBE, GOAL, GOALS, AllegroHand
from envs.isaac.base import IsaacParams
from envs.physics import FACTORS, Drive, Physics
from envs.physics.fields import scaled_fields
from tests.envs.isaac.common import Stepped, noise_of, random_actions

FINGER_LOW, FINGER_HIGH = [-0.55849, *[-0.27924] * 3], [0.55849, *[1.72783] * 3]
LOW = np.array([*FINGER_LOW * 3, 0.27924, -0.3316, -0.27924, -0.27924])
HIGH = np.array([*FINGER_HIGH * 3, 1.57075, 1.15188, 1.72783, 1.76273])


@pytest.fixture(scope="module")
def task():
    return AllegroHand()


def turned(turns):
    """The rotation of two draws on [-1, 1]: about y, then about x."""
    return Rotation.from_euler("x", np.pi * turns[0]) * Rotation.from_euler("y", np.pi * turns[1])


def wxyz(rotation):
    return np.roll(rotation.as_quat(), 1)


def transcribed(qpos, qvel, turns, action):
    """The 88 numbers of one copy, as the reference's table lists them; the signs of quaternions are not its own."""
    obs, cube, goal = np.zeros(88), Rotation.from_quat(qpos[[20, 21, 22, 19]]), turned(turns)
    obs[0:16] = (2 * qpos[:16] - LOW - HIGH) / (HIGH - LOW)
    obs[16:32] = 0.2 * qvel[:16]
    obs[48:51], obs[51:55] = qpos[16:19], cube.as_quat()
    obs[55:58] = qvel[16:19]
    obs[58:61] = 0.2 * cube.apply(qvel[19:22])
    obs[61:64], obs[64:68] = (0, -0.2, 0.52), goal.as_quat()
    obs[68:72] = (cube * goal.inv()).as_quat()
    obs[72:88] = action
    return np.clip(obs, -5, 5)


def agree(found, expected):
    for at in (51, 64, 68):
        flip = np.sign(np.sum(found[at : at + 4] * expected[at : at + 4]))
        expected[at : at + 4] *= flip
    np.testing.assert_allclose(found, expected, atol=1e-9)


def result(task, place, rotation, memory, action=None):
    """The outcome of one copy's state."""
    qpos = np.concatenate([0.5 * (LOW + HIGH), place, wxyz(rotation)])[None]
    action = np.zeros((1, 16)) if action is None else action
    physics = Physics(qpos=qpos, qvel=np.zeros((1, 22)))
    return task.outcome(np, physics, memory[None], action, Drive(action), IsaacParams())


def memory_of(*turns, count=0.0):
    goals = np.full((GOALS, 2), 0.25)
    goals[: len(turns)] = turns
    return np.append(goals.ravel(), count)


def test_the_observation_is_the_table_index_by_index(task):
    stepped = Stepped(task, 4)
    goals = stepped.memory[:, :2].copy()
    for row in zip(stepped.obs, stepped.qpos, stepped.qvel, goals, strict=True):
        agree(row[0], transcribed(*row[1:], np.zeros(16)))
    for action in 1.3 * random_actions(task, 6, 4):
        found = stepped.step(action)
        assert not stepped.memory[:, -1].any()
        for row in zip(found.obs, stepped.qpos, stepped.qvel, goals, np.clip(action, -1, 1), strict=True):
            agree(row[0], transcribed(*row[1:]))
    assert not found.obs[:, 32:48].any()  # sensors that the reference never switches on


def test_the_shorter_layouts_leave_the_sensors_out_or_all_velocities_too(task):
    omni, slow, rng = AllegroHand("omni"), AllegroHand(observation="full_no_vel"), np.random.default_rng(0)
    qpos, qvel = rng.uniform(-1, 1, (3, 23)), rng.uniform(-1, 1, (3, 22))
    physics, memory = Physics(qpos=qpos, qvel=qvel), noise_of(task, 3)[:, 21:]
    memory = np.concatenate([memory, np.zeros((3, 1))], axis=-1)
    full, short, still = (each.opening(np, physics, memory, IsaacParams())[0] for each in (task, omni, slow))
    scalar_first = full[:, [*range(32), *range(48, 51), 54, *range(51, 54), *range(55, 64), 67, *range(64, 67), 71,
                            *range(68, 71), *range(72, 88)]]  # fmt: skip
    np.testing.assert_array_equal(short, scalar_first)
    np.testing.assert_array_equal(still, np.delete(full, [*range(16, 48), *range(55, 61)], axis=1))
    assert (full.shape, omni.obs_size, slow.obs_size, task.obs_size) == ((3, 88), 72, 50, 88)


def test_the_model_has_the_hands_frames_limits_and_the_cubes_mass(task):
    model = task.model
    np.testing.assert_array_equal([task.low, task.high], [LOW, HIGH])
    fingers = [f"{finger}_{i}" for finger in ("index", "middle", "ring", "thumb") for i in range(4)]
    assert [model.joint(model.actuator_trnid[i, 0]).name for i in range(16)] == fingers
    assert model.body("cube").mass[0] == pytest.approx(0.1099, abs=1e-4)
    np.testing.assert_allclose(model.dof_damping[-3:], 0.5 * model.body("cube").inertia, rtol=1e-2)
    links = sum(model.body(name).mass[0] for name in fingers)
    assert links == pytest.approx(3 * (0.0119 + 0.065 + 0.0355 + 0.0306) + 0.0176 + 0.0119 + 0.038 + 0.0598)
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    for finger in ("index", "middle", "ring"):  # point along -y, sloping down a little, and bend upwards
        way = data.body(f"{finger}_3").xpos - data.body(f"{finger}_1").xpos
        assert (way[1], abs(way[2])) < (-0.09, 0.02)
        before = data.body(f"{finger}_3").xpos[2]
        data.qpos[model.joint(f"{finger}_1").qposadr] = 0.5
        mujoco.mj_kinematics(model, data)
        assert data.body(f"{finger}_3").xpos[2] > before + 0.03


def test_reaching_the_goal_pays_and_the_next_observation_is_the_first_to_show_a_new_one(task):
    memory = memory_of((0.3, -0.7), (0.9, 0.1))
    aligned = turned((0.3, -0.7))
    for angle, success in ((0.0, True), (0.0999, True), (0.1001, False)):
        found = result(task, GOAL, Rotation.from_rotvec([angle, 0, 0]) * aligned, memory)
        expected = 1 / (angle + 0.1) + 250 * success
        assert found.reward[0] == pytest.approx(expected, rel=1e-6)
        assert found.memory[0, -1] == success
    found = result(task, GOAL, aligned, memory)
    assert found.reward[0] > 250
    assert not found.terminated[0]
    np.testing.assert_allclose(np.abs(found.obs[0, 64:68] @ aligned.as_quat()), 1.0)
    after = result(task, GOAL, aligned, found.memory[0])
    np.testing.assert_allclose(np.abs(after.obs[0, 64:68] @ turned((0.9, 0.1)).as_quat()), 1.0)
    assert after.memory[0, -1] == 1.0


def test_distance_and_action_cost_and_a_fall_ends_the_episode(task):
    away = turned((0.3, -0.7)) * Rotation.from_rotvec([0, 1.0, 0])
    action = np.full((1, 16), -2.0)  # clipped to -1
    for distance, falls in ((0.2399, False), (0.2401, True)):
        found = result(task, GOAL - np.array([0, 0, distance]), away, memory_of((0.3, -0.7)), action)
        assert found.reward[0] == pytest.approx(-10 * distance + 1 / 1.1 - 0.0002 * 16)
        assert bool(found.terminated[0]) == falls


def test_the_faithful_reset_follows_the_references_law():
    """With the thumb's first joint below its limit, as there."""
    task = AllegroHand("gym_faithful")
    start = task.start(np, noise_of(task, 10000), IsaacParams())
    q, place = start.qpos[:, :16], start.qpos[:, 16:19]
    for values, low, high in ((q, 0.2 * LOW, 0.2 * HIGH), (place, CUBE - 0.01, CUBE + 0.01)):
        assert (values >= low).all()
        assert (values <= high).all()
        np.testing.assert_allclose(values.mean(axis=0), 0.5 * (low + high), atol=0.015 * (high - low).max())
    assert (q[:, 12] < 0.27924).any()
    assert not start.qvel.any()
    turns = start.memory[:, :-1]
    np.testing.assert_allclose([turns.mean(), turns.var()], [0.0, 1 / 3], atol=0.01)
    up = Rotation.from_quat(np.roll(start.qpos[:, 19:], -1, axis=-1)).apply([0, 0, 1])
    np.testing.assert_allclose(up.mean(axis=0), 0.0, atol=0.03)  # all sides up alike


@pytest.mark.parametrize("damping", [0.7, 1.3])
def test_joints_keep_to_their_speed_whatever_the_damping(task, damping):
    stepped = Stepped(task, 4, joint_damping=damping)
    stepped.rows[:, stepped.engine.positions.start + 18] += 5.0  # the cube out of the way
    fastest = 0.0
    for action in np.sign(random_actions(task, 40, 4)).repeat(4, axis=0):
        stepped.step(action)
        fastest = max(fastest, np.abs(stepped.qvel[:, :16]).max())
    assert 3.0 < fastest < 1.3 * 6.283


def test_gravity_pulls_the_cube_and_not_the_hand(task):
    def fall(**factors):
        stepped = Stepped(task, 2, **factors)
        stepped.rows[:, stepped.engine.positions.start + 18] += 5.0
        return stepped.along(actions)

    actions = random_actions(task, 20, 2)
    plain, heavy, stiff = fall(), fall(gravity=1.2), fall(joint_damping=1.3)
    np.testing.assert_allclose(heavy[..., :16], plain[..., :16], atol=1e-9)
    assert (heavy[-1, :, 18] < plain[-1, :, 18] - 0.2).all()
    assert np.abs(stiff[..., :16] - plain[..., :16]).max() > 1e-2
    np.testing.assert_array_equal(stiff[..., 16:], plain[..., 16:])
    fields = scaled_fields(task.model, FACTORS["joint_damping"], np.array(1.3))
    bias = task.model.actuator_biasprm.copy()
    bias[:, 2] *= 1.3
    np.testing.assert_allclose(fields["actuator_biasprm"], bias, rtol=1e-15)
    np.testing.assert_array_equal(fields["dof_damping"], task.model.dof_damping)  # the cube's drag stays
