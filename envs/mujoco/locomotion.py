"""Gymnasium's v5 locomotion tasks as arithmetic on arrays, written once for NumPy and for JAX.

An engine advances the physics; everything else a task is (observation, reward, health, start) stands here. Leading axes
are free. ``xp`` is ``numpy`` or ``jax.numpy``. `LocomotionTask` is the arithmetic as an `envs.physics.PhysicsTask`.
"""

import math
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from envs.mujoco.model import load
from envs.mujoco.params import MujocoParams, reset_noise
from envs.mujoco.table import Locomotion
from envs.physics.fields import FACTORS, Factor, Field, motors_of
from envs.physics.protocol import Drive, Outcome, Physics, PhysicsTask, Start


def anchor(xp: ModuleType, task: Locomotion, body_mass: Any, physics: Physics) -> Any:
    """x (...,) of the point whose displacement over a control step is the forward speed.

    Args:
      body_mass: (nbody,), up to a common factor.
    """
    if task.anchor == "qpos":
        return physics.qpos[..., 0]
    if task.anchor == "torso":
        return physics.xpos[..., 1, 0]
    return xp.sum(physics.xipos[..., 0] * (body_mass / body_mass.sum()), axis=-1)


def control(xp: ModuleType, low: Any, high: Any, action: Any) -> Any:
    """Controls (..., A) of a model with ranges ``low``, ``high`` (A,) from actions in [-1, 1]; the rest is clipped."""
    return 0.5 * (high + low) + 0.5 * (high - low) * xp.clip(action, -1.0, 1.0)


def start(xp: ModuleType, task: Locomotion, qpos0: Any, noise: Any) -> tuple[Any, Any]:
    """Positions (..., nq) and velocities (..., nv) of a new episode.

    Args:
      qpos0: (nq,).
      noise: (..., nq + nv) uniform on [-1, 1] for positions and, where the task says so, for velocities; else
        standard normal.
    """
    nq = qpos0.shape[0]
    scaled = task.reset_noise_scale * noise
    return qpos0 + scaled[..., :nq], scaled[..., nq:]


def _flat(xp: ModuleType, values: Any) -> Any:
    return xp.reshape(values, (*values.shape[:-2], -1))


def _forces(xp: ModuleType, task: Locomotion, physics: Physics) -> Any:
    if task.contact_force_range is None:
        return physics.cfrc_ext
    return xp.clip(physics.cfrc_ext, *task.contact_force_range)


def observe(xp: ModuleType, task: Locomotion, version: str, physics: Physics) -> Any:
    """Observation (..., S), of Gymnasium's version ``v5`` or ``v4``.

    ``v4`` leaves out Ant's contact forces and keeps Humanoid's rows of the world's body and the root's motors.
    """
    velocity = physics.qvel
    if math.isfinite(task.velocity_clip):
        velocity = xp.clip(velocity, -task.velocity_clip, task.velocity_clip)
    parts = [physics.qpos[..., task.hidden :], velocity]
    body, joint = (1, 6) if version == "v5" else (0, 0)  # v5 drops the world's body and the root's actuators
    if "cinert" in task.fields:
        parts += [_flat(xp, physics.cinert[..., body:, :]), _flat(xp, physics.cvel[..., body:, :])]
        parts += [physics.qfrc_actuator[..., joint:]]
    if "cfrc_ext" in task.fields and (version == "v5" or "cinert" in task.fields):
        parts += [_flat(xp, _forces(xp, task, physics)[..., body:, :])]
    return xp.concatenate(parts, axis=-1)


def _within(value: Any, bounds: tuple[float, float], closed: bool = False) -> Any:
    low, high = bounds
    return (low <= value) & (value <= high) if closed else (low < value) & (value < high)


def healthy(xp: ModuleType, task: Locomotion, physics: Physics) -> Any:
    """(...,) bool; always true where the task never terminates."""
    good = xp.ones(physics.qpos.shape[:-1], bool)
    if task.healthy_z is not None:
        good = good & _within(physics.qpos[..., task.height], task.healthy_z, task.healthy_z_closed)
    if task.healthy_angle is not None:
        good = good & _within(physics.qpos[..., 2], task.healthy_angle)
    if task.healthy_state is not None:
        rest = xp.concatenate([physics.qpos[..., 2:], physics.qvel], axis=-1)
        good = good & xp.all(_within(rest, task.healthy_state), axis=-1)
    return good


def observation_size(task: Locomotion, version: str, nq: int, nv: int, nbody: int) -> int:
    """S."""
    shapes = {"cinert": (nbody, 10), "cvel": (nbody, 6), "qfrc_actuator": (nv,), "cfrc_ext": (nbody, 6)}
    known = {name: np.zeros(shape) for name, shape in shapes.items() if name in task.fields}
    return observe(np, task, version, Physics(qpos=np.zeros(nq), qvel=np.zeros(nv), **known)).shape[-1]


