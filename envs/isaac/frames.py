"""Rotations, velocities and angles as defined by the Isaac Gym tasks, for NumPy and JAX arrays.

Quaternions are MuJoCo's, (w, x, y, z), unless a name says xyzw. Leading axes are free; ``xp`` is ``numpy`` or
``jax.numpy``.
"""

from types import ModuleType
from typing import Any

import numpy as np


def cross(xp: ModuleType, a: Any, b: Any) -> Any:
    """Cross product of vectors (..., 3); NumPy's own takes at least 0.1 ms, as long as a step of MuJoCo."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    return xp.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=-1)


def rotate(xp: ModuleType, q: Any, v: Any) -> Any:
    """Vectors (..., 3) from the frame of ``q`` (..., 4) to the world."""
    w, u = q[..., :1], q[..., 1:]
    t = 2.0 * cross(xp, u, v)
    return v + w * t + cross(xp, u, t)


def rotate_back(xp: ModuleType, q: Any, v: Any) -> Any:
    """Vectors (..., 3) from the world to the frame of ``q`` (..., 4)."""
    return rotate(xp, conjugate(xp, q), v)


def conjugate(xp: ModuleType, q: Any) -> Any:
    """The inverse rotation."""
    return xp.concatenate([q[..., :1], -q[..., 1:]], axis=-1)


def multiply(xp: ModuleType, a: Any, b: Any) -> Any:
    """Rotation ``b`` followed by rotation ``a``."""
    aw, bw, au, bu = a[..., :1], b[..., :1], a[..., 1:], b[..., 1:]
    scalar = aw * bw - xp.sum(au * bu, axis=-1, keepdims=True)
    return xp.concatenate([scalar, aw * bu + bw * au + cross(xp, au, bu)], axis=-1)


def to_xyzw(xp: ModuleType, q: Any) -> Any:
    """Convert to the order of the reference; the sign is unchanged."""
    return xp.concatenate([q[..., 1:], q[..., :1]], axis=-1)


def velocities(xp: ModuleType, q: Any, qvel: Any, com: Any) -> tuple[Any, Any]:
    """Linear and angular velocity (..., 3) of a free root body in world axes, the linear one at its centre of mass.

    Args:
      q: (..., 4) its orientation.
      qvel: (..., 6 or more): MuJoCo's linear velocity of the body's origin in world axes, angular in the body's.
      com: (3,) centre of mass in the body's frame, metres.
    """
    angular = rotate(xp, q, qvel[..., 3:6])
    arm = rotate(xp, q, xp.broadcast_to(com, angular.shape))
    return qvel[..., :3] + cross(xp, angular, arm), angular


def spin_limited(xp: ModuleType, qvel: Any, most: float) -> Any:
    """``qvel`` (..., 6 or more) of a free root body with its angular speed limited to ``most`` rad/s."""
    angular = qvel[..., 3:6]
    speed = xp.sqrt(xp.sum(angular**2, axis=-1, keepdims=True))
    # Below the limit every bit is unchanged.
    limited = angular * (most / xp.maximum(speed, most))
    return xp.concatenate([qvel[..., :3], xp.where(speed > most, limited, angular), qvel[..., 6:]], axis=-1)


def roll_and_yaw(xp: ModuleType, q: Any) -> tuple[Any, Any]:
    """Euler angles (...,) of ``q`` (..., 4), reduced to [0, 2 pi)."""
    w, x, y, z = (q[..., i] for i in range(4))
    roll = xp.arctan2(2.0 * (w * x + y * z), w * w - x * x - y * y + z * z)
    yaw = xp.arctan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)
    return roll % (2.0 * np.pi), yaw % (2.0 * np.pi)


def wrap(xp: ModuleType, angle: Any) -> Any:
    """Angles in (-pi, pi]."""
    return xp.arctan2(xp.sin(angle), xp.cos(angle))


def up(xp: ModuleType, q: Any) -> Any:
    """The z component (...,) of the body's own z axis: 1 upright."""
    return 1.0 - 2.0 * (q[..., 1] ** 2 + q[..., 2] ** 2)


def heading(xp: ModuleType, q: Any, position: Any, target: Any) -> Any:
    """Cosine (...,) between the body's x axis and the horizontal direction to ``target`` (3,) from ``position``."""
    ahead = xp.broadcast_to(xp.asarray(target, position.dtype), position.shape) - position
    ahead = xp.concatenate([ahead[..., :2], xp.zeros_like(ahead[..., 2:])], axis=-1)
    ahead = ahead / xp.sqrt(xp.sum(ahead**2, axis=-1, keepdims=True))
    forward = rotate(xp, q, xp.broadcast_to(np.array([1.0, 0.0, 0.0], q.dtype), position.shape))
    return xp.sum(forward * ahead, axis=-1)


def progress(xp: ModuleType, before: Any, now: Any, target: Any, dt: float) -> Any:
    """Speed towards ``target`` (2,), length per second, (...,), from ``before`` to ``now`` (..., 2).

    ``|target - before| - |target - now|`` written so that float32 resolves it for a target one kilometre away.
    """
    target = xp.broadcast_to(xp.asarray(target, now.dtype), now.shape)
    distances = xp.sqrt(xp.sum((target - before) ** 2, axis=-1)) + xp.sqrt(xp.sum((target - now) ** 2, axis=-1))
    return xp.sum((now - before) * (2.0 * target - now - before), axis=-1) / distances / dt


def apart(xp: ModuleType, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Distance (...,) between the segments from ``a`` to ``b`` and from ``c`` to ``d``, (..., 3) each."""
    u, v, r = b - a, d - c, a - c
    uu, vv, uv, ur, vr = (xp.sum(x * y, axis=-1) for x, y in ((u, u), (v, v), (u, v), (u, r), (v, r)))
    s = xp.clip((uv * vr - ur * vv) / xp.maximum(uu * vv - uv * uv, 1e-12), 0.0, 1.0)
    t = xp.clip((uv * s + vr) / vv, 0.0, 1.0)
    s = xp.clip((uv * t - ur) / uu, 0.0, 1.0)
    return xp.sqrt(xp.sum((r + s[..., None] * u - t[..., None] * v) ** 2, axis=-1))


def unscale(q: Any, low: Any, high: Any) -> Any:
    """Joint positions as shares of their range, -1 at ``low`` and 1 at ``high``."""
    return (2.0 * q - low - high) / (high - low)


def scale(a: Any, low: Any, high: Any) -> Any:
    """Inverse of `unscale`."""
    return low + 0.5 * (a + 1.0) * (high - low)
