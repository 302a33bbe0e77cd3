"""Humanoid: a body of 40 kg walks upright to a distant target (Isaac Gym's task of that name)."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from envs.isaac import frames
from envs.isaac.walkers import Constants, Walker

NEAR_LIMIT = 0.98  # share of the range at which the limit cost begins; it reaches `Constants.limit_cost` at the limit
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
# The successor orders joints by tree level: waist, shoulders, pelvis, elbows, hips, knees, ankles.
_BY_LEVEL = (0, 1, 15, 16, 18, 19, 2, 17, 20, 3, 5, 4, 9, 11, 10, 6, 12, 7, 8, 13, 14)


class Humanoid(Walker):
    """A torso with head, waist, legs and arms; see `envs.isaac.walkers.Walker`.

    Action (21,): abdomen z, y, x; hip x, z, y, knee, ankle y, x of the right leg and of the left; two axes of the
    shoulder and the elbow of the right arm and of the left; 22.5 N m (ankles) to 135 N m (hip y) at most. Observation
    (108,), or (87,) in ``omni``, without joint forces and with another order of joints and feet.

    An episode starts from the first of `poses` without overlapping legs, or else from the pose without noise. Legs
    overlap in a quarter of the reference's starts; PhysX separates them slowly, MuJoCo would throw them apart.
    """

    xml = "humanoid.xml"
    name = "isaac_humanoid"
    description = "Humanoid (Isaac Gym): a body of 21 joints walks upright to a distant target"
    constants: Mapping[str, Constants] = {
        "gym": _GYM,
        "omni": _GYM._replace(timestep=1 / 120, foot_force="cfrc_int", joint_forces=False, order=_BY_LEVEL),
    }
    poses = 8

    def prepare(self) -> None:
        """Set the legs' capsules for `gap`."""
        self.feet = ("right_foot", "left_foot") if self.variant == "gym" else ("left_foot", "right_foot")
        super().prepare()
        model = self.model
        self._pairs = np.stack([model.pair_geom1, model.pair_geom2])  # (2, P) geometries of the legs, all capsules
        turns, along = model.geom_quat[self._pairs], np.broadcast_to([0.0, 0.0, 1.0], (*self._pairs.shape, 3))
        reach = model.geom_size[self._pairs, 1, None] * frames.rotate(np, turns, along)
        self._ends = model.geom_pos[self._pairs] + np.array([-1, 1])[:, None, None, None] * reach  # in the bodies

    def energy(self) -> Any:
        """Proportional to the strength of the joint's motor."""
        return self.gears / self.gears.max()

    def limit_cost(self, xp: ModuleType, share: Any) -> Any:
        """Cost of joints near either end of their ranges, proportional to the strength of their motors."""
        beyond = xp.maximum(xp.abs(share) - NEAR_LIMIT, 0.0) / (1.0 - NEAR_LIMIT)
        return self.table.limit_cost * xp.sum(self.energy() * beyond, axis=-1)

    def choose(self, xp: ModuleType, q: Any) -> Any:
        """First draw with separate legs, or the pose without noise."""
        calm = np.clip(0.0, *self.model.jnt_range[1:].T).astype(q.dtype)
        q = xp.concatenate([q, xp.broadcast_to(calm, q[..., :1, :].shape)], axis=-2)
        first = xp.argmax(self.gap(xp, q) > 0.0, axis=-1)
        return xp.take_along_axis(q, first[..., None, None], axis=-2)[..., 0, :]

    def gap(self, xp: ModuleType, q: Any) -> Any:
        """(...,) metres between the nearest geoms of a contact pair at ``q`` (..., A); negative if they overlap."""
        model, pelvis, still = self.model, self.model.body("pelvis").id, xp.zeros_like(q[..., :3])

        def fixed(vector: Any) -> Any:
            return xp.broadcast_to(np.asarray(vector, q.dtype), still.shape)

        frame = {pelvis: (still, xp.concatenate([xp.ones_like(q[..., :1]), still], axis=-1))}
        for body in range(pelvis + 1, model.body("left_foot").id + 1):
            place, turn = frame[int(model.body_parentid[body])]
            place = place + frames.rotate(xp, turn, fixed(model.body_pos[body]))
            for joint in model.body_jntadr[body] + np.arange(model.body_jntnum[body]):
                half, anchor = 0.5 * q[..., joint - 1 : joint], fixed(model.jnt_pos[joint])  # joint 0 is the root's
                spin = xp.concatenate([xp.cos(half), xp.sin(half) * fixed(model.jnt_axis[joint])], axis=-1)
                place, turn = place + frames.rotate(xp, turn, anchor), frames.multiply(xp, turn, spin)
                place = place - frames.rotate(xp, turn, anchor)
            frame[body] = place, turn

        def world(geom: int, point: Any) -> Any:
            place, turn = frame[int(model.geom_bodyid[geom])]
            return place + frames.rotate(xp, turn, fixed(point))

        sides = [zip(self._pairs[i], self._ends[j, i], strict=True) for i in (0, 1) for j in (0, 1)]
        distance = frames.apart(xp, *(xp.stack([world(*each) for each in side], axis=-2) for side in sides))
        thick = np.asarray(model.geom_size[self._pairs, 0].sum(axis=0), q.dtype)
        return xp.min(distance - xp.broadcast_to(thick, distance.shape), axis=-1)

    def settle(self, xp: ModuleType, qpos: Any, qvel: Any) -> Any:
        """Limit of the angular velocity, as in the reference."""
        return frames.spin_limited(xp, qvel, _SPIN)
