"""Observations, rewards and ends against the references' formulas, transcribed for random states, in both variants."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from envs.isaac.allegro_hand import GOAL, AllegroHand
from envs.isaac.anymal import DEFAULT, Anymal
from envs.isaac.base import IsaacParams
from envs.isaac.franka_cabinet import FrankaCabinet, Grasp
from envs.isaac.humanoid import Humanoid
from envs.isaac.ingenuity import Ingenuity
from envs.isaac.walkers import Ant
from envs.physics import Drive, Physics
from tests.quick import quick

N = 500
VARIANTS = pytest.mark.parametrize("variant", ["gym", "omni"])
GEARS = np.array([67.5] * 3 + [45, 45, 135, 90, 22.5, 22.5] * 2 + [67.5, 67.5, 45] * 2)
#: The successor's order of the humanoid's joints.
BY_LEVEL = [0, 1, 15, 16, 18, 19, 2, 17, 20, 3, 5, 4, 9, 11, 10, 6, 12, 7, 8, 13, 14]


def wxyz(turn):
    return np.roll(turn.as_quat(), 1, axis=-1)


def both(call, physics, *batched):
    """``call`` with NumPy, of all states; with JAX it is equal of each state alone."""
    theirs = call(np, physics, *batched, IsaacParams())
    jax.clear_caches()  # of programs before, which had constants of a module in single precision
    with jax.enable_x64(True):
        of_one = lambda fields, *own: call(jnp, Physics(**fields), *own, IsaacParams())  # noqa: E731
        ours = quick(jax.vmap(of_one))(vars(physics), *batched)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return theirs


def free_body(rng, com):
    """Position, rotation, velocity of the centre of mass and rad/s in world axes, and MuJoCo's ``qvel`` of it."""
    turn, place = Rotation.random(N, random_state=1), rng.uniform((-2, -2, 0.2), (2, 2, 1.6), (N, 3))
    linear, angular = rng.normal(size=(2, N, 3))
    root = np.concatenate([linear - np.cross(angular, turn.apply(com)), turn.inv().apply(angular)], -1)
    return place, turn, linear, angular, root


def wrapped(angle):
    return (angle + np.pi) % (2 * np.pi) - np.pi


