"""A task that nothing in the repository knows: an arm under its own PD law, and a box that a force holds up."""

from typing import Any, NamedTuple

import jax
import mujoco
import numpy as np

from envs.core import Channel, Task
from envs.physics import FACTORS, Drive, Outcome, PhysicsTask, Start, build

KP, KD, WEIGHT, GRAVITY = 30.0, 1.5, 9.0, -9.81
DAMPING, SERVO = (0.3, 0.2), 2.0


def arm_xml(gravity=1.0, damping=1.0):
    """The model with its own numbers multiplied."""
    shoulder, elbow = (damping * value for value in DAMPING)
    return f"""
<mujoco>
  <option timestep="0.004" integrator="implicitfast" gravity="0 0 {GRAVITY * gravity}"/>
  <worldbody>
    <body name="upper" pos="0 0 2"><joint name="shoulder" axis="0 1 0" damping="{shoulder}"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".05" contype="0" conaffinity="0"/>
      <body name="lower" pos="0 0 -.5"><joint name="elbow" axis="0 1 0" damping="{elbow}"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".04" contype="0" conaffinity="0"/></body></body>
    <body name="box" pos="1 0 1"><joint type="free" damping="0.05"/>
      <geom type="box" size=".1 .1 .1" mass="1" contype="0" conaffinity="0"/></body>
  </worldbody>
  <actuator><motor joint="shoulder"/><motor joint="elbow"/>
    <position joint="elbow" kp="3" kv="{SERVO * damping}"/></actuator>
</mujoco>"""


class ArmParams(NamedTuple):
    """Deliberately not in the order in which anything uses them."""

    stiffness: Any = np.float32(1.0)  # factor on the gain of the PD law, the task's own
    joint_damping: Any = np.float32(1.0)
    gravity: Any = np.float32(1.0)


class Arm(PhysicsTask):
    """Two angles and a lift as actions; remembers the action before."""

    name = "arm"
    obs_size, action_size, time_limit, substeps, memory_size = 9 + 8 + 3 + 3, 3, 6, 5, 3
    fields = start_fields = ("xpos",)
    fresh = True

    def __init__(self, params=None):
        self.model = mujoco.MjModel.from_xml_string(arm_xml())
        self.params = ArmParams() if params is None else params
        self.scales = {name: FACTORS[name] for name in ("gravity", "joint_damping")}

    def noise(self, key):
        return jax.random.uniform(key, (4,), minval=-1.0, maxval=1.0)

    def start(self, xp, noise, params):
        lead = noise.shape[:-1]
        rest = xp.broadcast_to(np.asarray(self.model.qpos0[2:], noise.dtype), (*lead, 7))
        qpos = xp.concatenate([0.3 * noise[..., :2], rest], axis=-1)
        qvel = xp.concatenate([0.1 * noise[..., 2:], xp.zeros((*lead, 6), noise.dtype)], axis=-1)
        return Start(qpos, qvel, xp.zeros((*lead, 3), noise.dtype))

    def opening(self, xp, physics, memory, params):
        return self.observe(xp, physics, memory), memory

    def observe(self, xp, physics, memory):
        return xp.concatenate([physics.qpos, physics.qvel, physics.xpos[..., 2, :], memory], axis=-1)

    def torque(self, xp, qpos, qvel, memory, action, params):
        target = 0.5 * (action[..., :2] + memory[..., :2])
        return params.stiffness[..., None] * KP * (target - qpos[..., :2]) - KD * qvel[..., :2]

    def control(self, xp, physics, memory, action, params):
        action = xp.clip(action, -1.0, 1.0)
        torque = self.torque(xp, physics.qpos, physics.qvel, memory, action, params)
        ctrl = xp.concatenate([torque, action[..., :1]], axis=-1)
        lift = (WEIGHT + action[..., 2:]) * np.array([0, 0, 1, 0, 0.01, 0], np.float32)
        nothing = xp.zeros_like(lift)
        # The shoulder's share of the torque as a generalised force, so that every kind of force is used.
        return Drive(ctrl, 0.1 * physics.qvel, xp.stack([nothing, nothing, nothing, lift], axis=-2))

    def outcome(self, xp, physics, memory, action, drive, params):
        reward = -1e-3 * xp.sum(drive.ctrl**2, axis=-1) - xp.abs(physics.xpos[..., 3, 2] - 1.0)
        terminated = physics.qpos[..., 4] < 0.9
        return Outcome(self.observe(xp, physics, memory), reward, terminated, xp.clip(action, -1.0, 1.0))


CHANNELS = (Channel("gravity", 0.5, 1.5, 1.0), Channel("joint_damping", 0.5, 3.0, 1.0))


def as_task(engine, physical=None):
    """The arm, drifting."""
    physical = Arm() if physical is None else physical
    return Task(
        name="arm",
        family="mujoco",
        env=build(physical, engine),
        params=physical.params,
        channels=CHANNELS,
        apply_drift=lambda params, values: params._replace(gravity=values[0], joint_damping=values[1]),
        description="an arm and a box",
    )
