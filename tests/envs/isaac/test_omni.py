"""The variant ``omni`` against the reference's torch formulas, transcribed, on random states."""

import numpy as np
import pytest

from envs.isaac.allegro_hand import GOAL, AllegroHand
from envs.isaac.ant import Ant
from envs.isaac.anymal import DEFAULT, Anymal
from envs.isaac.base import IsaacParams
from envs.isaac.franka_cabinet import FrankaCabinet, Grasp
from envs.isaac.humanoid import Humanoid
from envs.isaac.ingenuity import Ingenuity
from envs.physics import Drive, Physics

torch = pytest.importorskip("torch", reason="the reference's formulas are torch's: pip install torch==2.13.0")

N = 2000


def tensor(x):
    return torch.tensor(np.array(x))  # double precision: the formulas are compared, not their rounding


def conjugate(q):
    return q * torch.tensor([1.0, -1.0, -1.0, -1.0])


def product(a, b):
    """Of quaternions (w, x, y, z)."""
    w, u, v, s = a[:, :1], a[:, 1:], b[:, 1:], b[:, :1]
    return torch.cat([w * s - (u * v).sum(-1, keepdim=True), w * v + s * u + torch.linalg.cross(u, v)], -1)


def turned(q, v, inverse=False):
    sign = -1.0 if inverse else 1.0
    w, u = q[:, :1], q[:, 1:]
    return v * (2 * w**2 - 1) + sign * 2 * w * torch.linalg.cross(u, v) + 2 * u * (u * v).sum(-1, keepdim=True)


def of_norm_one(rng, n=N):
    q = rng.normal(size=(n, 4))
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def free_body(rng, com, n=N):
    """Position, orientation, velocities of the centre of mass and rad/s in world axes, and MuJoCo's ``qvel`` of it."""
    place, q = rng.uniform(-2, 2, (n, 3)), of_norm_one(rng, n)
    place[:, 2] = rng.uniform(0.2, 1.6, n)
    linear, angular = rng.normal(size=(2, n, 3))
    arm = turned(tensor(q), tensor(np.broadcast_to(com, (n, 3)))).numpy()
    local = turned(tensor(q), tensor(angular), inverse=True).numpy()
    return place, q, linear, angular, np.concatenate([linear - np.cross(angular, arm), local], -1)