@VARIANTS
@pytest.mark.parametrize("kind", [Ant, Humanoid])
def test_walkers(kind, variant):
    task, rng, ant, gym = kind(variant), np.random.default_rng(0), kind is Ant, variant == "gym"
    joints, bodies = task.action_size, task.model.nbody
    order = np.array(BY_LEVEL) if not ant and not gym else np.arange(joints)
    place, turn, linear, angular, root = free_body(rng, task.model.body_ipos[1])
    before = place[:, :2] + rng.normal(scale=0.02, size=(N, 2))
    low, high = task.model.jnt_range[1:].T
    q, qd = rng.uniform(low - 0.05, high + 0.05, (N, joints)), 5 * rng.normal(size=(N, joints))
    actions = rng.uniform(-1.5, 1.5, (N, joints))
    frames = Rotation.random(N * bodies, random_state=2).as_matrix().reshape(N, bodies, 3, 3)
    wrench, origin, com = (rng.normal(size=(N, bodies, k)) for k in (6, 3, 3))
    motors, passive = rng.normal(size=(2, N, 6 + joints))
    physics = Physics(
        qpos=np.concatenate([place, wxyz(turn), q], -1), qvel=np.concatenate([root, qd], -1), xmat=frames, xpos=origin,
        subtree_com=np.broadcast_to(com[:, 1:2], com.shape), qfrc_actuator=motors, qfrc_passive=passive,
        **{"cfrc_ext" if gym else "cfrc_int": wrench},
    )  # fmt: skip
    found = both(task.outcome, physics, before, actions, Drive(actions))

    actions, q, qd = np.clip(actions, -1, 1), q[:, order], qd[:, order]
    roll, _, yaw = turn.as_euler("xyz").T
    ahead = np.arctan2(-place[:, 2], 1000 - place[:, 0])  # the height where y belongs
    angles = np.stack([yaw, roll, ahead - yaw], -1)
    if ant and gym:
        angles = np.stack([yaw % (2 * np.pi), roll % (2 * np.pi), ahead - yaw % (2 * np.pi)], -1)
    flat = np.array([1000.0, 0.0]) - place[:, :2]
    heading = np.sum(turn.apply([1, 0, 0])[:, :2] * flat, -1) / np.linalg.norm(flat, axis=-1)
    up = turn.apply([0, 0, 1])[:, 2]
    scaled = (2 * q - (low + high)[order]) / (high - low)[order]
    speeds = qd * (0.2 if ant else 0.1)
    names = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")
    names = names if ant else ("right_foot", "left_foot")[:: 1 if gym else -1]
    feet = []
    for foot in (task.model.body(name).id for name in names):
        torque, force = wrench[:, foot, :3], wrench[:, foot, 3:]
        torque = torque + np.cross(com[:, 1] - origin[:, foot], force)  # about the foot's origin
        feet += [np.einsum("nij,ni->nj", frames[:, foot], each) for each in (force, torque)]
    forces = [0.01 * (motors + passive)[:, 6:]] if gym and not ant else []
    obs = [place[:, 2:], turn.inv().apply(linear), (1.0 if ant else 0.25) * turn.inv().apply(angular)]
    obs += [angles if ant and gym else wrapped(angles), up[:, None], heading[:, None], scaled, speeds, *forces]
    obs += [(0.1 if ant else 0.01) * np.concatenate(feet, -1), actions]

    dt, share = 0.0166 if gym else 1 / 60, 1.0 if ant else GEARS[order] / 135
    progress = np.linalg.norm([1000.0, 0.0] - before, axis=-1) - np.linalg.norm(flat, axis=-1)
    near = (0.1 if gym else 1.0) * (scaled > 0.99) if ant else 12.5 * np.maximum(np.abs(scaled) - 0.98, 0.0) * share
    reward = progress / dt + (0.5 if ant else 2.0) + 0.1 * (up > 0.93)
    reward += np.where(heading > 0.8, 0.5, 0.5 * heading / 0.8) - (0.005 if ant else 0.01) * np.sum(actions**2, -1)
    reward -= 0.05 * np.sum(np.abs(actions * speeds) * share, -1) + np.sum(near, -1)
    fallen = place[:, 2] < (0.31 if ant else 0.8)
    np.testing.assert_allclose(found.obs, np.concatenate(obs, -1), atol=1e-9)
    np.testing.assert_allclose(found.reward, np.where(fallen, -2.0 if ant else -1.0, reward), atol=1e-8)
    np.testing.assert_array_equal(found.terminated, fallen)
    torque = both(task.control, physics, before, actions).ctrl[:, order] * task.gears
    power = 1.0 if gym or not ant else 0.5
    np.testing.assert_allclose(torque, actions * (15.0 * power if ant else GEARS[order]))


