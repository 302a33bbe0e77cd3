"""Ant, and the parts it shares with the Humanoid: observation, reward and start of Isaac Gym's locomotion tasks."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from envs.isaac import frames
from envs.isaac.base import IsaacParams, IsaacTask
from envs.physics import Drive, Outcome, Physics, Start

_TARGET = np.array([1000.0, 0.0, 0.0])  # m
_UPRIGHT, _AHEAD = 0.93, 0.8  # projections beyond which posture and heading are good
_POSITION_NOISE, _VELOCITY_NOISE = 0.2, 0.1  # of the joints at the start, rad and rad/s
_UP_WEIGHT, _HEADING_WEIGHT, _ENERGY_COST = 0.1, 0.5, 0.05


class Constants(NamedTuple):
    """Constants of a task variant; by default those of Isaac Gym's Ant."""

    height: float = 0.44  # m, of the torso at the start
    lowest: float = 0.31  # m, of the torso; below it the episode ends
    death: float = -2.0  # reward of that step
    alive: float = 0.5  # reward for a step
    action_cost: float = 0.005
    angular_scale: float = 1.0  # of the observed angular velocity
    velocity_scale: float = 0.2  # of the observed joint velocities
    force_scale: float = 0.1  # of all observed forces
    wrapped: bool = False  # observed angles lie in (-pi, pi], instead of the reference's Euler range
    joint_forces: bool = False  # whether motor forces and passive joint forces are observed
    limit_cost: float = 0.1  # of a joint at its limit
    timestep: float = 0.0083  # s
    power: float = 1.0  # torque at full action, as a share of the motors' gears
    foot_force: str = "cfrc_ext"  # contact force of the floor; "cfrc_int": joint reaction, as in the successor
    order: tuple[int, ...] | None = None  # joint order of observations and actions; None: as in the model