class LocomotionTask(PhysicsTask):
    """One of the five tasks.

    Args:
      table: its constants.
      version: of the observation, see `observe`.
      tracks: whether the reward's forward speed is replaced by ``-|speed - target_velocity|``.
      weakens: whether the torque of one leg's motors may be scaled, which costs the C engine a model field per copy.
    """

    memory_size = 1  # the anchor, metres: the point whose displacement over a control step is the forward speed
    held = True

    def __init__(self, table: Locomotion, version: str = "v5", tracks: bool = False, weakens: bool = False) -> None:
        self.table, self.version, self.tracks = table, version, tracks
        self.model = load(table.xml)
        self.name, self.time_limit, self.substeps = table.name, table.time_limit, table.frame_skip
        self.obs_size = observation_size(table, version, self.model.nq, self.model.nv, self.model.nbody)
        self.action_size = self.model.nu
        # By precision: what an engine computes in is decided here, not by NumPy.
        self._ranges = {
            np.dtype(kind): self.model.actuator_ctrlrange.T.astype(kind) for kind in (np.float32, np.float64)
        }
        self._masses = {np.dtype(kind): self.model.body_mass.astype(kind) for kind in (np.float32, np.float64)}
        self._duration = self.model.opt.timestep * table.frame_skip
        self.params = MujocoParams(target_velocity=np.float32(table.target_speed[2]))
        self.scales = {name: FACTORS[name] for name in MujocoParams._fields if name in FACTORS}
        if weakens:
            self.scales["leg_gain"] = Factor((Field("actuator_gainprm", partial(motors_of, joints=table.leg)),))
        self.fields = table.fields
        self.start_fields = ("xipos", "cinert", "cvel") if table.forward_at_reset else ()

    def noise(self, key: Any) -> Any:
        """(nq + nv,) draws."""
        return reset_noise(key, self.table, self.model)

    def start(self, xp: ModuleType, noise: Any, params: MujocoParams) -> Start:
        """Gymnasium's reset noise about the model's own position."""
        qpos, qvel = start(xp, self.table, np.asarray(self.model.qpos0, noise.dtype), noise)
        return Start(qpos, qvel, qpos[..., :1])

    def opening(self, xp: ModuleType, physics: Physics, memory: Any, params: MujocoParams) -> tuple[Any, Any]:
        """The first observation, as Gymnasium's: before a step nothing touches anything and nothing drives."""
        lead, bodies, table = physics.qpos.shape[:-1], self.model.nbody, self.table
        known = {"cfrc_ext": xp.zeros((*lead, bodies, 6)), "qfrc_actuator": xp.zeros_like(physics.qvel)}
        if table.forward_at_reset:
            # Inertia about the centre of mass is proportional to a factor that all masses share.
            mass = xp.reshape(params.body_mass, (*lead, 1, 1))
            known |= {"xipos": physics.xipos, "cinert": physics.cinert * mass, "cvel": physics.cvel}
            memory = self._anchor(xp, physics)
        physics = Physics(qpos=physics.qpos, qvel=physics.qvel, **known)
        return observe(xp, table, self.version, physics), memory

    def control(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, params: MujocoParams) -> Drive:
        """Motors over their whole range."""
        low, high = self._ranges[action.dtype]
        return Drive(control(xp, low, high, action))

    def outcome(
        self, xp: ModuleType, physics: Physics, memory: Any, action: Any, drive: Drive, params: MujocoParams
    ) -> Outcome:
        """Observation, reward and termination of a control step."""
        table, here = self.table, self._anchor(xp, physics)
        speed = params.direction * (here - memory)[..., 0] / self._duration
        progress = -xp.abs(speed - params.target_velocity) if self.tracks else speed
        good = healthy(xp, table, physics)
        cost = table.ctrl_cost_weight * xp.sum(drive.ctrl**2, axis=-1)
        if table.contact_cost_weight:
            forces = _forces(xp, table, physics)
            contact, most = table.contact_cost_weight * xp.sum(forces**2, axis=(-2, -1)), table.contact_cost_max
            cost = cost + (xp.minimum(contact, most) if math.isfinite(most) else contact)
        reward = table.forward_reward_weight * progress + table.healthy_reward * good - cost
        terminated = ~good if table.healthy_z is not None else xp.zeros_like(good)
        return Outcome(observe(xp, table, self.version, physics), reward, terminated, here)

    def recentred(self, xp: ModuleType, qpos: Any, memory: Any) -> tuple[Any, Any]:
        """The body at the origin.

        Nobody sees where it is, only how far it gets: so float32 resolves its speed as well at the end of an episode
        as at its start.
        """
        hidden = xp.arange(qpos.shape[-1]) < self.table.hidden
        return xp.where(hidden, 0.0, qpos), memory - qpos[..., :1]

    def _anchor(self, xp: ModuleType, physics: Physics) -> Any:
        """(..., 1), the task's memory. Masses are nominal: their centre does not depend on a common factor."""
        return anchor(xp, self.table, self._masses[physics.qpos.dtype], physics)[..., None]
