"""Properties of single Isaac tasks: starts without overlap, targets and goals in turn, layouts, shapes."""

import copy

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from envs.isaac import frames
from envs.isaac.allegro_hand import GOAL, GOALS, AllegroHand
from envs.isaac.anymal import Anymal
from envs.isaac.base import IsaacParams
from envs.isaac.humanoid import Humanoid
from envs.isaac.ingenuity import Ingenuity
from envs.physics import Drive, Physics
from tests.envs.isaac.common import noise_of, params_of, starts
from tests.quick import quick

UPRIGHT = [1.0, 0.0, 0.0, 0.0]


def test_progress_is_resolved_in_float32():
    """Two distances of a kilometre are not subtracted."""
    target, before = np.array([1000.0, 0.0]), np.array([[0.3, 0.1], [5.0, -2.0]])
    now = before + np.array([[1e-2, 1e-3], [-2e-3, 4e-3]])
    exact = (np.linalg.norm(target - before, axis=-1) - np.linalg.norm(target - now, axis=-1)) / 0.0166
    single = frames.progress(jnp, *(jnp.asarray(x, jnp.float32) for x in (before, now, target)), 0.0166)
    np.testing.assert_allclose(single, exact, rtol=1e-4)


def test_no_start_of_the_humanoid_has_overlapping_legs():
    """MuJoCo parts bodies that overlap with up to a kilojoule."""
    task, count = Humanoid(), 100
    model, start = copy.copy(task.model), starts(task, count)
    low, high = model.jnt_range[1:].T
    data = mujoco.MjData(model)
    first = np.clip(np.clip(0, low, high) + 0.2 * noise_of(task, count, 3)[:, :21], low, high)
    overlap = task.gap(np, first) < 0.0
    assert 0.1 < overlap.mean() < 0.4
    np.testing.assert_array_equal(start.qpos[~overlap, 7:], first[~overlap])
    assert (task.gap(np, start.qpos[:, 7:]) > 0.0).all()
    np.testing.assert_allclose(quick(lambda q: task.gap(jnp, q))(jnp.float32(first)), task.gap(np, first), atol=1e-5)
    for qpos, drawn in zip(start.qpos, first, strict=True):
        data.qpos[:], data.qpos[7:] = qpos, drawn
        mujoco.mj_forward(model, data)
        nearest = min(mujoco.mj_geomDistance(model, data, *pair, 1.0, None) for pair in task._pairs.T)
        assert task.gap(np, drawn) == pytest.approx(nearest, abs=1e-6)
    inwards = np.tile(np.where(np.isin(np.arange(21), [3, 9]), 0.2, 0.0), (1, 8, 1))  # all draws overlap
    np.testing.assert_array_equal(task.choose(np, inwards)[0], np.clip(0.0, low, high))


def test_a_new_target_comes_with_the_500th_step_and_may_be_out_of_reach():
    task = Ingenuity()
    physics = Physics(qpos=np.array([[4.0, 4.0, 1.0, *UPRIGHT]]), qvel=np.zeros((1, 6)))
    memory = np.array([[4, 4, 1, *[-5, -5, 1] * 3, 499]], float)
    step = lambda memory: task.outcome(np, physics, memory, np.zeros((1, 6)), None, params_of(1))  # noqa: E731
    before = step(memory)
    assert not before.terminated[0]
    assert before.reward[0] == pytest.approx(7.0)  # at the target, upright and still
    after = step(before.memory)
    np.testing.assert_allclose(after.obs[0, :3], [-3, -3, 0])
    assert after.terminated[0]
    assert after.reward[0] > 0
    assert (Ingenuity(time_limit=499).memory_size, Ingenuity(time_limit=500).memory_size) == (4, 7)
    assert task.start(np, noise_of(task, 1), params_of(1)).memory[0, -1] == 1  # as the reference counts


def test_reaching_the_goal_pays_and_the_next_observation_is_the_first_to_show_a_new_one():
    task, turns = AllegroHand(), ((0.3, -0.7), (0.9, 0.1))
    first, second = (Rotation.from_euler("x", np.pi * x) * Rotation.from_euler("y", np.pi * y) for x, y in turns)
    goals = np.full((GOALS, 2), 0.25)
    goals[:2] = turns

    def result(memory, angle=0.0):
        cube = np.roll((Rotation.from_rotvec([angle, 0, 0]) * first).as_quat(), 1)
        physics = Physics(qpos=np.concatenate([np.zeros(16), GOAL, cube])[None], qvel=np.zeros((1, 22)))
        return task.outcome(np, physics, memory, np.zeros((1, 16)), Drive(np.zeros((1, 16))), IsaacParams())

    memory = np.append(goals.ravel(), 0.0)[None]
    for angle, success in ((0.0, True), (0.0999, True), (0.1001, False)):
        found = result(memory, angle)
        assert found.reward[0] == pytest.approx(1 / (angle + 0.1) + 250 * success, rel=1e-6)
        assert (found.memory[0, -1], bool(found.terminated[0])) == (success, False)
    for goal, held in ((first, memory), (second, result(memory).memory)):
        after = result(held)
        np.testing.assert_allclose(np.abs(after.obs[0, 64:68] @ goal.as_quat()), 1.0)
    assert after.memory[0, -1] == 1.0


def test_the_hands_shorter_layouts_leave_sensors_or_velocities_out():
    omni, still, task = AllegroHand("omni"), AllegroHand(observation="full_no_vel"), AllegroHand()
    rng = np.random.default_rng(0)
    physics = Physics(qpos=rng.uniform(-1, 1, (3, 23)), qvel=rng.uniform(-1, 1, (3, 22)))
    memory = np.concatenate([noise_of(task, 3)[:, 21:], np.zeros((3, 1))], axis=-1)
    full, short = (each.opening(np, physics, memory, IsaacParams())[0] for each in (task, still))
    np.testing.assert_array_equal(short, np.delete(full, [*range(16, 48), *range(55, 61)], axis=1))
    assert (omni.obs_size, still.obs_size) == (72, 50)


def test_anymals_lowest_point_is_that_of_its_shapes():
    """Against points on the surfaces of all shapes that count."""
    task, rng, kinds = Anymal(), np.random.default_rng(0), mujoco.mjtGeom
    data = mujoco.MjData(task.model)
    directions = rng.normal(size=(20000, 3))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    for _ in range(3):
        turn = rng.normal(size=4)
        data.qpos[:], heights = [0, 0, 1, *turn / np.linalg.norm(turn), *rng.uniform(-1, 1, 12)], []
        mujoco.mj_kinematics(task.model, data)
        physics = Physics(geom_xpos=data.geom_xpos[None], geom_xmat=data.geom_xmat.reshape(1, -1, 3, 3))
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
