"""Ingenuity: a helicopter in the gravity of Mars flies to changing targets (Isaac Gym's task of that name)."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from envs.isaac import frames
from envs.isaac.base import IsaacParams, IsaacTask
from envs.physics import Drive, Marker, Outcome, Physics, Start

_THRUST = 20.0  # N of a rotor at full action: 2000 of the reference, times its control step of 0.01 s
_LATERAL = 0.2  # largest share of the thrust that points sideways
_ROTORS = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.025]])  # m, where the thrusts act in the body's frame
_SPIN = 4.0 * np.pi  # rad/s, the largest angular velocity
_PERIOD = 500  # control steps between targets
_START = np.array([0.0, 0.0, 1.0])  # m
_LOWEST = 0.5  # m


class Constants(NamedTuple):
    """Constants of Isaac Gym; its successor has others."""

    near: float = 1.0  # the reward for being near is 1 / (1 + near d^2)
    up_weight: float = 5.0  # of 1 / (1 + tilt (1 - up)^2)
    tilt: float = 1.0
    spin: float = 1.0  # of 1 / (1 + spin rate^2), yaw rate in rad/s
    farthest: float = 8.0  # m from the target
    targets: float = 5.0  # m, targets are as far from the origin in x and y
    start_low: tuple[float, float, float] = (-1.5, -1.5, -0.2)  # m from the usual start
    start_high: tuple[float, float, float] = (1.5, 1.5, 1.5)
    steering: float = 1.0  # share of the thrust that an action of 1 turns sideways, before the bound
    scalar_last: bool = True  # order of the observed quaternion
    rotational_drag: float = 0.0  # N m s/rad, a damping for `joint_damping` to scale


_OMNI: dict[str, Any] = {"near": 2.5, "up_weight": 1.0, "tilt": 30.0, "spin": 10.0, "farthest": 20.0, "targets": 1.0}
_OMNI |= {"start_low": (-0.5,) * 3, "start_high": (0.5,) * 3, "steering": _LATERAL, "scalar_last": False}


class Ingenuity(IsaacTask):
    """Two rotors exert thrust in the body's frame.

    Action (6,): for the lower and the upper rotor the sideways share in x and y, and the thrust. Observation (13,),
    clipped at +-5: way to the target / 3, quaternion, linear velocity / 2, angular velocity / pi, world axes.

    The target changes with step 500, 1000 and 1500, first in the observation after that step. In 15 % of the changes
    the new target is too far away and the episode ends. The rotors' visible spin has no effect, and the joints of the
    reference have neither range nor damping, so `joint_damping` has no effect without ``rotational_drag``.
    """

    xml = "ingenuity.xml"
    description = "Ingenuity (Isaac Gym): a helicopter on Mars flies to changing targets"
    name = "isaac_ingenuity"
    constants: Mapping[str, Constants] = {"gym": Constants(), "omni": Constants(**_OMNI)}
    obs_size, action_size, substeps, length, resets_first = 13, 6, 2, 2000, True
    lowest_draw = 0.0
    own = MappingProxyType({"rotational_drag": None})
    table: Constants

    def prepare(self) -> None:
        self.inert = () if self.table.rotational_drag else ("joint_damping",)
        self._targets = self.time_limit // _PERIOD + 1
        self.memory_size = 3 * self._targets + 1  # all targets of an episode, then the reference's counter
        self.draws = 3 + 3 * self._targets  # of the start and of each target
        self._com = self.model.body_ipos[1].copy()

    def start(self, xp: ModuleType, noise: Any, params: IsaacParams) -> Start:
        """At rest and upright near (0, 0, 1), and all targets of the episode."""
        table, lead = self.table, noise.shape[:-1]
        low, high = (_START + np.array(bound) for bound in (table.start_low, table.start_high))
        where = low + (high - low) * noise[..., :3]
        upright = xp.broadcast_to(np.array([1.0, 0.0, 0.0, 0.0], noise.dtype), (*lead, 4))
        drawn = xp.reshape(noise[..., 3:], (*lead, self._targets, 3))
        flat, height = table.targets * (2.0 * drawn[..., :2] - 1.0), 1.0 + drawn[..., 2:]
        targets = xp.concatenate([flat, height], axis=-1)
        memory = xp.concatenate([xp.reshape(targets, (*lead, -1)), xp.ones((*lead, 1), noise.dtype)], axis=-1)
        qpos = xp.concatenate([where, upright], axis=-1)
        return Start(qpos, xp.zeros((*lead, 6), noise.dtype), memory)

    def control(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, params: IsaacParams) -> Drive:
        """Thrust of the rotors, rotated with the body in every sub-step."""
        force, torque = self._wrench(xp, xp.clip(action, -1.0, 1.0))
        if self.table.rotational_drag:
            drag = self.table.rotational_drag * xp.asarray(params.joint_damping)[..., None]
            torque = torque - drag * physics.qvel[..., 3:6]
        q = physics.qpos[..., 3:7]
        applied = xp.concatenate([frames.rotate(xp, q, force), frames.rotate(xp, q, torque)], axis=-1)
        return Drive(action[..., :0], xfrc_applied=xp.stack([xp.zeros_like(applied), applied], axis=-2))

    def settle(self, xp: ModuleType, qpos: Any, qvel: Any) -> Any:
        """Limit of the angular velocity, as in the reference."""
        return frames.spin_limited(xp, qvel, _SPIN)

    def outcome(
        self, xp: ModuleType, physics: Physics, memory: Any, action: Any, drive: Drive, params: IsaacParams
    ) -> Outcome:
        """Reward for position, posture and yaw, up to 7 a step (3 in ``omni``); a fall costs nothing."""
        table, target = self.table, self.target(xp, memory)
        angular = frames.rotate(xp, physics.qpos[..., 3:7], physics.qvel[..., 3:6])
        squared = xp.sum((target - physics.qpos[..., :3]) ** 2, axis=-1)
        tilt = xp.abs(1.0 - frames.up(xp, physics.qpos[..., 3:7]))
        near = 1.0 / (1.0 + table.near * squared)
        upright, still = 1.0 / (1.0 + table.tilt * tilt**2), 1.0 / (1.0 + table.spin * angular[..., 2] ** 2)
        reward = near + near * (table.up_weight * upright + still)
        lost = (xp.sqrt(squared) > table.farthest) | (physics.qpos[..., 2] < _LOWEST)
        after = xp.concatenate([memory[..., :-1], memory[..., -1:] + 1.0], axis=-1)
        return Outcome(self.observe(xp, physics, memory, action, target), reward, lost, after)

    def target(self, xp: ModuleType, memory: Any) -> Any:
        """(..., 3) target of the step that begins with ``memory``, metres."""
        turn = xp.minimum(xp.floor(memory[..., -1:] / _PERIOD), self._targets - 1)  # the last one past the time limit
        chosen = (xp.arange(self._targets) == turn)[..., None]
        targets = xp.reshape(memory[..., :-1], (*memory.shape[:-1], self._targets, 3))
        return xp.sum(xp.where(chosen, targets, 0.0), axis=-2)

    def markers(self, memory: Any) -> Sequence[Marker]:
        return [Marker("sphere", [0.08, 0.0, 0.0], self.target(np, memory), np.eye(3), [0.1, 0.75, 0.45])]

    def _wrench(self, xp: ModuleType, action: Any) -> tuple[Any, Any]:
        """Force and torque about the centre of mass (..., 3) in the body's frame."""
        force = torque = xp.zeros_like(action[..., :3])
        for at, rotor in enumerate(_ROTORS):
            sideways, up = action[..., 3 * at : 3 * at + 2], _THRUST * action[..., 3 * at + 2 : 3 * at + 3]
            sideways = xp.clip(self.table.steering * sideways, -_LATERAL, _LATERAL)
            thrust = xp.concatenate([up * sideways, up], axis=-1)
            arm = xp.broadcast_to(np.asarray(rotor - self._com, thrust.dtype), thrust.shape)
            force, torque = force + thrust, torque + frames.cross(xp, arm, thrust)
        return force, torque

    def observe(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, target: Any = None) -> Any:
        target = self.target(xp, memory) if target is None else target
        way, q = target - physics.qpos[..., :3], physics.qpos[..., 3:7]
        linear, angular = frames.velocities(xp, q, physics.qvel, self._com)
        turned = frames.to_xyzw(xp, q) if self.table.scalar_last else q
        return xp.clip(xp.concatenate([way / 3.0, turned, linear / 2.0, angular / np.pi], axis=-1), -5.0, 5.0)
