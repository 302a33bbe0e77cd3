"""The five locomotion tasks on a bare engine, with factors (n, 3) as the tests write them."""

import numpy as np

from envs.mujoco import TASKS
from envs.mujoco.locomotion import LocomotionTask
from envs.mujoco.params import MujocoParams
from envs.physics.batch import Engine

FACTORS = ("body_mass", "joint_friction", "geom_friction")


def engine_of(name, version="v5", tracks=False):
    return Engine(LocomotionTask(TASKS[name], version, tracks))


def params_of(factors, target=0.0):
    """Parameters with arrays (n,) from factors (n, 3), in the order of ``FACTORS``."""
    factors = np.asarray(factors, np.float64)
    return MujocoParams(**dict(zip(FACTORS, factors.T, strict=True)), target_velocity=np.full(len(factors), target))
