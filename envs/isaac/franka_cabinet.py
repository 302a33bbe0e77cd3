"""A Franka arm opens a drawer: Isaac Gym's ``FrankaCabinet``, without the loose props in the drawer.

Gravity does not act on the arm and the drawer slides level, so a drift of gravity has no effect without
``arm_gravity``. PhysX's contacts and drives have no exact counterpart. The grip holds because of pads of 1 cm, an
armature of 0.1 on the arm's joints, stiff contacts, and a finger force of 40 N; the reference's 200 N would drive the
fingers into the handle.
"""

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from envs.isaac import frames
from envs.isaac.base import IsaacParams, IsaacTask
from envs.physics import Drive, Outcome, Physics, Start

#: Arm and fingers at reset, rad and metres.
DEFAULT = np.array([1.157, -1.066, -0.155, -2.239, -1.841, 1.003, 0.469, 0.035, 0.035])
OPEN = 0.39  # of the drawer, metres: success
_SPREAD = 0.125  # of the joints at reset, rad and metres
_SPEED = 7.5 * np.array([1.0] * 7 + [0.1] * 2)  # of the targets under an action of 1, rad/s and m/s
#: Largest joint speeds. The reference's 0.2 m/s would cap the finger force at 20 N, so fingers have five times that.
_FASTEST = np.array([2.175] * 4 + [2.61] * 3 + [1.0] * 2)
_HALF = np.sqrt(0.5)
#: The grasp frames in link 7 and in the drawer: places, metres, and the first one's rotation, -45 degrees about z.
HAND_PLACE, DRAWER_PLACE = np.array([0.0, 0.04, 0.1654]), np.array([0.3, 0.01, 0.0])
_HAND_TURN = np.array([np.sqrt(0.5 + 0.5 * _HALF), 0.0, 0.0, -np.sqrt(0.5 - 0.5 * _HALF)])


class FrankaTable(NamedTuple):
    """Constants of a variant."""

    length: int  # steps, the reference's maxEpisodeLength
    timestep: float  # seconds of a sub-step
    dt: float  # seconds of a control step in the integration of the targets
    around: float  # reward for a finger on either side of the handle
    fingers: float  # reward for their nearness to it
    close: float = 0.0  # reward for closing them within 3 cm of the handle
    behind: float | None = 0.04  # metres behind the handle at which a finger sets the reward to -1; None: never
    arm_gravity: bool = False  # whether gravity acts on the arm


class Grasp(NamedTuple):
    """Frames of the gripper and the drawer's handle in the world."""

    hand: Any  # (..., 3)
    forward: Any  # (..., 3) the gripper's direction
    up: Any  # (..., 3) the gripper's upward direction
    drawer: Any  # (..., 3)
    left: Any  # (..., 3) origin of the left finger
    right: Any  # (..., 3)


