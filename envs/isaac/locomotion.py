"""Observation, reward and start that Isaac Gym's Ant and Humanoid share."""

from abc import abstractmethod
from functools import reduce
from operator import add
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from envs.isaac import drives, frames
from envs.isaac.base import IsaacParams, IsaacTask
from envs.physics import Drive, Outcome, Physics, Start

_TARGET = np.array([1000.0, 0.0, 0.0])  # m
UPRIGHT, AHEAD = 0.93, 0.8  # projections beyond which posture and heading are good
POSITION_NOISE, VELOCITY_NOISE = 0.2, 0.1  # of the joints at the start, rad and rad/s
#: Foot forces -> fields of MuJoCo whose sum they are: the floor's push; what the joint does, as the successor reads
#: it; all that acts on a foot, its weight included, as the reference's sensor is documented; nothing.
FOOT_SENSORS = {"contact": ("cfrc_ext",), "joint": ("cfrc_int",), "net": ("cfrc_ext", "cfrc_int"), "zero": ()}
UP_WEIGHT, HEADING_WEIGHT, ENERGY_COST = 0.1, 0.5, 0.05


class Constants(NamedTuple):
    """The numbers of a task in one of its variants."""

    height: float  # m, of the torso at the start
    lowest: float  # m, of the torso; below it the episode ends
    death: float  # reward of the step that ends so
    alive: float  # reward for a step
    action_cost: float
    angular_scale: float  # of the observed angular velocity
    velocity_scale: float  # of the observed joint velocities
    force_scale: float  # of all observed forces
    wrapped: bool  # observed angles lie in (-pi, pi], not as the reference's Euler angles fall
    joint_forces: bool  # whether motors' and passive forces of the joints are observed
    limit_cost: float  # of a joint at its limit
    timestep: float = 0.0083  # s
    power: float = 1.0  # torque at full action, as a share of the motors' gears
    foot_sensor: str = "contact"  # one of `FOOT_SENSORS`
    order: tuple[int, ...] | None = None  # joints as observed and acted on; None: as in the model


