"""The quantities of a MuJoCo task that may drift, common to both engines."""

from typing import Any, NamedTuple

import numpy as np

__all__ = ["MujocoParams"]


class MujocoParams(NamedTuple):
    """What may drift; () or, inside an engine, (n,) each."""

    body_mass: Any = np.float32(1.0)  # factor on every body's mass and inertia
    joint_friction: Any = np.float32(1.0)  # factor on viscous and dry friction of every joint
    geom_friction: Any = np.float32(1.0)  # factor on the sliding friction of every geom
    target_velocity: Any = np.float32(0.0)  # m/s; read only by tasks that track one
