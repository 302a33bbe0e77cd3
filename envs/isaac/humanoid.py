"""Humanoid: a body of 40 kg walks upright to a far target (Isaac Gym's task of that name)."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from envs.isaac import frames
from envs.isaac.locomotion import Constants, Walker

NEAR_LIMIT = 0.98  # the cost of a joint grows from 0 there to `Constants.limit_cost` at its limit
_SPIN = 100.0  # rad/s, the torso's largest angular velocity

_GYM = Constants(
    height=1.34,
    lowest=0.8,
    death=-1.0,
    alive=2.0,
    action_cost=0.01,
    angular_scale=0.25,
    velocity_scale=0.1,
    force_scale=0.01,
    wrapped=True,
    joint_forces=True,
    limit_cost=0.25,
)
# The successor goes through the tree level by level: waist, shoulders, pelvis, elbows, hips, knees, ankles.
_BY_LEVEL = (0, 1, 15, 16, 18, 19, 2, 17, 20, 3, 5, 4, 9, 11, 10, 6, 12, 7, 8, 13, 14)


class Humanoid(Walker):
    """A torso with head, waist, legs and arms; see `envs.isaac.locomotion.Walker`.

    Action (21,): abdomen z, y, x; hip x, z, y, knee, ankle y, x of the right leg and of the left; two axes of the
    shoulder and the elbow of the right arm and of the left; 22.5 N m (ankles) to 135 N m (hip y) at most. Observation
    (108,), (87,) without the forces in the joints in ``omni``, which also has another order of joints and feet.
    """

    xml = "humanoid.xml"
    name = "isaac_humanoid"
    description = "Humanoid (Isaac Gym): a body of 21 joints walks upright to a far target"
    constants: Mapping[str, Constants] = {
        "gym": _GYM,
        "omni": _GYM._replace(timestep=1 / 120, foot_sensor="joint", joint_forces=False, order=_BY_LEVEL),
    }

    def __init__(self, variant: str = "gym", time_limit: int | None = None, **own: Any) -> None:
        self.feet = ("right_foot", "left_foot") if variant == "gym" else ("left_foot", "right_foot")
        super().__init__(variant, time_limit, **own)

    def energy(self) -> Any:
        """In proportion to the strength of the joint's motor."""
        return self.gears / self.gears.max()

    def limit_cost(self, xp: ModuleType, share: Any) -> Any:
        """Joints near either end of their ranges, in proportion to the strength of their motors."""
        beyond = xp.maximum(xp.abs(share) - NEAR_LIMIT, 0.0) / (1.0 - NEAR_LIMIT)
        return self.table.limit_cost * xp.sum(self.energy() * beyond, axis=-1)

    def settle(self, xp: ModuleType, qpos: Any, qvel: Any) -> Any:
        """The reference's bound on the angular velocity."""
        return frames.spin_limited(xp, qvel, _SPIN)
