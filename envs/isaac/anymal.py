"""ANYmal follows a commanded velocity: Isaac Gym's ``Anymal`` on flat ground.

Only the feet collide. A touch of the ground by the base, its lidar or a thigh ends the episode; the touch is computed
from their shapes, in the reference from contact forces.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from envs.isaac import frames
from envs.isaac.base import IsaacParams, IsaacTask
from envs.physics import Drive, Outcome, Physics, Start
from envs.physics.fields import physics_library

#: Joint angles of the stance, rad: LF, LH, RF, RH, each HAA, HFE, KFE.
DEFAULT = np.array([0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, -0.03, -0.4, 0.8])
HIPS = slice(0, 12, 3)  # the HAA joints
_COMMANDS = np.array([2.0, 1.0, 1.0])  # largest v_x, v_y (m/s) and yaw rate (rad/s)
_HEIGHT = 0.62  # of the base at reset, metres
_TRACKING = 0.25  # width of the tracking rewards, (m/s)^2 and (rad/s)^2


class AnymalTable(NamedTuple):
    """Constants of a variant; rewards per second."""

    length: int  # steps, the reference's maxEpisodeLength
    timestep: float  # seconds of a sub-step
    substeps: int
    kp: float  # N m / rad
    kd: float  # N m s / rad
    effort: float  # N m
    action_scale: float  # rad, or rad/s for incremental targets
    incremental: bool  # an action moves the target instead of setting it
    spread: tuple[float, float]  # factors on the stance at reset
    torque: float  # reward of the sum of squared joint torques
    vertical: float = 0.0  # of the squared vertical velocity
    acceleration: float = 0.0  # of the squared change of joint velocities in a step
    rate: float = 0.0  # of the squared change of actions in a step
    hips: float = 0.0  # of the hips' distance from the stance
    fall: float | None = None  # height of the base below which it has fallen, metres; None: by a touch of the ground
    fall_reward: float | None = None  # replaces all other rewards on a fall
    by_level: bool = False  # joint order: all HAA, then all HFE, then all KFE, instead of leg by leg


class Anymal(IsaacTask):
    """Observation (48,), clipped to +-5: velocities and the command in the base's frame, joints, and the action.

    Entries 6:9 are the downward direction rotated *forward* by the base's orientation, as in the reference; a sensor
    would measure it rotated backward.
    """

    name = "isaac_anymal"
    xml = "anymal.xml"
    description = "ANYmal follows a commanded planar velocity"
    constants: Mapping[str, AnymalTable] = {
        "gym": AnymalTable(2500, 0.005, 4, 85.0, 2.0, 80.0, 0.5, False, (0.5, 1.5), torque=-2.5e-5),
        "omni": AnymalTable(3000, 1 / 240, 4, 400.0, 40.0, 1000.0, 13.5, True, (1.0, 1.0), torque=0.0)._replace(
            vertical=-0.03, acceleration=-0.0003, rate=-0.006, hips=-0.06, fall=0.51, fall_reward=-1.0, by_level=True
        ),
    }
    table: AnymalTable
    obs_size, action_size = 48, 12
    fields = ("actuator_force", "geom_xpos", "geom_xmat")
    held = True
    draws = 27  # command, joint angles, joint velocities

    def prepare(self) -> None:
        table, model = self.table, self.model
        model.actuator_gainprm[:, 0] = table.kp
        model.actuator_biasprm[:, 1], model.actuator_biasprm[:, 2] = -table.kp, -table.kd
        model.actuator_forcerange[:] = -table.effort, table.effort
        self.substeps, self.dt = table.substeps, table.timestep * table.substeps
        # The command (3); for rewards of changes also the last target, action and joint velocity (12 each).
        self.memory_size = 39 if table.incremental else 3
        self.com = model.body_ipos[1]
        self.low, self.high = model.jnt_range[1:].T
        self.order = np.arange(12).reshape(4, 3).ravel("F" if table.by_level else "C")  # of the model's joints
        self.guarded, self._extents = _shapes(model)

    def start(self, xp: ModuleType, noise: Any, params: IsaacParams) -> Start:
        """Level, at rest, above the ground; joints near the stance."""
        lead, (low, high) = noise.shape[:-1], self.table.spread
        q = DEFAULT * (0.5 * (low + high) + 0.5 * (high - low) * noise[..., 3:15])
        root = np.array([0.0, 0.0, _HEIGHT, 1.0, 0.0, 0.0, 0.0], noise.dtype)
        qpos = xp.concatenate([xp.broadcast_to(root, (*lead, 7)), q], axis=-1)
        qvel = xp.concatenate([xp.zeros((*lead, 6), noise.dtype), 0.1 * noise[..., 15:]], axis=-1)
        memory = [_COMMANDS * noise[..., :3]]
        if self.table.incremental:
            memory += [q, xp.zeros((*lead, 24), noise.dtype)]
        return Start(qpos, qvel, xp.concatenate(memory, axis=-1))

    def control(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, params: IsaacParams) -> Drive:
        """Servo targets, rad."""
        return Drive(self._target(xp, memory, xp.clip(action, -1.0, 1.0)[..., np.argsort(self.order)]))

    def outcome(
        self, xp: ModuleType, physics: Physics, memory: Any, action: Any, drive: Drive, params: IsaacParams
    ) -> Outcome:
        """Reward for following the command, end of the episode on a fall."""
        table, action = self.table, xp.clip(action, -1.0, 1.0)
        obs = self.observe(xp, physics, memory, action)
        reward = self._reward(xp, physics, memory, action)
        fallen = self.lowest(xp, physics) < 0.0 if table.fall is None else physics.qpos[..., 2] < table.fall
        if table.fall_reward is not None:
            reward = xp.where(fallen, table.fall_reward, reward)
        if table.incremental:
            memory = xp.concatenate([memory[..., :3], drive.ctrl, action, physics.qvel[..., 6:]], axis=-1)
        return Outcome(obs, reward, fallen, memory)

    def recentred(self, xp: ModuleType, qpos: Any, memory: Any) -> tuple[Any, Any]:
        """The base above the origin; its horizontal position is not observed."""
        return xp.where(xp.arange(qpos.shape[-1]) < 2, 0.0, qpos), memory

    def lowest(self, xp: ModuleType, physics: Physics) -> Any:
        """Height (...,) of the lowest point of the base, the lidar and the thighs; before the last sub-step."""
        half, radius, flat = self._extents
        up = physics.geom_xmat[..., self.guarded, 2, :]  # world's z axis in each shape's frame
        round_part = radius * xp.sqrt(xp.maximum(1.0 - flat * up[..., 2] ** 2, 0.0))
        heights = physics.geom_xpos[..., self.guarded, 2] - xp.sum(half * xp.abs(up), axis=-1) - round_part
        return xp.min(heights, axis=-1)

    def _target(self, xp: ModuleType, memory: Any, action: Any) -> Any:
        table = self.table
        if not table.incremental:
            return DEFAULT + table.action_scale * action
        return xp.clip(memory[..., 3:15] + table.action_scale * self.dt * action, self.low, self.high)

    def _velocities(self, xp: ModuleType, physics: Physics) -> tuple[Any, Any]:
        """Linear and angular velocity (..., 3) of the base in its frame."""
        q = physics.qpos[..., 3:7]
        return tuple(frames.rotate_back(xp, q, v) for v in frames.velocities(xp, q, physics.qvel, self.com))

    def observe(self, xp: ModuleType, physics: Physics, memory: Any, action: Any) -> Any:
        linear, angular = self._velocities(xp, physics)
        down = xp.broadcast_to(np.array([0.0, 0.0, -1.0], linear.dtype), linear.shape)
        parts = [
            2.0 * linear,
            0.25 * angular,
            frames.rotate(xp, physics.qpos[..., 3:7], down),
            memory[..., :3] * np.array([2.0, 2.0, 0.25]),
            (physics.qpos[..., 7:] - DEFAULT)[..., self.order],
            0.05 * physics.qvel[..., 6:][..., self.order],
            action,
        ]
        return xp.clip(xp.concatenate(parts, axis=-1), -5.0, 5.0)

    def _reward(self, xp: ModuleType, physics: Physics, memory: Any, action: Any) -> Any:
        table, (linear, angular) = self.table, self._velocities(xp, physics)
        planar = xp.sum((memory[..., :2] - linear[..., :2]) ** 2, axis=-1)
        yaw = (memory[..., 2] - angular[..., 2]) ** 2
        reward = xp.exp(-planar / _TRACKING) + 0.5 * xp.exp(-yaw / _TRACKING)
        reward = reward + table.torque * xp.sum(physics.actuator_force**2, axis=-1)
        if table.incremental:
            before, speeds = memory[..., 15:27], memory[..., 27:]
            reward = reward + table.vertical * linear[..., 2] ** 2
            reward = reward + table.acceleration * xp.sum((speeds - physics.qvel[..., 6:]) ** 2, axis=-1)
            reward = reward + table.rate * xp.sum((before - action) ** 2, axis=-1)
            hips = physics.qpos[..., 7:][..., HIPS] - DEFAULT[HIPS]
            reward = reward + table.hips * xp.sum(xp.abs(hips), axis=-1)
        return xp.maximum(self.dt * reward, 0.0)


def _shapes(model: Any) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Shapes of group 1 and their extents: half sizes (n, 3), radii (n,), and whether their ends are flat (n,)."""
    kinds = physics_library().mjtGeom
    chosen = np.flatnonzero(model.geom_group == 1)
    size, kind = model.geom_size[chosen], model.geom_type[chosen]
    box, ball = kind == kinds.mjGEOM_BOX, kind == kinds.mjGEOM_SPHERE
    along = np.where(box | ball, 0.0, size[:, 1])
    half = np.where(box[:, None], size, np.stack([0 * along, 0 * along, along], axis=-1))
    return chosen, (half, np.where(box, 0.0, size[:, 0]), (kind == kinds.mjGEOM_CYLINDER).astype(float))
