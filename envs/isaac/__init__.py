"""The Isaac family: six massively parallel tasks as defined in Isaac Gym, on our own MuJoCo models.

>>> import envs
>>> envs.make("isaac_ingenuity").env.spec.action_size
6
"""

from functools import cache, partial
from importlib import import_module
from typing import Any

from aesjax.registry import listed, lookup
from envs import physics
from envs.core import Task
from envs.physics.channels import Range, channels_of, chosen, set_by_name

__all__ = ["CHANNELS", "TASKS", "build"]

#: Factors with the ranges of the paper.
CHANNELS = {"gravity": Range(0.8, 1.2), "joint_damping": Range(0.7, 1.3, least=0.0)}
#: Registered name -> module and class, imported on first use.
TASKS: dict[str, str] = {
    "isaac_ingenuity": "envs.isaac.ingenuity:Ingenuity",
    "isaac_ant": "envs.isaac.walkers:Ant",
    "isaac_humanoid": "envs.isaac.humanoid:Humanoid",
    "isaac_allegro_hand": "envs.isaac.allegro_hand:AllegroHand",
    "isaac_anymal": "envs.isaac.anymal:Anymal",
    "isaac_franka_cabinet": "envs.isaac.franka_cabinet:FrankaCabinet",
}


def build(
    name: str,
    engine: str = "auto",
    variant: str = "gym",
    channels: tuple[str, ...] = tuple(CHANNELS),
    time_limit: int | None = None,
    **own: Any,
) -> Task:
    """Build one of the six tasks.

    Args:
      engine: ``mujoco`` (C), ``mjx``, ``warp``, or ``auto`` (`envs.physics.engine_name`).
      variant: ``gym`` or ``omni``, the constants of Isaac Gym or of its successor; the hand has ``gym_faithful``, too.
      channels: drifting parameters, of `CHANNELS`, each optionally with a range, ``gravity=0.5:1.5``.
      time_limit: steps of an episode; by default the reference's.
      own: options specific to the task, by default those of the variant. ``isaac_ingenuity``: ``rotational_drag``,
        N m s/rad, makes `joint_damping` live. ``isaac_allegro_hand``: ``observation``, ``full_state``, ``full`` or
        ``full_no_vel``. ``isaac_franka_cabinet``: ``arm_gravity`` makes `gravity` live.

    Raises:
      ValueError, KeyError: an unknown option.
      ModuleNotFoundError: MuJoCo is not installed.
    """
    channels = chosen(channels, CHANNELS)
    return _build(name, physics.engine_name(engine), variant, channels, time_limit, **dict(sorted(own.items())))


@cache
def _build(name: str, engine: str, variant: str, channels: tuple[str, ...], time_limit: int | None, **own: Any) -> Task:
    module, _, attribute = lookup("Isaac task", TASKS, name).partition(":")
    kind = getattr(import_module(module), attribute)
    if variant not in kind.constants:
        raise ValueError(f"variant of {name} must be one of {', '.join(kind.constants)}; got '{variant}'")
    known = ("engine", "variant", "channels", "time_limit", *kind.own)
    if odd := [option for option in own if option not in known]:
        raise ValueError(f"task '{name}' has the options {listed(known)}; got {listed(odd)}")
    physical = kind(variant, time_limit, **own)
    drifting = channels_of(name, channels, CHANNELS)

    return Task(
        name=name,
        family="isaac",
        env=physics.build(physical, engine),
        params=physical.params,
        channels=drifting,
        apply_drift=set_by_name(drifting),
        description=kind.description,
        options={"engine": engine, "variant": variant, "channels": channels, "time_limit": physical.time_limit} | own,
        inert=tuple(channel.name for channel in drifting if channel.name in physical.inert),
    )


isaac_ingenuity, isaac_ant, isaac_humanoid, isaac_allegro_hand, isaac_anymal, isaac_franka_cabinet = (
    partial(build, name) for name in TASKS
)
