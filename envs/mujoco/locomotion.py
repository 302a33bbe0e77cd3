"""Gymnasium's v5 locomotion tasks as array functions, for NumPy and JAX.

An engine advances the physics; this module has the observation, reward, health and start of the tasks. Leading axes are
free. ``xp`` is ``numpy`` or ``jax.numpy``.
"""

import math
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.mujoco.model import load
from envs.mujoco.table import Locomotion
from envs.physics.fields import FACTORS, Factor, Field, motors_of
from envs.physics.protocol import Drive, Outcome, Physics, PhysicsTask, Start


class MujocoParams(NamedTuple):
    """Drifting parameters; () each."""

    body_mass: Any = np.float32(1.0)  # factor on every body's mass and inertia
    joint_friction: Any = np.float32(1.0)  # factor on viscous and dry friction of every joint
    geom_friction: Any = np.float32(1.0)  # factor on the sliding friction of every geom
    target_velocity: Any = np.float32(0.0)  # m/s; read only by tasks that track a velocity
    leg_gain: Any = np.float32(1.0)  # factor on the torque of one leg's motors; read only by tasks in which it drifts
    direction: Any = np.float32(1.0)  # factor on the forward speed in the reward; -1 rewards backward speed


def _flat(xp: ModuleType, values: Any) -> Any:
    return xp.reshape(values, (*values.shape[:-2], -1))