class Walker(IsaacTask):
    """A body on motors, paid for its speed towards a point a kilometre ahead.

    Action (A,): torques as shares of the motors' gears. Observation: torso height, its linear and angular velocity in
    its own frame, yaw, roll, angle to the target, up and heading projections, joint positions as shares of their
    ranges, joint velocities, forces in the joints where `Constants.joint_forces` says so, force and torque at each foot
    in the foot's frame, and the action.

    The angle to the target is the reference's, which takes the height for y: it is close to minus the yaw. Forces are
    those of the last sub-step, and 0 at the start of an episode. What acts on a foot is the floor's push alone, unless
    ``foot_sensor`` says otherwise: the reference's sensor reads the foot's net force, which is 0 for a foot at rest.
    """

    own = MappingProxyType({"foot_sensor": tuple(FOOT_SENSORS)})

    table: Constants
    feet: tuple[str, ...]  # bodies, in the order in which they are observed

    length, substeps = 1000, 2
    draws = 1  # of a start's joint positions, of which `choose` takes one
    held = True
    memory_size = 2  # m, where the torso was a step before, x and y

    def __init__(self, variant: str = "gym", time_limit: int | None = None, **own: Any) -> None:
        super().__init__(variant, time_limit, **own)
        self.model = model = drives.timed(self.model, self.table.timestep)
        table = self.table
        joints = model.nu
        self.order = np.arange(joints) if table.order is None else np.array(table.order)
        self._motors = np.argsort(self.order)
        self.low, self.high = model.jnt_range[1:].T[:, self.order]
        self.gears = model.actuator_gear[self.order, 0]
        self._feet = np.array([model.body(name).id for name in self.feet])
        self._weights = model.body_mass[self._feet, None] * model.opt.gravity  # newtons, world axes
        self._com = model.body_ipos[1].copy()
        self.action_size = joints
        self.obs_size = 12 + joints * (4 if table.joint_forces else 3) + 6 * len(self.feet)
        forces = ("qfrc_actuator", "qfrc_passive") if table.joint_forces else ()
        self.felt = FOOT_SENSORS[table.foot_sensor]
        centres = ("xipos",) if table.foot_sensor == "net" else ()
        self.fields = (*self.felt, "xpos", "xmat", "subtree_com", *centres, *forces)
        self._dt = table.timestep * self.substeps

    @abstractmethod
    def limit_cost(self, xp: ModuleType, share: Any) -> Any:
        """(...,) what joints near their limits cost; ``share`` (..., A) is -1 and 1 at the limits."""

    def energy(self) -> Any:
        """(A,) what a joint's power costs, relative to others."""
        return np.ones(self.action_size)

    def noise(self, key: Any) -> Any:
        """((D + 1) A,) uniform on [-1, 1), of D draws of the joints' positions and one of their velocities."""
        import jax

        return jax.random.uniform(key, ((self.draws + 1) * self.action_size,), minval=-1.0)

    def choose(self, xp: ModuleType, q: Any) -> Any:
        """(..., A) one of the draws ``q`` (..., D, A), rad, in the model's order."""
        return q[..., 0, :]

    def start(self, xp: ModuleType, noise: Any, params: IsaacParams) -> Start:
        """Upright at rest, with noise on joints that are where their ranges come nearest to 0."""
        lead, joints = noise.shape[:-1], self.action_size
        draws = xp.reshape(noise[..., :-joints], (*lead, self.draws, joints))
        low, high = (np.broadcast_to(ends, draws.shape) for ends in self.model.jnt_range[1:].T.astype(noise.dtype))
        q = self.choose(xp, xp.clip(np.clip(0.0, low, high) + POSITION_NOISE * draws, low, high))
        root = np.array([0.0, 0.0, self.table.height, 1.0, 0.0, 0.0, 0.0], noise.dtype)
        qpos = xp.concatenate([xp.broadcast_to(root, (*lead, 7)), q], axis=-1)
        still = xp.zeros((*lead, 6), noise.dtype)
        qvel = xp.concatenate([still, VELOCITY_NOISE * noise[..., -joints:]], axis=-1)
        return Start(qpos, qvel, qpos[..., :2])

    def opening(self, xp: ModuleType, physics: Physics, memory: Any, params: IsaacParams) -> tuple[Any, Any]:
        """The first observation: no action yet, and no force."""
        joints = xp.zeros_like(physics.qpos[..., 7:])
        feet = xp.zeros((*joints.shape[:-1], 6 * len(self.feet)), joints.dtype)
        return self._observe(xp, physics, joints, feet, joints), memory

    def control(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, params: IsaacParams) -> Drive:
        """The motors' shares."""
        return Drive(self.table.power * xp.clip(action, -1.0, 1.0)[..., self._motors])

    def outcome(
        self, xp: ModuleType, physics: Physics, memory: Any, action: Any, drive: Drive, params: IsaacParams
    ) -> Outcome:
        """Speed, posture and heading, less what torques, power and joint limits cost; a fall is one bad step."""
        table, joints = self.table, self.action_size
        action, position = xp.clip(action, -1.0, 1.0), physics.qpos[..., :2]
        forces = xp.zeros_like(action)
        if table.joint_forces:
            forces = (physics.qfrc_actuator + physics.qfrc_passive)[..., 6:][..., self.order]
        obs = self._observe(xp, physics, forces, self._pushes(xp, physics, params), action)
        up, heading, share = obs[..., 10], obs[..., 11], obs[..., 12 : 12 + joints]
        velocity = obs[..., 12 + joints : 12 + 2 * joints]
        speed = frames.progress(xp, memory, position, _TARGET[:2], self._dt)
        posture = UP_WEIGHT * (up > UPRIGHT) + HEADING_WEIGHT * xp.where(heading > AHEAD, 1.0, heading / AHEAD)
        costs = table.action_cost * xp.sum(action**2, axis=-1) + self.limit_cost(xp, share)
        costs = costs + ENERGY_COST * xp.sum(self.energy() * xp.abs(action * velocity), axis=-1)
        fallen = physics.qpos[..., 2] < table.lowest
        reward = xp.where(fallen, table.death, speed + table.alive + posture - costs)
        return Outcome(obs, reward, fallen, position)

    def _pushes(self, xp: ModuleType, physics: Physics, params: IsaacParams) -> Any:
        """Force and torque (..., 6 F) at the feet's origins in their frames, newtons and newton metres."""
        origins, frame = physics.xpos[..., self._feet, :], physics.xmat[..., self._feet, :, :]
        if not self.felt:
            return xp.zeros((*origins.shape[:-2], 6 * len(self.feet)), origins.dtype)
        spatial = reduce(add, (getattr(physics, name)[..., self._feet, :] for name in self.felt))
        torque, force = spatial[..., :3], spatial[..., 3:]
        # MuJoCo gives the torque about the whole body's centre of mass.
        arm = physics.subtree_com[..., 1:2, :] - origins
        torque = torque + frames.cross(xp, arm, force)
        if self.table.foot_sensor == "net":
            weight = xp.asarray(params.gravity)[..., None, None] * self._weights
            torque = torque + frames.cross(xp, physics.xipos[..., self._feet, :] - origins, weight)
            force = force + weight
        wrench = [xp.einsum("...ji,...j->...i", frame, vector) for vector in (force, torque)]
        both = xp.concatenate(wrench, axis=-1)
        return xp.reshape(both, (*both.shape[:-2], -1))

    def _observe(self, xp: ModuleType, physics: Physics, forces: Any, pushes: Any, action: Any) -> Any:
        table, position, q = self.table, physics.qpos[..., :3], physics.qpos[..., 3:7]
        linear, angular = (
            frames.rotate_back(xp, q, each) for each in frames.velocities(xp, q, physics.qvel, self._com)
        )
        roll, _, yaw = frames.euler(xp, q)
        ahead = xp.arctan2(_TARGET[2] - position[..., 2], _TARGET[0] - position[..., 0]) - yaw
        angles = xp.stack([yaw, roll, ahead], axis=-1)
        ups = xp.stack([frames.up(xp, q), frames.heading(xp, q, position, _TARGET)], axis=-1)
        share = frames.unscale(physics.qpos[..., 7:][..., self.order], self.low, self.high)
        parts = [
            position[..., 2:],
            linear,
            table.angular_scale * angular,
            frames.wrap(xp, angles) if table.wrapped else angles,
            ups,
            share,
            table.velocity_scale * physics.qvel[..., 6:][..., self.order],
            *([table.force_scale * forces] if table.joint_forces else []),
            table.force_scale * pushes,
            action,
        ]
        return xp.concatenate(parts, axis=-1)