@pytest.mark.parametrize("kind", [Ant, Humanoid])
def test_walkers(kind):
    task, rng = kind("omni"), np.random.default_rng(0)
    joints, ant = task.action_size, kind is Ant
    place, q, linear, angular, root = free_body(rng, task.model.body_ipos[1])
    before = place[:, :2] + rng.normal(scale=0.02, size=(N, 2))
    position = rng.uniform(task.low - 0.05, task.high + 0.05, (N, joints))
    velocity, actions = 5 * rng.normal(size=(N, joints)), rng.uniform(-1, 1, (N, joints))
    bodies, back = task.model.nbody, np.argsort(task.order)
    physics = Physics(
        qpos=np.concatenate([place, q, position[:, back]], -1),
        qvel=np.concatenate([root, velocity[:, back]], -1),
        cfrc_int=np.zeros((N, bodies, 6)),
        xpos=np.zeros((N, bodies, 3)),
        xmat=np.tile(np.eye(3), (N, bodies, 1, 1)),
        subtree_com=np.zeros((N, bodies, 3)),
    )
    found = task.outcome(np, physics, before, actions, Drive(actions), IsaacParams())

    q, place, actions = tensor(q), tensor(place), tensor(actions)
    target, dt = torch.tensor([1000.0, 0.0, 0.0]), 1.0 / 60.0
    flat = (target - place) * torch.tensor([1.0, 1.0, 0.0])
    potentials = -flat.norm(dim=-1) / dt
    previous = -(target[:2] - tensor(before)).norm(dim=-1) / dt
    forward = turned(q, torch.tensor([1.0, 0.0, 0.0]).double().expand(N, 3))
    heading = (forward * flat / flat.norm(dim=-1, keepdim=True)).sum(-1)
    up = turned(q, torch.tensor([0.0, 0.0, 1.0]).double().expand(N, 3))[:, 2]
    w, x, y, z = q.T
    roll = torch.atan2(2 * (w * x + y * z), w * w - x * x - y * y + z * z) % (2 * np.pi)
    yaw = torch.atan2(2 * (w * z + x * y), w * w + x * x - y * y - z * z) % (2 * np.pi)
    ahead = torch.atan2(target[2] - place[:, 2], target[0] - place[:, 0]) - yaw
    angles = torch.stack([yaw, roll, ahead], -1)
    scaled = (2 * tensor(position) - tensor(task.low) - tensor(task.high)) / tensor(task.high - task.low)
    speeds = tensor(velocity) * (0.2 if ant else 0.1)
    obs = torch.cat(
        [
            place[:, 2:],
            turned(q, tensor(linear), inverse=True),
            turned(q, tensor(angular), inverse=True) * (1.0 if ant else 0.25),
            torch.atan2(angles.sin(), angles.cos()),
            up[:, None],
            heading[:, None],
            scaled,
            speeds,
            torch.zeros(N, 6 * len(task.feet)),
            actions,
        ],
        -1,
    )
    gears = np.array([67.5] * 7 + [45] * 3 + [135, 45, 45, 135, 45, 90, 90] + [22.5] * 4)
    share = torch.ones(8) if ant else tensor(gears / gears.max())
    near = scaled > 0.99 if ant else 0.25 * (scaled.abs() > 0.98) * (scaled.abs() - 0.98) / 0.02 * share
    reward = potentials - previous + (0.5 if ant else 2.0) + 0.1 * (up > 0.93)
    reward = reward + torch.where(heading > 0.8, 0.5, 0.5 * heading / 0.8)
    reward = reward - (0.005 if ant else 0.01) * (actions**2).sum(-1)
    reward = reward - 0.05 * ((actions * speeds).abs() * share).sum(-1) - near.sum(-1)
    low = place[:, 2] < (0.31 if ant else 0.8)
    reward = torch.where(low, -2.0 if ant else -1.0, reward)
    np.testing.assert_allclose(found.obs, obs, atol=1e-9)
    np.testing.assert_allclose(found.reward, reward, atol=1e-8)
    np.testing.assert_array_equal(found.terminated, low)
    torque = task.control(np, physics, before, actions.numpy(), IsaacParams()).ctrl[:, task.order] * task.gears
    np.testing.assert_allclose(torque, actions * (7.5 if ant else tensor(gears)))