class LocomotionTask(PhysicsTask):
    """One of the five tasks.

    Args:
      table: its constants.
      version: of the observation, Gymnasium's ``v5`` or ``v4``.
      tracks: whether ``-|speed - target_velocity|`` replaces the forward speed in the reward.
      weakens: whether the torque of one leg's motors may be scaled, which costs the C engine a model field per copy.
    """

    memory_size = 1  # the anchor, metres: the point whose displacement over a control step is the forward speed
    held = True

    def __init__(self, table: Locomotion, version: str = "v5", tracks: bool = False, weakens: bool = False) -> None:
        self.table, self.version, self.tracks = table, version, tracks
        self.model = model = load(table.xml)
        self.name, self.time_limit, self.substeps = table.name, table.time_limit, table.frame_skip
        shapes = {"cinert": (model.nbody, 10), "cvel": (model.nbody, 6), "qfrc_actuator": (model.nv,)}
        shapes["cfrc_ext"] = (model.nbody, 6)
        known = {name: np.zeros(shape) for name, shape in shapes.items() if name in table.fields}
        nothing = Physics(qpos=np.zeros(model.nq), qvel=np.zeros(model.nv), **known)
        self.obs_size = self._observe(np, nothing).shape[-1]
        self.action_size = model.nu
        self._duration = model.opt.timestep * table.frame_skip
        self.params = MujocoParams(target_velocity=np.float32(table.target_speed[2]))
        self.scales = {name: FACTORS[name] for name in MujocoParams._fields if name in FACTORS}
        if weakens:
            self.scales["leg_gain"] = Factor((Field("actuator_gainprm", partial(motors_of, joints=table.leg)),))
        self.fields = table.fields
        self.start_fields = ("xipos", "cinert", "cvel") if table.forward_at_reset else ()

    def noise(self, key: Any) -> Any:
        """(nq + nv,) draws: uniform on [-1, 1], or standard normal for the velocities of some tasks."""
        nq, nv = self.model.nq, self.model.nv
        if self.table.velocity_noise == "uniform":
            return jax.random.uniform(key, (nq + nv,), minval=-1.0, maxval=1.0)
        key_position, key_velocity = jax.random.split(key)
        position = jax.random.uniform(key_position, (nq,), minval=-1.0, maxval=1.0)
        return jnp.concatenate([position, jax.random.normal(key_velocity, (nv,))])

    def start(self, xp: ModuleType, noise: Any, params: MujocoParams) -> Start:
        """Gymnasium's reset noise about the model's own position."""
        nq, scaled = self.model.nq, self.table.reset_noise_scale * noise
        qpos = np.asarray(self.model.qpos0, noise.dtype) + scaled[..., :nq]
        return Start(qpos, scaled[..., nq:], qpos[..., :1])

    def opening(self, xp: ModuleType, physics: Physics, memory: Any, params: MujocoParams) -> tuple[Any, Any]:
        """First observation as in Gymnasium, with zero contact and actuator forces."""
        lead, bodies, table = physics.qpos.shape[:-1], self.model.nbody, self.table
        known = {"cfrc_ext": xp.zeros((*lead, bodies, 6)), "qfrc_actuator": xp.zeros_like(physics.qvel)}
        if table.forward_at_reset:
            # Inertia about the centre of mass is proportional to the common factor of all masses.
            mass = xp.reshape(params.body_mass, (*lead, 1, 1))
            known |= {"xipos": physics.xipos, "cinert": physics.cinert * mass, "cvel": physics.cvel}
            memory = self._anchor(xp, physics)
        return self._observe(xp, Physics(qpos=physics.qpos, qvel=physics.qvel, **known)), memory

    def control(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, params: MujocoParams) -> Drive:
        """Motors over their complete range."""
        low, high = self.model.actuator_ctrlrange.T.astype(action.dtype)
        return Drive(0.5 * (high + low) + 0.5 * (high - low) * xp.clip(action, -1.0, 1.0))

    def outcome(
        self, xp: ModuleType, physics: Physics, memory: Any, action: Any, drive: Drive, params: MujocoParams
    ) -> Outcome:
        """Observation, reward and termination of a control step."""
        table, here = self.table, self._anchor(xp, physics)
        speed = params.direction * (here - memory)[..., 0] / self._duration
        progress = -xp.abs(speed - params.target_velocity) if self.tracks else speed
        good = self._healthy(xp, physics)
        cost = table.ctrl_cost_weight * xp.sum(drive.ctrl**2, axis=-1)
        if table.contact_cost_weight:
            forces = self._forces(xp, physics)
            contact, most = table.contact_cost_weight * xp.sum(forces**2, axis=(-2, -1)), table.contact_cost_max
            cost = cost + (xp.minimum(contact, most) if math.isfinite(most) else contact)
        reward = table.forward_reward_weight * progress + table.healthy_reward * good - cost
        terminated = ~good if table.healthy_z is not None else xp.zeros_like(good)
        return Outcome(self._observe(xp, physics), reward, terminated, here)

    def recentred(self, xp: ModuleType, qpos: Any, memory: Any) -> tuple[Any, Any]:
        """The body at the origin.

        Its absolute position is not observed, and near the origin float32 resolves its speed equally well throughout an
        episode.
        """
        hidden = xp.arange(qpos.shape[-1]) < self.table.hidden
        return xp.where(hidden, 0.0, qpos), memory - qpos[..., :1]

    def _anchor(self, xp: ModuleType, physics: Physics) -> Any:
        """(..., 1), the task's memory: x of the point whose displacement over a control step is the forward speed."""
        if self.table.anchor == "qpos":
            return physics.qpos[..., :1]
        if self.table.anchor == "torso":
            return physics.xpos[..., 1, :1]
        # Masses are nominal: their centre does not depend on a common factor.
        mass = self.model.body_mass.astype(physics.qpos.dtype)
        return xp.sum(physics.xipos[..., 0] * (mass / mass.sum()), axis=-1)[..., None]

    def _forces(self, xp: ModuleType, physics: Physics) -> Any:
        bounds = self.table.contact_force_range
        return physics.cfrc_ext if bounds is None else xp.clip(physics.cfrc_ext, *bounds)

    def _observe(self, xp: ModuleType, physics: Physics) -> Any:
        """Observation (..., S).

        ``v4`` leaves out Ant's contact forces and keeps Humanoid's rows of the world's body and the root's motors.
        """
        table, newest, velocity = self.table, self.version == "v5", physics.qvel
        if math.isfinite(table.velocity_clip):
            velocity = xp.clip(velocity, -table.velocity_clip, table.velocity_clip)
        parts = [physics.qpos[..., table.hidden :], velocity]
        body, joint = (1, 6) if newest else (0, 0)  # v5 drops the world's body and the root's actuators
        if "cinert" in table.fields:
            parts += [_flat(xp, physics.cinert[..., body:, :]), _flat(xp, physics.cvel[..., body:, :])]
            parts += [physics.qfrc_actuator[..., joint:]]
        if "cfrc_ext" in table.fields and (newest or "cinert" in table.fields):
            parts += [_flat(xp, self._forces(xp, physics)[..., body:, :])]
        return xp.concatenate(parts, axis=-1)

    def _healthy(self, xp: ModuleType, physics: Physics) -> Any:
        """(...,) bool; always true for tasks without termination."""
        table, good = self.table, xp.ones(physics.qpos.shape[:-1], bool)
        if table.healthy_z is not None:
            good = good & _within(physics.qpos[..., table.height], table.healthy_z, table.healthy_z_closed)
        if table.healthy_angle is not None:
            good = good & _within(physics.qpos[..., 2], table.healthy_angle)
        if table.healthy_state is not None:
            rest = xp.concatenate([physics.qpos[..., 2:], physics.qvel], axis=-1)
            good = good & xp.all(_within(rest, table.healthy_state), axis=-1)
        return good


def _within(value: Any, bounds: tuple[float, float], closed: bool = False) -> Any:
    low, high = bounds
    return (low <= value) & (value <= high) if closed else (low < value) & (value < high)
