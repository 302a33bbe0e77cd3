"""Gymnasium's v5 locomotion tasks as arithmetic on arrays, written once for NumPy and for JAX.

An engine advances the physics and fills `Physics`; everything else a task is (observation, reward, health, start)
stands here. Leading axes are free. ``xp`` is ``numpy`` or ``jax.numpy``.
"""

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from envs.names import lookup

__all__ = [
    "OBSERVATIONS",
    "TASKS",
    "Locomotion",
    "Outcome",
    "Physics",
    "anchor",
    "control",
    "definition",
    "healthy",
    "observe",
    "outcome",
    "start",
]

OBSERVATIONS = ("v5", "v4")


class Physics(NamedTuple):
    """What an engine reports after a control step; fields that a task does not name in ``fields`` are None.

    As in Gymnasium, everything but ``qpos`` and ``qvel`` is what the last stage of the integrator left, not what
    belongs to the new state.
    """

    qpos: Any  # (..., nq)
    qvel: Any  # (..., nv)
    xpos: Any = None  # (..., nbody, 3)
    xipos: Any = None  # (..., nbody, 3)
    cinert: Any = None  # (..., nbody, 10)
    cvel: Any = None  # (..., nbody, 6)
    qfrc_actuator: Any = None  # (..., nv)
    cfrc_ext: Any = None  # (..., nbody, 6)


@dataclass(frozen=True)
class Locomotion:
    """Constants of one task, Gymnasium's names and values."""

    name: str
    gymnasium_id: str
    xml: str
    frame_skip: int
    description: str
    ctrl_cost_weight: float
    reset_noise_scale: float
    target_speed: tuple[float, float, float]  # low, high and nominal of the optional channel, m/s
    forward_reward_weight: float = 1.0
    healthy_reward: float = 0.0
    healthy_z: tuple[float, float] | None = None  # None: never terminates
    height: int = 1  # where in qpos
    healthy_z_closed: bool = False
    healthy_angle: tuple[float, float] | None = None  # of qpos[2]
    healthy_state: tuple[float, float] | None = None  # of everything after qpos[1]
    velocity_clip: float = math.inf
    velocity_noise: Literal["uniform", "normal"] = "uniform"
    hidden: int = 1  # leading positions that are not observed
    anchor: Literal["qpos", "torso", "mass_centre"] = "qpos"  # whose x is tracked for the forward speed
    contact_cost_weight: float = 0.0
    contact_force_range: tuple[float, float] | None = None  # clips forces before they are used
    contact_cost_max: float = math.inf
    fields: tuple[str, ...] = ()  # of Physics, beyond positions and velocities
    forward_at_reset: bool = False  # the first observation needs fields of the new state
    time_limit: int = 1000


