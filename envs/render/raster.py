"""Ray casting of MuJoCo's analytic shapes in NumPy: what a picture needs where there is no OpenGL.

Every shape is met in its own frame, centred and aligned, by rays ``origin + t * direction`` whose ``t`` is the depth
along the camera's axis. Arrays of rays are (..., 3) float32.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

NEAR = 0.05  # metres: nothing closer than that is drawn
_TINY = 1e-9
_Rays = tuple[np.ndarray, np.ndarray]  # origin (3,) and directions (..., 3), in the frame of the shape


class Hit(NamedTuple):
    """Where rays first meet a shape; `depth` is inf where they do not."""

    depth: np.ndarray  # (...)
    normal: np.ndarray  # (..., 3) unit, in the frame of the shape; meaningless where the depth is inf


class Shape(NamedTuple):
    """A kind of geom, as functions of its three sizes."""

    hit: Callable[[np.ndarray, _Rays], Hit]
    support: Callable[[np.ndarray, np.ndarray], np.ndarray]  # sizes, directions (n, 3) -> farthest points (n, 3)
    box: Callable[[np.ndarray], np.ndarray]  # sizes -> half lengths (3,) of the box around it


class Camera:
    """A perspective camera that looks in one direction from wherever it is told to stand.

    Args:
      width, height: pixels.
      azimuth, elevation: degrees, MuJoCo's convention: 90 and 0 look along +y with x to the right.
      fovy: vertical field of view in degrees.
    """

    def __init__(self, width: int, height: int, azimuth: float, elevation: float, fovy: float = 45.0) -> None:
        a, e = np.radians([azimuth, elevation])
        self.width, self.height = width, height
        self.forward = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
        self.right = np.array([np.sin(a), -np.cos(a), 0.0])
        self.up = np.cross(self.right, self.forward)
        self.scale = np.tan(np.radians(fovy) / 2) * 2 / height  # of one pixel at depth 1
        x = (np.arange(width) + 0.5 - width / 2) * self.scale
        y = (height / 2 - np.arange(height) - 0.5) * self.scale
        rays = self.forward + y[:, None, None] * self.up + x[None, :, None] * self.right
        self.rays = rays.astype(np.float32)  # (height, width, 3)

    def stand(self, lookat: np.ndarray, distance: float) -> np.ndarray:
        """Position (3,) from which ``lookat`` (3,) is in the middle at ``distance`` metres."""
        return lookat - distance * self.forward

    def project(self, points: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels (n, 2) as x and y, and depths (n,), of world points (n, 3); pixels mean nothing at depth <= 0."""
        away = points - position
        depth = away @ self.forward
        safe = np.maximum(depth, _TINY) * self.scale
        x = self.width / 2 + away @ self.right / safe
        y = self.height / 2 - away @ self.up / safe
        return np.stack([x, y], axis=-1), depth

    def window(self, corners: np.ndarray, position: np.ndarray) -> tuple[slice, slice] | None:
        """Rows and columns that a convex body with these corners (n, 3) can touch; None where it is out of sight."""
        pixels, depth = self.project(corners, position)
        if depth.max() <= NEAR:
            return None
        if depth.min() <= NEAR:  # reaches behind the camera: anywhere
            return slice(0, self.height), slice(0, self.width)
        low = np.floor(pixels.min(axis=0)).astype(int)
        high = np.ceil(pixels.max(axis=0)).astype(int) + 1
        columns = slice(max(low[0], 0), min(high[0], self.width))
        rows = slice(max(low[1], 0), min(high[1], self.height))
        return (rows, columns) if columns.start < columns.stop and rows.start < rows.stop else None


def _seen(depth: np.ndarray, valid: np.ndarray) -> np.ndarray:
    return np.where(valid & (depth > NEAR), depth, np.float32(np.inf))


def _at(rays: _Rays, depth: np.ndarray) -> np.ndarray:
    origin, direction = rays
    return origin + np.where(np.isfinite(depth), depth, 0)[..., None] * direction


def _quadric(a: Any, b: Any, c: Any) -> tuple[np.ndarray, np.ndarray]:
    """The nearer root of ``a t^2 + 2 b t + c`` and where it is real."""
    inside = b * b - a * c
    return (-b - np.sqrt(np.maximum(inside, 0))) / np.maximum(a, _TINY), inside > 0


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), _TINY)


def _ellipsoid(size: np.ndarray, rays: _Rays) -> Hit:
    origin, direction = rays[0] / size, rays[1] / size
    a = np.einsum("...i,...i->...", direction, direction)
    depth, real = _quadric(a, direction @ origin, origin @ origin - 1)
    depth = _seen(depth, real)
    return Hit(depth, _unit(_at(rays, depth) / size**2))