def test_ingenuity():
    task, rng = Ingenuity("omni"), np.random.default_rng(1)
    place, q, linear, angular, root = free_body(rng, task.model.body_ipos[1])
    target = rng.uniform(-1, 1, (N, 3)) * [1, 1, 0.5] + [0, 0, 1.5]
    targets = np.tile(target, (1, (task.memory_size - 1) // 3))
    memory = np.concatenate([targets, np.ones((N, 1))], -1)
    physics = Physics(qpos=np.concatenate([place, q], -1), qvel=root)
    found = task.outcome(np, physics, memory, np.zeros((N, 6)), Drive(np.zeros((N, 0))), IsaacParams())
    q, place, target = tensor(q), tensor(place), tensor(target)
    obs = torch.cat([(target - place) / 3, q, tensor(linear) / 2, tensor(angular) / np.pi], -1).clamp(-5, 5)
    distance = (target - place).pow(2).sum(-1).sqrt()
    near = 1 / (1 + 2.5 * distance**2)
    tilt = (1 - turned(q, torch.tensor([0.0, 0.0, 1.0]).double().expand(N, 3))[:, 2]).abs()
    reward = near + near * (1 / (1 + 30 * tilt**2) + 1 / (1 + 10 * tensor(angular)[:, 2] ** 2))
    np.testing.assert_allclose(found.obs, obs, atol=1e-9)
    np.testing.assert_allclose(found.reward, reward, atol=1e-9)
    np.testing.assert_array_equal(found.terminated, (distance > 20) | (place[:, 2] < 0.5))


def test_allegro_hand():
    task, rng = AllegroHand("omni"), np.random.default_rng(2)
    joints, speeds, actions = (
        rng.uniform(task.low, task.high, (N, 16)),
        rng.normal(size=(N, 16)),
        rng.uniform(-1, 1, (N, 16)),
    )
    place, q, linear, angular, root = free_body(rng, np.zeros(3))
    place = GOAL + rng.normal(scale=0.15, size=(N, 3))
    memory = np.concatenate([rng.uniform(-1, 1, (N, task.memory_size - 1)), np.zeros((N, 1))], -1)
    memory[: N // 4, :2] = 0.0  # the goal upright, and the cube nearly so
    q[: N // 4] = np.eye(4)[0] + rng.normal(scale=0.03, size=(N // 4, 4))
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    root[:, 3:] = turned(tensor(q), tensor(angular), inverse=True)
    physics = Physics(qpos=np.concatenate([joints, place, q], -1), qvel=np.concatenate([speeds, root], -1))
    found = task.outcome(np, physics, memory, actions, Drive(actions), IsaacParams())
    half, none = 0.5 * np.pi * tensor(memory[:, :2]), torch.zeros(N)
    about_x = torch.stack([half[:, 0].cos(), half[:, 0].sin(), none, none], -1)
    about_y = torch.stack([half[:, 1].cos(), none, half[:, 1].sin(), none], -1)
    goal, q, actions = product(about_x, about_y), tensor(q), tensor(actions)
    between, at = product(q, conjugate(goal)), tensor(GOAL).expand(N, 3)
    scaled = (2 * tensor(joints) - tensor(task.low) - tensor(task.high)) / tensor(task.high - task.low)
    cube = [tensor(place), q, tensor(linear), 0.2 * tensor(angular)]
    obs = torch.cat([scaled, 0.2 * tensor(speeds), *cube, at, goal, between, actions], -1).clamp(-5, 5)
    distance = (tensor(place) - at).norm(dim=-1)
    angle = 2 * torch.asin(between[:, 1:].norm(dim=-1).clamp(max=1.0))
    reward = -10 * distance + 1 / (angle.abs() + 0.1) - 0.0002 * (actions**2).sum(-1)
    reward = torch.where(angle.abs() <= 0.1, reward + 250, reward)
    np.testing.assert_allclose(found.obs, obs, atol=1e-9)
    np.testing.assert_allclose(found.reward, reward, atol=1e-7)
    np.testing.assert_array_equal(found.terminated, distance >= 0.24)
    assert 10 < int((angle <= 0.1).sum()) < N // 2


def test_anymal():
    task, rng = Anymal("omni"), np.random.default_rng(3)
    by_level = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]  # LF, LH, RF, RH of HAA, HFE, KFE
    place, q, linear, angular, root = free_body(rng, task.com)
    default = DEFAULT[by_level]
    position, velocity = default + rng.normal(scale=0.2, size=(N, 12)), rng.normal(size=(N, 12))
    actions, last_actions = rng.uniform(-1, 1, (2, N, 12))
    last_velocity, targets = velocity + rng.normal(scale=0.5, size=(N, 12)), default + rng.normal(size=(N, 12))
    commands = rng.uniform(-1, 1, (N, 3)) * [2, 1, 1]
    linear[: N // 2] = turned(tensor(q), tensor(commands * [1, 1, 0])).numpy()[: N // 2]  # which tracks
    root[:, :3] += linear - root[:, :3] - np.cross(angular, turned(tensor(q), tensor(task.com).expand(N, 3)).numpy())
    in_model = np.argsort(by_level)
    qpos, qvel = (
        np.concatenate([place, q, position[:, in_model]], -1),
        np.concatenate([root, velocity[:, in_model]], -1),
    )
    physics = Physics(qpos=qpos, qvel=qvel, actuator_force=np.zeros((N, 12)))
    memory = np.concatenate([commands, targets[:, in_model], last_actions, last_velocity[:, in_model]], -1)
    drive = task.control(np, physics, memory, actions, IsaacParams())
    found = task.outcome(np, physics, memory, actions, drive, IsaacParams())
    q, actions, commands, dt = tensor(q), tensor(actions), tensor(commands), 1 / 60
    v, w = (turned(q, tensor(x), inverse=True) for x in (linear, angular))
    down = turned(q, torch.tensor([0.0, 0.0, -1.0]).double().expand(N, 3))
    joints = tensor(position - default)
    parts = [2 * v, 0.25 * w, down, commands * torch.tensor([2.0, 2.0, 0.25]), joints, 0.05 * tensor(velocity), actions]
    reward = torch.exp(-((commands[:, :2] - v[:, :2]) ** 2).sum(-1) / 0.25) * 1.0 * dt
    reward = reward + torch.exp(-((commands[:, 2] - w[:, 2]) ** 2) / 0.25) * 0.5 * dt
    reward = reward - 0.03 * dt * v[:, 2] ** 2 - 0.0003 * dt * (tensor(last_velocity - velocity) ** 2).sum(-1)
    reward = reward - 0.006 * dt * ((tensor(last_actions) - actions) ** 2).sum(-1)
    reward = (reward - 0.06 * dt * joints[:, :4].abs().sum(-1)).clamp(min=0.0)
    fallen = tensor(place)[:, 2] < 0.51
    low, high = task.low[by_level], task.high[by_level]
    wanted = (tensor(targets) + 13.5 * actions * dt).clamp(tensor(low), tensor(high))
    np.testing.assert_allclose(drive.ctrl[:, by_level], wanted, atol=1e-12)
    np.testing.assert_allclose(found.obs, torch.cat(parts, -1).clamp(-5, 5), atol=1e-9)
    np.testing.assert_allclose(found.reward, torch.where(fallen, -1.0, reward), atol=1e-9)
    np.testing.assert_array_equal(found.terminated, fallen)
    assert int((reward > 0).sum()) > N // 10


def test_franka_cabinets_reward():
    """Both fingers' own places are read; the reference takes the left one's for both."""
    task, rng = FrankaCabinet("omni"), np.random.default_rng(4)
    q, actions = of_norm_one(rng), rng.uniform(-1, 1, (N, 9))
    drawer = rng.normal(size=(N, 3))
    hand, left, right = (drawer + rng.normal(scale=scale, size=(N, 3)) for scale in (0.03, 0.05, 0.05))
    qpos = rng.uniform(0, 0.04, (N, 10))
    qpos[:, 0] = rng.uniform(-0.05, 0.45, N)
    turn = [turned(tensor(q), torch.eye(3)[i].double().expand(N, 3)) for i in (2, 1)]
    found = task.reward(np, Grasp(hand, turn[0].numpy(), turn[1].numpy(), drawer, left, right), qpos, actions)
    d = tensor(hand - drawer).norm(dim=-1)
    near = (1 / (1 + d**2)) ** 2
    near = torch.where(d <= 0.02, 2 * near, near)
    dots = -turn[0][:, 0], turn[1][:, 2]
    aligned = 0.5 * sum(torch.sign(x) * x**2 for x in dots)
    above, below = tensor(left - drawer)[:, 2], tensor(right - drawer)[:, 2]
    holds = (above > 0) & (below < 0)
    around = 0.5 * holds
    fingers = torch.where(holds, (0.04 - above.abs()) + (0.04 - below.abs()), 0.0)
    close = torch.where(d <= 0.03, (0.04 - tensor(qpos)[:, 8]) + (0.04 - tensor(qpos)[:, 9]), 0.0)
    opened = tensor(qpos)[:, 0]
    reward = 2 * near + 0.5 * aligned + 10 * around + 7.5 * (opened * around + opened) + 100 * fingers
    reward = reward - 0.01 * (tensor(actions) ** 2).sum(-1) + 10 * close
    reward = reward + 0.5 * (opened > 0.01) + around * (opened > 0.2) + 2 * around * (opened > 0.39)
    np.testing.assert_allclose(found, reward, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "gym", "omni"),
    [(Ant, 999, 998), (Humanoid, 999, 998), (Ingenuity, 1998, 1998), (AllegroHand, 598, 598), (Anymal, 2499, 2998),
     (FrankaCabinet, 499, 498)],
)  # fmt: skip
def test_episodes_are_as_long_as_the_references_counter_makes_them(kind, gym, omni):
    assert (kind().time_limit, kind("omni").time_limit, kind(time_limit=7).time_limit) == (gym, omni, 7)