TASKS: dict[str, Locomotion] = {
    task.name: task
    for task in (
        Locomotion(
            name="hopper",
            gymnasium_id="Hopper-v5",
            xml="hopper.xml",
            frame_skip=4,
            description="MuJoCo Hopper (Gymnasium v5): one leg, falls",
            ctrl_cost_weight=1e-3,
            reset_noise_scale=5e-3,
            healthy_reward=1.0,
            healthy_z=(0.7, math.inf),
            healthy_angle=(-0.2, 0.2),
            healthy_state=(-100.0, 100.0),
            velocity_clip=10.0,
            target_speed=(1.0, 3.0, 2.0),
        ),
        Locomotion(
            name="halfcheetah",
            gymnasium_id="HalfCheetah-v5",
            xml="half_cheetah.xml",
            frame_skip=5,
            description="MuJoCo HalfCheetah (Gymnasium v5): two legs in the plane, never falls",
            ctrl_cost_weight=0.1,
            reset_noise_scale=0.1,
            velocity_noise="normal",
            target_speed=(2.0, 6.0, 4.0),
        ),
        Locomotion(
            name="walker2d",
            gymnasium_id="Walker2d-v5",
            xml="walker2d_v5.xml",
            frame_skip=4,
            description="MuJoCo Walker2d (Gymnasium v5): two legs in the plane, falls",
            ctrl_cost_weight=1e-3,
            reset_noise_scale=5e-3,
            healthy_reward=1.0,
            healthy_z=(0.8, 2.0),
            healthy_angle=(-1.0, 1.0),
            velocity_clip=10.0,
            target_speed=(1.0, 4.0, 2.5),
        ),
        Locomotion(
            name="ant",
            gymnasium_id="Ant-v5",
            xml="ant.xml",
            frame_skip=5,
            description="MuJoCo Ant (Gymnasium v5): four legs, observes contact forces",
            ctrl_cost_weight=0.5,
            reset_noise_scale=0.1,
            velocity_noise="normal",
            healthy_reward=1.0,
            healthy_z=(0.2, 1.0),
            healthy_z_closed=True,
            height=2,
            hidden=2,
            anchor="torso",
            contact_cost_weight=5e-4,
            contact_force_range=(-1.0, 1.0),
            fields=("xpos", "cfrc_ext"),
            target_speed=(1.0, 4.0, 2.5),
        ),
        Locomotion(
            name="humanoid",
            gymnasium_id="Humanoid-v5",
            xml="humanoid.xml",
            frame_skip=5,
            description="MuJoCo Humanoid (Gymnasium v5): walks upright, observes inertia and contact forces",
            ctrl_cost_weight=0.1,
            reset_noise_scale=1e-2,
            forward_reward_weight=1.25,
            healthy_reward=5.0,
            healthy_z=(1.0, 2.0),
            height=2,
            hidden=2,
            anchor="mass_centre",
            contact_cost_weight=5e-7,
            contact_cost_max=10.0,
            fields=("xipos", "cinert", "cvel", "qfrc_actuator", "cfrc_ext"),
            forward_at_reset=True,
            target_speed=(0.5, 3.0, 1.5),
        ),
    )
}


def definition(name: str) -> Locomotion:
    """The definition of a task by its name."""
    return lookup("MuJoCo task", TASKS, name)


class Outcome(NamedTuple):
    """What a control step means to a learner."""

    obs: Any  # (..., S)
    reward: Any  # (...,)
    terminated: Any  # (...,) bool
    anchor: Any  # (...,) metres, to be handed to the next step


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
    """Observation (..., S). Version ``v4`` leaves out Ant's contact forces and keeps Humanoid's rows of the world."""
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


def outcome(
    xp: ModuleType,
    task: Locomotion,
    version: str,
    physics: Physics,
    *,
    before: Any,
    ctrl: Any,
    body_mass: Any,
    timestep: float,
    target_speed: Any | None = None,
) -> Outcome:
    """Observation, reward and termination of a control step.

    Args:
      before: (...,) the anchor before the step.
      ctrl: (..., A) controls in the model's units, within their range.
      timestep: of the physics, seconds.
      target_speed: (...,) m/s; None rewards the forward speed itself, otherwise ``-|speed - target|`` takes its
        place.
    """
    here = anchor(xp, task, body_mass, physics)
    speed = (here - before) / (timestep * task.frame_skip)
    progress = speed if target_speed is None else -xp.abs(speed - target_speed)
    good = healthy(xp, task, physics)
    cost = task.ctrl_cost_weight * xp.sum(ctrl**2, axis=-1)
    if task.contact_cost_weight:
        forces = _forces(xp, task, physics)
        contact = task.contact_cost_weight * xp.sum(forces**2, axis=(-2, -1))
        cost = cost + (xp.minimum(contact, task.contact_cost_max) if math.isfinite(task.contact_cost_max) else contact)
    reward = task.forward_reward_weight * progress + task.healthy_reward * good - cost
    terminated = ~good if task.healthy_z is not None else xp.zeros_like(good)
    return Outcome(observe(xp, task, version, physics), reward, terminated, here)


def observation_size(task: Locomotion, version: str, nq: int, nv: int, nbody: int) -> int:
    """S."""
    shapes = {"cinert": (nbody, 10), "cvel": (nbody, 6), "qfrc_actuator": (nv,), "cfrc_ext": (nbody, 6)}
    known = {name: np.zeros(shape) for name, shape in shapes.items() if name in task.fields}
    return observe(np, task, version, Physics(np.zeros(nq), np.zeros(nv), **known)).shape[-1]
