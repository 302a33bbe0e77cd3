"""The five locomotion tasks on a bare engine, with factors (n, 3) as the tests write them."""

import numpy as np

from envs.mujoco import TASKS
from envs.mujoco.locomotion import LocomotionTask, MujocoParams
from envs.physics.batch import Engine

FACTORS = ("body_mass", "joint_friction", "geom_friction")


def engine_of(name, version="v5", tracks=False, weakens=False):
    return Engine(LocomotionTask(TASKS[name], version, tracks, weakens))


def params_of(factors, target=0.0, gain=1.0, direction=1.0):
    """Parameters with arrays (n,) from factors (n, 3), in the order of ``FACTORS``."""
    factors = np.asarray(factors, np.float64)
    others = {"target_velocity": target, "leg_gain": gain, "direction": direction}
    filled = {name: np.full(len(factors), value) for name, value in others.items()}
    return MujocoParams(**dict(zip(FACTORS, factors.T, strict=True)), **filled)