class Walker(IsaacTask):
    """A motorised body, rewarded for its speed towards a point one kilometre ahead.

    Action (A,): torques as shares of the motors' gears. Observation: torso height, its linear and angular velocity in
    its own frame, yaw, roll, angle to the target, up and heading projections, joint positions as shares of their
    ranges, joint velocities, joint forces with `Constants.joint_forces`, force and torque at each foot
    in the foot's frame, and the action.

    The angle to the target uses the height in place of y, as in the reference, and is close to minus the yaw. Forces
    are those of the last sub-step, and 0 at the start of an episode. The reference's sensor measures the net force on a
    foot, which is 0 at rest; here it is the contact force of the floor.
    """

    table: Constants
    feet: tuple[str, ...]  # body names, in observed order

    length, substeps = 1000, 2
    poses = 1  # poses drawn for a start; `choose` selects one
    held = True
    memory_size = 2  # m, x and y of the torso one step before

    def prepare(self) -> None:
        model, table, joints = self.model, self.table, self.model.nu
        self.order = np.arange(joints) if table.order is None else np.array(table.order)
        self._motors = np.argsort(self.order)
        self.low, self.high = model.jnt_range[1:].T[:, self.order]
        self.gears = model.actuator_gear[self.order, 0]
        self._feet = np.array([model.body(name).id for name in self.feet])
        self._com = model.body_ipos[1].copy()
        self.action_size, self.draws = joints, (self.poses + 1) * joints
        self.obs_size = 12 + joints * (4 if table.joint_forces else 3) + 6 * len(self.feet)
        forces = ("qfrc_actuator", "qfrc_passive") if table.joint_forces else ()
        self.fields = (table.foot_force, "xpos", "xmat", "subtree_com", *forces)

    def limit_cost(self, xp: ModuleType, share: Any) -> Any:
        """(...,) cost of joints near their limits; ``share`` (..., A) is -1 and 1 at the limits."""
        raise NotImplementedError

    def energy(self) -> Any:
        """(A,) relative cost of a joint's power."""
        return np.ones(self.action_size)

    def choose(self, xp: ModuleType, q: Any) -> Any:
        """Select one of the poses ``q`` (..., D, A), rad, in the model's order; (..., A)."""
        return q[..., 0, :]

    def start(self, xp: ModuleType, noise: Any, params: IsaacParams) -> Start:
        """Upright at rest; joints are as close to 0 as their ranges allow, with noise."""
        lead, joints = noise.shape[:-1], self.action_size
        drawn = xp.reshape(noise[..., :-joints], (*lead, self.poses, joints))
        low, high = (np.broadcast_to(ends, drawn.shape) for ends in self.model.jnt_range[1:].T.astype(noise.dtype))
        q = self.choose(xp, xp.clip(np.clip(0.0, low, high) + _POSITION_NOISE * drawn, low, high))
        root = np.array([0.0, 0.0, self.table.height, 1.0, 0.0, 0.0, 0.0], noise.dtype)
        qpos = xp.concatenate([xp.broadcast_to(root, (*lead, 7)), q], axis=-1)
        still = xp.zeros((*lead, 6), noise.dtype)
        qvel = xp.concatenate([still, _VELOCITY_NOISE * noise[..., -joints:]], axis=-1)
        return Start(qpos, qvel, qpos[..., :2])

    def opening(self, xp: ModuleType, physics: Physics, memory: Any, params: IsaacParams) -> tuple[Any, Any]:
        """First observation, with zero action and zero forces."""
        joints = xp.zeros_like(physics.qpos[..., 7:])
        feet = xp.zeros((*joints.shape[:-1], 6 * len(self.feet)), joints.dtype)
        return self._observe(xp, physics, joints, feet, joints), memory

    def control(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, params: IsaacParams) -> Drive:
        """Torques as shares of the motors' gears."""
        return Drive(self.table.power * xp.clip(action, -1.0, 1.0)[..., self._motors])

    def outcome(
        self, xp: ModuleType, physics: Physics, memory: Any, action: Any, drive: Drive, params: IsaacParams
    ) -> Outcome:
        """Reward for speed, posture and heading, minus costs of torques, power and joint limits."""
        table, joints = self.table, self.action_size
        action, position = xp.clip(action, -1.0, 1.0), physics.qpos[..., :2]
        forces = xp.zeros_like(action)
        if table.joint_forces:
            forces = (physics.qfrc_actuator + physics.qfrc_passive)[..., 6:][..., self.order]
        obs = self._observe(xp, physics, forces, self._pushes(xp, physics), action)
        up, heading, share = obs[..., 10], obs[..., 11], obs[..., 12 : 12 + joints]
        velocity = obs[..., 12 + joints : 12 + 2 * joints]
        speed = frames.progress(xp, memory, position, _TARGET[:2], table.timestep * self.substeps)
        posture = _UP_WEIGHT * (up > _UPRIGHT) + _HEADING_WEIGHT * xp.where(heading > _AHEAD, 1.0, heading / _AHEAD)
        costs = table.action_cost * xp.sum(action**2, axis=-1) + self.limit_cost(xp, share)
        costs = costs + _ENERGY_COST * xp.sum(self.energy() * xp.abs(action * velocity), axis=-1)
        fallen = physics.qpos[..., 2] < table.lowest
        reward = xp.where(fallen, table.death, speed + table.alive + posture - costs)
        return Outcome(obs, reward, fallen, position)

    def _pushes(self, xp: ModuleType, physics: Physics) -> Any:
        """Force and torque (..., 6 F) at the feet's origins in their frames, newtons and newton metres."""
        origins, frame = physics.xpos[..., self._feet, :], physics.xmat[..., self._feet, :, :]
        spatial = getattr(physics, self.table.foot_force)[..., self._feet, :]
        torque, force = spatial[..., :3], spatial[..., 3:]
        # MuJoCo gives the torque about the body's centre of mass.
        torque = torque + frames.cross(xp, physics.subtree_com[..., 1:2, :] - origins, force)
        wrench = [xp.einsum("...ji,...j->...i", frame, vector) for vector in (force, torque)]
        both = xp.concatenate(wrench, axis=-1)
        return xp.reshape(both, (*both.shape[:-2], -1))

    def _observe(self, xp: ModuleType, physics: Physics, forces: Any, pushes: Any, action: Any) -> Any:
        table, position, q = self.table, physics.qpos[..., :3], physics.qpos[..., 3:7]
        linear, angular = (
            frames.rotate_back(xp, q, each) for each in frames.velocities(xp, q, physics.qvel, self._com)
        )
        roll, yaw = frames.roll_and_yaw(xp, q)
        ahead = xp.arctan2(_TARGET[2] - position[..., 2], _TARGET[0] - position[..., 0]) - yaw
        angles = xp.stack([yaw, roll, ahead], axis=-1)
        ups = xp.stack([frames.up(xp, q), frames.heading(xp, q, position, _TARGET)], axis=-1)
        parts = [
            position[..., 2:],
            linear,
            table.angular_scale * angular,
            frames.wrap(xp, angles) if table.wrapped else angles,
            ups,
            frames.unscale(physics.qpos[..., 7:][..., self.order], self.low, self.high),
            table.velocity_scale * physics.qvel[..., 6:][..., self.order],
            *([table.force_scale * forces] if table.joint_forces else []),
            table.force_scale * pushes,
            action,
        ]
        return xp.concatenate(parts, axis=-1)


_OMNI = {"timestep": 1 / 120, "height": 0.5, "power": 0.5, "wrapped": True, "foot_force": "cfrc_int", "limit_cost": 1.0}


class Ant(Walker):
    """A torso on four legs of two joints each; see `Walker`.

    Action (8,): hip and ankle of the legs front left, front right, back left, back right; 15 N m at most. Observation
    (60,); the angles of yaw and roll lie in [0, 2 pi) and jump at its ends.
    """

    xml = "ant.xml"
    name = "isaac_ant"
    description = "Ant (Isaac Gym): four legs run to a distant target"
    constants: Mapping[str, Constants] = {"gym": Constants(), "omni": Constants(**_OMNI)}
    feet = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")

    def limit_cost(self, xp: ModuleType, share: Any) -> Any:
        """Cost of joints at the upper ends of their ranges; the reference ignores the lower ends."""
        return self.table.limit_cost * xp.sum(share > 0.99, axis=-1)