def _sphere(size: np.ndarray, rays: _Rays) -> Hit:
    return _ellipsoid(np.full(3, size[0], np.float32), rays)


def _side(radius: float, rays: _Rays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depth and z where rays enter the endless cylinder about z, and whether they do."""
    (ox, oy, oz), direction = rays
    dx, dy = direction[..., 0], direction[..., 1]
    depth, real = _quadric(dx * dx + dy * dy, ox * dx + oy * dy, ox * ox + oy * oy - radius * radius)
    return depth, oz + depth * direction[..., 2], real


def _capsule(size: np.ndarray, rays: _Rays) -> Hit:
    radius, half = size[0], size[1]
    origin, direction = rays
    depth, z, real = _side(radius, rays)
    # Whoever passes the side above or below enters through the half ball there, or not at all.
    end = np.where(z > 0, half, -half)
    ox, oy, oz = origin
    oz = oz - end
    b = ox * direction[..., 0] + oy * direction[..., 1] + oz * direction[..., 2]
    a = np.einsum("...i,...i->...", direction, direction)
    cap, capped = _quadric(a, b, ox * ox + oy * oy + oz * oz - radius * radius)
    on_side = np.abs(z) <= half
    depth = _seen(np.where(on_side, depth, cap), real & (on_side | capped))
    normal = _at(rays, depth)
    normal[..., 2] -= np.clip(normal[..., 2], -half, half)
    return Hit(depth, normal / radius)


def _cylinder(size: np.ndarray, rays: _Rays) -> Hit:
    radius, half = size[0], size[1]
    origin, direction = rays
    depth, z, real = _side(radius, rays)
    dz = direction[..., 2]
    end = np.where(z > 0, half, -half)
    lid = (end - origin[2]) / np.where(np.abs(dz) > _TINY, dz, _TINY)
    place = _at(rays, lid)
    capped = (place[..., 0] ** 2 + place[..., 1] ** 2 <= radius * radius) & (dz * end < 0)
    on_side = np.abs(z) <= half
    depth = _seen(np.where(on_side, depth, lid), real & (on_side | capped))
    normal = _at(rays, depth) / radius
    normal[..., 2] = 0
    normal[~on_side] = 0
    normal[..., 2] = np.where(on_side, 0, np.sign(end))
    return Hit(depth, normal)


def _box(size: np.ndarray, rays: _Rays) -> Hit:
    origin, direction = rays
    slope = np.where(np.abs(direction) > _TINY, direction, _TINY)
    one, other = (-size - origin) / slope, (size - origin) / slope
    enter, leave = np.minimum(one, other), np.maximum(one, other)
    axis = enter.argmax(axis=-1)
    depth = np.take_along_axis(enter, axis[..., None], axis=-1)[..., 0]
    depth = _seen(depth, depth <= leave.min(axis=-1))
    normal = -np.eye(3, dtype=np.float32)[axis] * np.sign(slope)
    return Hit(depth, normal)


def _ball_support(size: np.ndarray, towards: np.ndarray) -> np.ndarray:
    return size[0] * _unit(towards)


def _ellipsoid_support(size: np.ndarray, towards: np.ndarray) -> np.ndarray:
    return size * _unit(size * towards)


def _capsule_support(size: np.ndarray, towards: np.ndarray) -> np.ndarray:
    points = size[0] * _unit(towards)
    points[:, 2] += size[1] * np.sign(towards[:, 2])
    return points


def _cylinder_support(size: np.ndarray, towards: np.ndarray) -> np.ndarray:
    points = size[0] * _unit(towards * [1.0, 1.0, 0.0])
    points[:, 2] = size[1] * np.sign(towards[:, 2])
    return points


#: MuJoCo's name of a geom type (``mjtGeom``, lower case) -> how it is drawn. Planes are endless floors of their own.
SHAPES: dict[str, Shape] = {
    "sphere": Shape(_sphere, _ball_support, lambda size: np.repeat(size[0], 3)),
    "capsule": Shape(_capsule, _capsule_support, lambda s: np.array([s[0], s[0], s[0] + s[1]])),
    "ellipsoid": Shape(_ellipsoid, _ellipsoid_support, lambda size: size),
    "cylinder": Shape(_cylinder, _cylinder_support, lambda s: np.array([s[0], s[0], s[1]])),
    "box": Shape(_box, lambda size, towards: size * np.sign(towards), lambda size: size),
}


def checker(x: np.ndarray, y: np.ndarray, tile: float) -> np.ndarray:
    """True on every other tile: (...) bool of places in a plane, metres."""
    scale = np.float32(1 / tile)
    return ((np.floor(x * scale).astype(np.int32) ^ np.floor(y * scale).astype(np.int32)) & 1).astype(bool)