@VARIANTS
def test_ingenuity(variant):
    task, rng, gym = Ingenuity(variant), np.random.default_rng(1), variant == "gym"
    place, turn, linear, angular, root = free_body(rng, task.model.body_ipos[1])
    target = place + rng.normal(scale=5.0, size=(N, 3)) * rng.uniform(size=(N, 1))
    memory = np.concatenate([np.tile(target, (1, (task.memory_size - 1) // 3)), np.ones((N, 1))], -1)
    physics = Physics(qpos=np.concatenate([place, wxyz(turn)], -1), qvel=root)
    action = rng.uniform(-1.5, 1.5, (N, 6))
    found = both(task.outcome, physics, memory, action, Drive(np.zeros((N, 0))))
    quaternion = turn.as_quat() if gym else wxyz(turn)
    obs = np.clip(np.concatenate([(target - place) / 3, quaternion, linear / 2, angular / np.pi], -1), -5, 5)
    distance, tilt = np.linalg.norm(target - place, axis=-1), np.abs(1 - turn.apply([0, 0, 1])[:, 2])
    near = 1 / (1 + (1.0 if gym else 2.5) * distance**2)
    upright = 5 / (1 + tilt**2) if gym else 1 / (1 + 30 * tilt**2)
    reward = near + near * (upright + 1 / (1 + (1 if gym else 10) * angular[:, 2] ** 2))
    np.testing.assert_allclose(found.obs, obs, atol=1e-9)
    np.testing.assert_allclose(found.reward, reward, atol=1e-9)
    np.testing.assert_array_equal(found.terminated, (distance > (8 if gym else 20)) | (place[:, 2] < 0.5))

    force = torque = 0.0
    for rotor, height in ((0, 0.0), (3, 0.025)):  # a sideways share is bounded by 0.2, or is 0.2 of the action
        share, up = np.clip(action, -1, 1)[:, rotor : rotor + 2], 20 * np.clip(action, -1, 1)[:, rotor + 2, None]
        share = np.clip(share, -0.2, 0.2) if gym else 0.2 * share
        thrust = up * np.concatenate([share, np.ones((N, 1))], -1)
        force, torque = force + thrust, torque + np.cross([0, 0, height] - task.model.body_ipos[1], thrust)
    applied = both(task.control, physics, memory, action).xfrc_applied
    np.testing.assert_allclose(applied[:, 1], np.concatenate([turn.apply(force), turn.apply(torque)], -1), atol=1e-9)
    np.testing.assert_array_equal(applied[:, 0], 0.0)


@VARIANTS
def test_allegro_hand(variant):
    task, rng, gym = AllegroHand(variant), np.random.default_rng(2), variant == "gym"
    low, high = task.model.jnt_range[:16].T
    q, qd, action = rng.uniform(low, high, (N, 16)), rng.normal(size=(N, 16)), rng.uniform(-1.5, 1.5, (N, 16))
    _, turn, linear, angular, root = free_body(rng, np.zeros(3))
    place = GOAL + rng.normal(scale=0.15, size=(N, 3))
    memory = np.concatenate([rng.uniform(-1, 1, (N, task.memory_size - 1)), np.zeros((N, 1))], -1)
    goal = Rotation.from_euler("x", np.pi * memory[:, :1]) * Rotation.from_euler("y", np.pi * memory[:, 1:2])
    close = np.where(np.arange(N) < N // 4, 0.05, 3.0)[:, None]
    turn = Rotation.from_rotvec(close * rng.normal(size=(N, 3))) * goal
    root[:, 3:] = turn.inv().apply(angular)
    physics = Physics(qpos=np.concatenate([q, place, wxyz(turn)], -1), qvel=np.concatenate([qd, root], -1))
    found = both(task.outcome, physics, memory, action, Drive(action))

    action, between = np.clip(action, -1, 1), turn * goal.inv()
    blocks = {
        "joints": (2 * q - low - high) / (high - low), "speeds": 0.2 * qd, "sensors": np.zeros((N, 16)),
        "place": place, "cube": turn, "linear": linear, "angular": 0.2 * angular, "where": np.tile(GOAL, (N, 1)),
        "goal": goal, "between": between, "action": action,
    }  # fmt: skip
    at = 0
    for name, block in blocks.items():
        if name == "sensors" and not gym:  # which the reference never switches on
            continue
        if isinstance(block, Rotation):  # the sign of a quaternion means nothing
            quaternion = found.obs[:, at : at + 4] if gym else np.roll(found.obs[:, at : at + 4], -1, axis=-1)
            np.testing.assert_allclose((Rotation.from_quat(quaternion) * block.inv()).magnitude(), 0.0, atol=1e-7)
            np.testing.assert_allclose(np.linalg.norm(quaternion, axis=-1), 1.0)
            at += 4
        else:
            np.testing.assert_allclose(found.obs[:, at : at + block.shape[1]], np.clip(block, -5, 5), atol=1e-9)
            at += block.shape[1]
    assert found.obs.shape == (N, at)
    distance, angle = np.linalg.norm(place - GOAL, axis=-1), between.magnitude()
    reward = -10 * distance + 1 / (angle + 0.1) - 0.0002 * np.sum(action**2, -1) + 250 * (angle <= 0.1)
    np.testing.assert_allclose(found.reward, reward, atol=1e-5)
    np.testing.assert_array_equal(found.terminated, distance >= 0.24)
    np.testing.assert_array_equal(found.memory[:, -1], angle <= 0.1)
    assert 10 < np.sum(angle <= 0.1) < N // 2


@VARIANTS
def test_anymal(variant):
    task, rng, gym = Anymal(variant), np.random.default_rng(3), variant == "gym"
    order = np.arange(12) if gym else np.array([0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11])  # HAA, HFE, KFE of all legs
    place, turn, linear, angular, root = free_body(rng, task.model.body_ipos[1])
    commands = rng.uniform(-1, 1, (N, 3)) * [2, 1, 1]
    linear[: N // 2] = turn.apply(commands * [1, 1, 0])[: N // 2]  # which tracks
    root[:, :3] = linear - np.cross(angular, turn.apply(task.model.body_ipos[1]))
    q, qd = DEFAULT + rng.normal(scale=0.2, size=(N, 12)), rng.normal(size=(N, 12))
    actions, last = rng.uniform(-1.3, 1.3, (N, 12)), rng.uniform(-1, 1, (N, 12))
    last_speed, targets = qd + rng.normal(scale=0.5, size=(N, 12)), DEFAULT + rng.normal(size=(N, 12))
    memory = commands if gym else np.concatenate([commands, targets, last, last_speed], -1)
    torques, shapes = 20 * rng.normal(size=(N, 12)), np.tile([0.0, 0.0, 1.0], (N, task.model.ngeom, 1))
    shapes[::5, :, 2] = -1.0  # a touch of the ground
    flat = np.tile(np.eye(3), (N, task.model.ngeom, 1, 1))
    free = {"actuator_force": torques, "geom_xpos": shapes, "geom_xmat": flat}
    physics = Physics(qpos=np.concatenate([place, wxyz(turn), q], -1), qvel=np.concatenate([root, qd], -1), **free)
    drive = both(task.control, physics, memory, actions)
    found = both(task.outcome, physics, memory, actions, drive)

    actions, v, w = np.clip(actions, -1, 1), turn.inv().apply(linear), turn.inv().apply(angular)
    obs = [2 * v, 0.25 * w, turn.apply([0, 0, -1]), commands * [2.0, 2.0, 0.25], (q - DEFAULT)[:, order]]
    obs = np.concatenate([*obs, 0.05 * qd[:, order], actions], -1)
    reward = np.exp(-np.sum((commands[:, :2] - v[:, :2]) ** 2, -1) / 0.25)
    reward += 0.5 * np.exp(-((commands[:, 2] - w[:, 2]) ** 2) / 0.25)
    if gym:
        reward, fallen = 0.02 * (reward - 2.5e-5 * np.sum(torques**2, -1)), shapes[:, 0, 2] < 0
        expected, wanted = np.maximum(reward, 0.0), DEFAULT + 0.5 * actions
    else:
        reward -= 0.03 * v[:, 2] ** 2 + 0.0003 * np.sum((last_speed - qd) ** 2, -1)
        reward -= 0.006 * np.sum((last - actions) ** 2, -1) + 0.06 * np.sum(np.abs(q - DEFAULT)[:, ::3], -1)
        fallen = place[:, 2] < 0.51
        expected = np.where(fallen, -1.0, np.maximum(reward / 60, 0.0))
        moved = targets[:, order] + 13.5 / 60 * actions
        wanted = np.clip(moved, *task.model.jnt_range[1:].T[:, order])[:, np.argsort(order)]
        np.testing.assert_allclose(found.memory, np.concatenate([commands, wanted, actions, qd], -1), atol=1e-12)
    np.testing.assert_allclose(drive.ctrl, wanted, atol=1e-12)
    np.testing.assert_allclose(found.obs, np.clip(obs, -5, 5), atol=1e-9)
    np.testing.assert_allclose(found.reward, expected, atol=1e-9)
    np.testing.assert_array_equal(found.terminated, fallen)
    assert np.sum(reward > 0) > N // 10


@VARIANTS
def test_franka_cabinets_reward(variant):
    """Each finger's own place is read; the successor takes the left one's for both."""
    task, rng, gym = FrankaCabinet(variant), np.random.default_rng(4), variant == "gym"
    turn, actions, drawer = Rotation.random(N, random_state=1), rng.uniform(-1, 1, (N, 9)), rng.normal(size=(N, 3))
    hand, left, right = (drawer + rng.normal(scale=scale, size=(N, 3)) for scale in (0.03, 0.04, 0.04))
    left[::2, 2], right[::2, 2] = drawer[::2, 2] + 0.02, drawer[::2, 2] - 0.01
    qpos = rng.uniform(0, 0.04, (N, 10))
    qpos[:, 0] = opened = rng.uniform(-0.05, 0.45, N)
    forward, up = turn.apply([0, 0, 1]), turn.apply([0, 1, 0])
    found = task.reward(np, Grasp(hand, forward, up, drawer, left, right), qpos, actions)
    d = np.linalg.norm(hand - drawer, axis=-1)
    near = (1 / (1 + d**2)) ** 2 * np.where(d <= 0.02, 2, 1)
    aligned = 0.5 * sum(np.sign(x) * x**2 for x in (-forward[:, 0], up[:, 2]))
    above, below = (left - drawer)[:, 2], (right - drawer)[:, 2]
    holds = (above > 0) & (below < 0)
    around, fingers = 0.5 * holds, holds * ((0.04 - np.abs(above)) + (0.04 - np.abs(below)))
    reward = 2 * near + 0.5 * aligned + (0.25 if gym else 10) * around + 7.5 * (opened * around + opened)
    reward += (5 if gym else 100) * fingers - 0.01 * np.sum(actions**2, -1)
    reward += 0.5 * (opened > 0.01) + around * (opened > 0.2) + 2 * around * (opened > 0.39)
    if gym:
        reward[np.minimum(left[:, 0], right[:, 0]) < drawer[:, 0] - 0.04] = -1.0
    else:
        reward += 10 * np.where(d <= 0.03, 0.08 - qpos[:, 8] - qpos[:, 9], 0.0)
    np.testing.assert_allclose(found, reward, atol=1e-9)
    assert 0.2 < np.mean(holds) < 0.9


def test_franka_cabinets_observation_and_end():
    task, rng = FrankaCabinet(), np.random.default_rng(5)
    low, high = task.model.jnt_range[1:].T
    data = mujoco.MjData(task.model)
    for opened in (0.1, 0.39, 0.3901):
        data.qpos[:], data.qvel[:] = np.append(opened, rng.uniform(low, high)), rng.normal(size=10)
        mujoco.mj_kinematics(task.model, data)
        known = {"xpos": data.xpos[None].copy(), "xquat": data.xquat[None].copy()}
        physics = Physics(qpos=data.qpos[None], qvel=data.qvel[None], **known)
        found = task.outcome(np, physics, np.zeros((1, 9)), np.zeros((1, 9)), Drive(np.zeros((1, 9))), IsaacParams())
        link, turn = data.body("link7").xpos, data.body("link7").xmat.reshape(3, 3)
        way = data.body("drawer_top").xpos + np.array([0.3, 0.01, 0.0]) - link - turn @ [0, 0.04, 0.1654]
        joints = 2 * (data.qpos[1:] - low) / (high - low) - 1
        expected = np.clip([*joints, *0.1 * data.qvel[1:], *way, opened, data.qvel[0]], -5, 5)
        np.testing.assert_allclose(found.obs[0], expected, atol=1e-9)
        assert bool(found.terminated[0]) == (opened > 0.39)
