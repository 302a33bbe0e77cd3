"""The quantities of a locomotion task that may drift, and the noise of its starts."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.mujoco.table import Locomotion


class MujocoParams(NamedTuple):
    """Drifting parameters; () each."""

    body_mass: Any = np.float32(1.0)  # factor on every body's mass and inertia
    joint_friction: Any = np.float32(1.0)  # factor on viscous and dry friction of every joint
    geom_friction: Any = np.float32(1.0)  # factor on the sliding friction of every geom
    target_velocity: Any = np.float32(0.0)  # m/s; read only by tasks that track one
    leg_gain: Any = np.float32(1.0)  # factor on the torque of one leg's motors; read only by tasks in which it drifts
    direction: Any = np.float32(1.0)  # factor on the forward speed in the reward; -1: backwards is forwards


def reset_noise(key: jax.Array, task: Locomotion, model: Any) -> jax.Array:
    """(nq + nv,) draws for `locomotion.start`; ``model`` is an ``MjModel``."""
    nq, nv = model.nq, model.nv
    if task.velocity_noise == "uniform":
        return jax.random.uniform(key, (nq + nv,), minval=-1.0, maxval=1.0)
    key_position, key_velocity = jax.random.split(key)
    position = jax.random.uniform(key_position, (nq,), minval=-1.0, maxval=1.0)
    return jnp.concatenate([position, jax.random.normal(key_velocity, (nv,))])
