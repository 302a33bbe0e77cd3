"""The frames against SciPy's rotations and against the formulas as the reference writes them."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from envs.isaac import frames

N = 200


@pytest.fixture
def rotations():
    return Rotation.random(N, random_state=0)


def wxyz(rotation):
    return np.roll(rotation.as_quat(), 1, axis=-1)


def test_rotations_agree_with_scipy(rotations):
    rng = np.random.default_rng(1)
    v, other = rng.normal(size=(N, 3)), Rotation.random(N, random_state=2)
    q = wxyz(rotations)
    np.testing.assert_allclose(frames.rotate(np, q, v), rotations.apply(v), atol=1e-12)
    np.testing.assert_allclose(frames.rotate_back(np, q, v), rotations.inv().apply(v), atol=1e-12)
    product = wxyz(rotations * other)
    found = frames.multiply(np, q, wxyz(other))
    np.testing.assert_allclose(found * np.sign(np.sum(found * product, -1, keepdims=True)), product, atol=1e-12)
    np.testing.assert_allclose(frames.cross(np, v, v[::-1]), np.cross(v, v[::-1]), atol=1e-14)
    np.testing.assert_array_equal(frames.to_xyzw(np, q), rotations.as_quat())
    np.testing.assert_allclose(frames.up(np, q), rotations.as_matrix()[:, 2, 2], atol=1e-12)


def test_euler_angles_are_those_of_the_extrinsic_xyz_convention(rotations):
    angles = np.stack(frames.euler(np, wxyz(rotations)), -1)
    assert angles.min() >= 0.0
    assert angles.max() < 2 * np.pi
    expected = rotations.as_euler("xyz")
    np.testing.assert_allclose(frames.wrap(np, angles), expected, atol=1e-7)


def test_the_linear_velocity_is_that_of_the_centre_of_mass(rotations):
    rng = np.random.default_rng(3)
    qvel, com = rng.normal(size=(N, 8)), np.array([0.1, -0.2, 0.3])
    linear, angular = frames.velocities(np, wxyz(rotations), qvel, com)
    world = rotations.apply(qvel[:, 3:6])
    np.testing.assert_allclose(angular, world, atol=1e-12)
    np.testing.assert_allclose(linear, qvel[:, :3] + np.cross(world, rotations.apply(com)), atol=1e-12)


def test_progress_is_resolved_in_float32():
    target = np.array([1000.0, 0.0])
    before = np.array([[0.3, 0.1], [5.0, -2.0]])
    now = before + np.array([[1e-2, 1e-3], [-2e-3, 4e-3]])
    distance = lambda p: np.linalg.norm(target - p, axis=-1)  # noqa: E731
    exact = (distance(before) - distance(now)) / 0.0166
    np.testing.assert_allclose(frames.progress(np, before, now, target, 0.0166), exact, rtol=1e-9)
    single = frames.progress(jnp, *(jnp.asarray(x, jnp.float32) for x in (before, now, target)), 0.0166)
    np.testing.assert_allclose(single, exact, rtol=1e-4)
