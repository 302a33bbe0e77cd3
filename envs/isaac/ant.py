"""Ant: four legs walk to a far target (Isaac Gym's task of that name)."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from envs.isaac.locomotion import Constants, Walker

NEAR_LIMIT = 0.99

_GYM = Constants(
    height=0.44,
    lowest=0.31,
    death=-2.0,
    alive=0.5,
    action_cost=0.005,
    angular_scale=1.0,
    velocity_scale=0.2,
    force_scale=0.1,
    wrapped=False,
    joint_forces=False,
    limit_cost=0.1,
)


class Ant(Walker):
    """A torso on four legs of two joints each; see `envs.isaac.locomotion.Walker`.

    Action (8,): hip and ankle of the legs front left, front right, back left, back right; 15 N m at most. Observation
    (60,): the angles of yaw and roll lie in [0, 2 pi), and jump there.
    """

    xml = "ant.xml"
    name = "isaac_ant"
    description = "Ant (Isaac Gym): four legs run to a far target"
    constants: Mapping[str, Constants] = {
        "gym": _GYM,
        "omni": _GYM._replace(
            timestep=1 / 120, height=0.5, power=0.5, wrapped=True, foot_sensor="joint", limit_cost=1.0
        ),
    }
    feet = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")

    def limit_cost(self, xp: ModuleType, share: Any) -> Any:
        """Joints at the upper ends of their ranges; the reference does not look at the lower ends."""
        return self.table.limit_cost * xp.sum(share > NEAR_LIMIT, axis=-1)
