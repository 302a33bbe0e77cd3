"""A second transcription of what Isaac Gym's Ant and Humanoid observe, for one copy, in NumPy and SciPy."""

import numpy as np
from scipy.spatial.transform import Rotation

from envs.physics import Physics


def physics_of(
    task, position=(0.0, 0.0, 1.0), rotation=None, linear=(0, 0, 0), angular=(0, 0, 0), q=None, qd=None, **f
):
    """One environment, at rest by default; ``linear`` of the torso's centre of mass, world axes, SI units."""
    rotation, joints, bodies = rotation or Rotation.identity(), task.action_size, task.model.nbody
    middle = np.zeros(joints) if q is None else q
    com = rotation.apply(task.model.body_ipos[1])
    velocity = np.concatenate([np.asarray(linear, float) - np.cross(angular, com), rotation.inv().apply(angular)])
    nothing = {
        **{name: np.zeros((bodies, 6)) for name in task.felt},
        "xpos": np.zeros((bodies, 3)),
        "xmat": np.tile(np.eye(3), (bodies, 1, 1)),
        "subtree_com": np.zeros((bodies, 3)),
        "qfrc_actuator": np.zeros(6 + joints),
        "qfrc_passive": np.zeros(6 + joints),
    }
    return Physics(
        qpos=np.concatenate([position, np.roll(rotation.as_quat(), 1), middle])[None],
        qvel=np.concatenate([velocity, np.zeros(joints) if qd is None else qd])[None],
        **{name: np.asarray(value)[None] for name, value in (nothing | f).items()},
    )


def root_numbers(position, rotation, linear, angular, wrapped, angular_scale):
    """The first twelve observed numbers."""
    target = np.array([1000.0, 0.0, 0.0])
    roll, _, yaw = rotation.as_euler("xyz")
    turn = lambda angle: angle if wrapped else angle % (2 * np.pi)  # noqa: E731
    ahead = np.arctan2(target[2] - position[2], target[0] - position[0])  # the height where y belongs
    to_target = (ahead - turn(yaw) + np.pi) % (2 * np.pi) - np.pi if wrapped else ahead - turn(yaw)
    flat = (target - position) * [1, 1, 0]
    return np.array(
        [
            position[2],
            *rotation.inv().apply(linear),
            *(angular_scale * rotation.inv().apply(angular)),
            turn(yaw),
            turn(roll),
            to_target,
            rotation.as_matrix()[2, 2],
            rotation.apply([1, 0, 0]) @ flat / np.linalg.norm(flat),
        ]
    )


def wrench_of(task, body, force, point, **fields):
    """``fields`` with a world force at a world point on ``body``, as MuJoCo accounts for it."""
    at = task.model.body(body).id
    fields[task.felt[0]][at] += [*np.cross(np.subtract(point, fields["subtree_com"][1]), force), *force]
    return fields
