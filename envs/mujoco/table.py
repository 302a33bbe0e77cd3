"""Constants of Gymnasium's five v5 locomotion tasks, under Gymnasium's names."""

import math
from dataclasses import dataclass
from typing import Literal

OBSERVATIONS = ("v5", "v4")


@dataclass(frozen=True)
class Locomotion:
    """Constants of one task."""

    name: str
    gymnasium_id: str
    xml: str
    frame_skip: int
    description: str
    ctrl_cost_weight: float
    reset_noise_scale: float
    target_speed: tuple[float, float, float]  # low, high and nominal of the optional channel, m/s
    leg: tuple[str, ...]  # the joints of one leg, whose motors the optional channel `leg_gain` weakens
    forward_reward_weight: float = 1.0
    healthy_reward: float = 0.0
    healthy_z: tuple[float, float] | None = None  # None: never terminates
    height: int = 1  # where in qpos
    healthy_z_closed: bool = False
    healthy_angle: tuple[float, float] | None = None  # of qpos[2]
    healthy_state: tuple[float, float] | None = None  # of everything after qpos[1]
    velocity_clip: float = math.inf
    velocity_noise: Literal["uniform", "normal"] = "uniform"
    hidden: int = 1  # number of leading positions that are not observed
    anchor: Literal["qpos", "torso", "mass_centre"] = "qpos"  # whose x is tracked for the forward speed
    contact_cost_weight: float = 0.0
    contact_force_range: tuple[float, float] | None = None  # limit to which forces are clipped
    contact_cost_max: float = math.inf
    fields: tuple[str, ...] = ()  # fields of MjData that are observed besides positions and velocities
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
            leg=("thigh_joint", "leg_joint", "foot_joint"),  # Hopper has one leg
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
            leg=("bthigh", "bshin", "bfoot"),
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
            leg=("thigh_joint", "leg_joint", "foot_joint"),
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
            leg=("hip_1", "ankle_1"),
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
            leg=("right_hip_x", "right_hip_z", "right_hip_y", "right_knee"),
        ),
    )
}