class FrankaCabinet(IsaacTask):
    """Observation (23,), clipped to +-5: joints, the way from the hand to the drawer's handle, and the drawer."""

    name = "isaac_franka_cabinet"
    xml = "franka_cabinet.xml"
    description = "a Franka arm pulls a drawer open"
    constants: Mapping[str, FrankaTable] = {
        "gym": FrankaTable(500, 0.00415, 0.0166, around=0.25, fingers=5.0),
        "omni": FrankaTable(500, 1 / 240, 1 / 60, around=10.0, fingers=100.0, close=10.0, behind=None),
    }
    own = MappingProxyType({"arm_gravity": (False, True)})
    table: FrankaTable
    obs_size, action_size, substeps = 23, 9, 4
    memory_size = 9  # servo targets
    fields = start_fields = ("xpos", "xquat")
    fresh = True  # observations use poses and joints of the same state

    draws = 9

    def prepare(self) -> None:
        self.low, self.high = self.model.jnt_range[1:].T
        self.limit_speeds(_FASTEST)
        self.inert = () if self.table.arm_gravity else ("gravity",)
        if self.table.arm_gravity:
            self.model.body_gravcomp[:] = 0.0
        bodies = ("link7", "drawer_top", "leftfinger", "rightfinger")
        self.link7, self.drawer, self.left, self.right = (self.model.body(name).id for name in bodies)

    def start(self, xp: ModuleType, noise: Any, params: IsaacParams) -> Start:
        """A shut drawer; the arm about its default pose, at rest."""
        q = xp.clip(DEFAULT + _SPREAD * noise, self.low, self.high)
        qpos = xp.concatenate([xp.zeros_like(q[..., :1]), q], axis=-1)
        return Start(qpos, xp.zeros_like(qpos), q)

    def control(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, params: IsaacParams) -> Drive:
        """Servo targets, moved by the action."""
        target = self._target(xp, memory, action)
        return Drive(self.pursue(xp, physics.qpos[..., 1:], target, params))

    def outcome(
        self, xp: ModuleType, physics: Physics, memory: Any, action: Any, drive: Drive, params: IsaacParams
    ) -> Outcome:
        """Reward for reaching, holding and pulling; an open drawer ends the episode."""
        grasp = self.grasp(xp, physics)
        reward = self.reward(xp, grasp, physics.qpos, xp.clip(action, -1.0, 1.0))
        obs, opened = self.observe(xp, physics, memory, action, grasp), physics.qpos[..., 0] > OPEN
        return Outcome(obs, reward, opened, self._target(xp, memory, action))

    def grasp(self, xp: ModuleType, physics: Physics) -> Grasp:
        """Frames used by observation and reward."""
        place, turn = physics.xpos[..., self.link7, :], physics.xquat[..., self.link7, :]
        fixed = lambda v, like: xp.broadcast_to(np.asarray(v, place.dtype), like.shape)  # noqa: E731
        frame = frames.multiply(xp, turn, fixed(_HAND_TURN, turn))
        return Grasp(
            hand=place + frames.rotate(xp, turn, fixed(HAND_PLACE, place)),
            forward=frames.rotate(xp, frame, fixed([0.0, 0.0, 1.0], place)),
            up=frames.rotate(xp, frame, fixed([0.0, 1.0, 0.0], place)),
            drawer=physics.xpos[..., self.drawer, :] + np.asarray(DRAWER_PLACE, place.dtype),  # it never turns
            left=physics.xpos[..., self.left, :],
            right=physics.xpos[..., self.right, :],
        )

    def reward(self, xp: ModuleType, grasp: Grasp, qpos: Any, action: Any) -> Any:
        """(...,) of a state, positions (..., 10), and an action (..., 9) in [-1, 1]."""
        table, opened = self.table, qpos[..., 0]
        distance = xp.sqrt(xp.sum((grasp.hand - grasp.drawer) ** 2, axis=-1))
        near = (1.0 / (1.0 + distance**2)) ** 2
        near = xp.where(distance <= 0.02, 2.0 * near, near)
        inward, upward = -grasp.forward[..., 0], grasp.up[..., 2]  # cosines with the drawer's -x and z
        aligned = 0.5 * (xp.sign(inward) * inward**2 + xp.sign(upward) * upward**2)
        above, below = grasp.left[..., 2] - grasp.drawer[..., 2], grasp.drawer[..., 2] - grasp.right[..., 2]
        around = (above > 0.0) & (below > 0.0)
        held = xp.where(around, 0.5, 0.0)
        fingers = xp.where(around, (0.04 - xp.abs(above)) + (0.04 - xp.abs(below)), 0.0)
        reward = 2.0 * near + 0.5 * aligned + table.around * held + 7.5 * (opened * held + opened)
        reward = reward + table.fingers * fingers - 0.01 * xp.sum(action**2, axis=-1)
        if table.close:
            shut = (0.04 - qpos[..., 8]) + (0.04 - qpos[..., 9])
            reward = reward + table.close * xp.where(distance <= 0.03, shut, 0.0)
        for least, bonus in ((0.01, 0.5), (0.2, held), (OPEN, 2.0 * held)):
            reward = xp.where(opened > least, reward + bonus, reward)
        if table.behind is not None:
            limit = grasp.drawer[..., 0] - table.behind
            reward = xp.where((grasp.left[..., 0] < limit) | (grasp.right[..., 0] < limit), -1.0, reward)
        return reward

    def _target(self, xp: ModuleType, memory: Any, action: Any) -> Any:
        return xp.clip(memory + self.table.dt * _SPEED * xp.clip(action, -1.0, 1.0), self.low, self.high)

    def observe(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, grasp: Grasp | None = None) -> Any:
        qpos, qvel, grasp = physics.qpos, physics.qvel, grasp or self.grasp(xp, physics)
        joints = frames.unscale(qpos[..., 1:], self.low, self.high)
        parts = [joints, 0.1 * qvel[..., 1:], grasp.drawer - grasp.hand, qpos[..., :1], qvel[..., :1]]
        return xp.clip(xp.concatenate(parts, axis=-1), -5.0, 5.0)
