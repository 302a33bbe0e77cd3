"""The MuJoCo family: Gymnasium's five locomotion tasks, drifting, on MuJoCo's C engine, MJX or MuJoCo Warp.

>>> import envs
>>> envs.make("hopper", channels=("body_mass",)).env.spec.obs_size
11
"""

from dataclasses import replace
from functools import cache, partial

from envs import physics
from envs.core import Task
from envs.mujoco.locomotion import LocomotionTask
from envs.mujoco.table import OBSERVATIONS, TASKS
from envs.physics import ENGINES
from envs.physics.channels import Range, channels_of, chosen, set_by_name

__all__ = ["CHANNELS", "DEFAULT_CHANNELS", "ENGINES", "SETS", "TASKS", "build"]

DEFAULT_CHANNELS = ("body_mass", "joint_friction")  # default channels, as in the paper
RANGES = {
    "body_mass": Range(0.7, 1.3, least=0.25, most=4.0),
    "joint_friction": Range(0.5, 1.5, least=0.0),
    "geom_friction": Range(0.5, 1.5, least=0.0),
    "leg_gain": Range(0.25, 1.0, least=0.0),
    "direction": Range(-1.0, 1.0),
}
CHANNELS = (*RANGES, "target_velocity")
#: Names for several channels at once, with their ranges.
SETS = {"hard": ("body_mass=0.5:1.5", "joint_friction=0.2:2", "leg_gain=0.25:1")}


def build(
    name: str,
    engine: str = "auto",
    observation: str = "v5",
    channels: tuple[str, ...] = DEFAULT_CHANNELS,
    time_limit: int | None = None,
) -> Task:
    """Build one of the five tasks.

    Args:
      engine: ``mujoco`` (C), ``mjx``, ``warp``, or ``auto`` (`envs.physics.engine_name`).
      observation: ``v5``, or in Ant and Humanoid ``v4``: Ant without contact forces, Humanoid with the rows of the
        world's body and the root's motors. Models, rewards and terminations are Gymnasium's v5 in both cases.
      channels: drifting parameters, of `CHANNELS`, each optionally with a range (``body_mass=0.5:1.5``), or `SETS` of
        them, as in `envs.mujoco.locomotion.MujocoParams`. ``target_velocity`` replaces the forward speed in the reward
        by ``-|speed - target|``.
      time_limit: steps of an episode; by default Gymnasium's 1000.

    Raises:
      ValueError, KeyError: an unknown option.
      ModuleNotFoundError: MuJoCo is not installed.
    """
    if observation not in OBSERVATIONS:
        raise ValueError(f"observation must be one of {', '.join(OBSERVATIONS)}; got '{observation}'")
    if observation == "v4" and not TASKS[name].fields:
        others = ", ".join(task for task, table in TASKS.items() if table.fields)
        raise ValueError(f"{name} observes the same in v4 and v5; tasks with an observation v4: {others}")
    channels = chosen(channels, CHANNELS, SETS)
    return _build(name, physics.engine_name(engine), observation, channels, time_limit)


@cache
def _build(name: str, engine: str, observation: str, channels: tuple[str, ...], time_limit: int | None) -> Task:
    task = TASKS[name]
    if time_limit is not None:
        task = replace(task, time_limit=time_limit)
    drifting = channels_of(name, channels, {**RANGES, "target_velocity": Range(*task.target_speed)})
    names = {channel.name for channel in drifting}
    tracks = "target_velocity" in names
    physical = LocomotionTask(task, observation, tracks, "leg_gain" in names)

    return Task(
        name=name,
        family="mujoco",
        env=physics.build(physical, engine),
        params=physical.params,
        channels=drifting,
        apply_drift=set_by_name(drifting),
        description=task.description,
        altering=("target_velocity",) if tracks else (),
        options={"engine": engine, "observation": observation, "channels": channels, "time_limit": task.time_limit},
    )


hopper, halfcheetah, walker2d, ant, humanoid = (partial(build, name) for name in TASKS)
