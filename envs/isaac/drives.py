"""Shared parts of position-driven tasks: servo gains, and a speed limit that MuJoCo's servos lack.

A servo's force is ``kp (target - q) - kd qd``, as of PhysX's position drive. PhysX also caps the speed of a joint. Here
the target may lead the joint by no more than ``speed kd / kp``: a free joint then settles at ``speed``. The damping in
force belongs into the lead, so that a drift of the damping does not drift the cap.
"""

import copy
from types import ModuleType
from typing import Any

import numpy as np


def timed(model: Any, timestep: float) -> Any:
    """A copy of ``model`` with another time step, seconds."""
    model = copy.copy(model)
    model.opt.timestep = timestep
    return model


def tuned(model: Any, kp: float, kd: float, effort: float) -> Any:
    """A copy of ``model`` with the same gains and largest force for all its servos."""
    model = copy.copy(model)
    model.actuator_gainprm[:, 0] = kp
    model.actuator_biasprm[:, 1], model.actuator_biasprm[:, 2] = -kp, -kd
    model.actuator_forcerange[:] = -effort, effort
    return model


def lead(model: Any, speed: Any) -> np.ndarray:
    """(nu,) how far a target may lead its joint for speeds (nu,) of at most ``speed``, under the model's own gains."""
    return -model.actuator_biasprm[:, 2] * speed / model.actuator_gainprm[:, 0]


def follow(xp: ModuleType, position: Any, target: Any, reach: np.ndarray, damping: Any) -> Any:
    """Controls (..., nu) of servos that pursue ``target`` at a limited speed.

    Args:
      position: (..., nu) of the joints, now.
      target: (..., nu).
      reach: (nu,) from `lead`.
      damping: (...,) factor in force on the servos' damping.
    """
    reach = xp.asarray(damping)[..., None] * reach
    return position + xp.clip(target - position, -reach, reach)
