"""The MuJoCo family: Gymnasium's five locomotion tasks, drifting, on MuJoCo's C engine or on MJX.

>>> import envs
>>> envs.make("hopper", channels=("body_mass",)).env.spec.obs_size
11
"""

from dataclasses import replace
from functools import cache, partial

from envs import physics
from envs.core import Channel, Task
from envs.mujoco.locomotion import LocomotionTask
from envs.mujoco.table import OBSERVATIONS, TASKS, Locomotion
from envs.names import lookup
from envs.physics import ENGINES
from envs.physics.channels import chosen, set_by_name

__all__ = ["CHANNELS", "DEFAULT_CHANNELS", "ENGINES", "TASKS", "build"]

DEFAULT_CHANNELS = ("body_mass", "joint_friction")  # those of the paper
RANGES = {"body_mass": (0.7, 1.3), "joint_friction": (0.5, 1.5), "geom_friction": (0.5, 1.5)}  # of factors
CHANNELS = (*RANGES, "target_velocity")


def _channel(task: Locomotion, name: str) -> Channel:
    known = {channel: (*bounds, 1.0) for channel, bounds in RANGES.items()} | {"target_velocity": task.target_speed}
    return Channel(name, *lookup(f"drift channel of {task.name}", known, name))


def build(
    name: str,
    engine: str = "auto",
    observation: str = "v5",
    channels: tuple[str, ...] = DEFAULT_CHANNELS,
    time_limit: int | None = None,
) -> Task:
    """One of the five tasks.

    Args:
      engine: ``mujoco`` (C), ``mjx``, or ``auto``: C on a CPU, MJX on an accelerator.
      observation: what is observed; models, rewards and endings are Gymnasium's v5 either way. ``v5``, or in Ant and
        Humanoid ``v4``: Ant without contact forces, Humanoid with the rows of the world's body and the root's motors.
      channels: what drifts, of `CHANNELS`. With ``target_velocity`` the reward's forward speed is replaced by
        ``-|speed - target|``.
      time_limit: steps of an episode; by default Gymnasium's 1000.

    Raises:
      ValueError, KeyError: an option that does not exist.
      ModuleNotFoundError: MuJoCo is not installed.
    """
    if observation not in OBSERVATIONS:
        raise ValueError(f"observation must be one of {', '.join(OBSERVATIONS)}; got '{observation}'")
    if observation == "v4" and not TASKS[name].fields:
        others = ", ".join(task for task, table in TASKS.items() if table.fields)
        raise ValueError(f"{name} observes the same in v4 and v5; tasks with an observation v4: {others}")
    channels = chosen(channels, CHANNELS)
    return _build(name, physics.engine_name(engine), observation, channels, time_limit)


@cache
def _build(name: str, engine: str, observation: str, channels: tuple[str, ...], time_limit: int | None) -> Task:
    task = TASKS[name]
    if time_limit is not None:
        task = replace(task, time_limit=time_limit)
    drifting = tuple(_channel(task, channel) for channel in channels)
    tracks = "target_velocity" in channels
    physical = LocomotionTask(task, observation, tracks)

    return Task(
        name=name,
        family="mujoco",
        env=physics.build(physical, engine),
        params=physical.params,
        channels=drifting,
        apply_drift=set_by_name(drifting),
        negative_returns=name == "halfcheetah" or tracks,
        description=task.description,
        altering=("target_velocity",) if tracks else (),
        options={"engine": engine, "observation": observation, "channels": channels, "time_limit": task.time_limit},
    )


hopper, halfcheetah, walker2d, ant, humanoid = (partial(build, name) for name in TASKS)
