"""The Isaac family: six massively parallel tasks by the definitions of Isaac Gym, on our own MuJoCo models.

>>> import envs
>>> envs.make("isaac_ingenuity").env.spec.action_size
6
"""

from functools import cache, partial
from importlib import import_module
from typing import Any

from envs import physics
from envs.core import Channel, Task
from envs.names import lookup
from envs.physics.channels import chosen, set_by_name

__all__ = ["CHANNELS", "TASKS", "build"]

CHANNELS = {"gravity": (0.8, 1.2), "joint_damping": (0.7, 1.3)}  # of factors; those of the paper
#: Registered name -> module and class, imported on first use.
TASKS: dict[str, str] = {
    "isaac_ingenuity": "envs.isaac.ingenuity:Ingenuity",
    "isaac_ant": "envs.isaac.ant:Ant",
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
) -> Task:
    """One of the six tasks.

    Args:
      engine: ``mujoco`` (C), ``mjx``, or ``auto``: C on a CPU, MJX on an accelerator.
      variant: ``gym`` or ``omni``, the constants of Isaac Gym or of its successor; the hand has ``gym_faithful``, too.
      channels: what drifts, of `CHANNELS`.
      time_limit: steps of an episode; by default the reference's.

    Raises:
      ValueError, KeyError: an option that does not exist.
      ModuleNotFoundError: MuJoCo is not installed.
    """
    channels = chosen(channels, CHANNELS)
    return _build(name, physics.engine_name(engine), variant, channels, time_limit)


@cache
def _build(name: str, engine: str, variant: str, channels: tuple[str, ...], time_limit: int | None) -> Task:
    module, _, attribute = lookup("Isaac task", TASKS, name).partition(":")
    kind = getattr(import_module(module), attribute)
    if variant not in kind.constants:
        raise ValueError(f"variant of {name} must be one of {', '.join(kind.constants)}; got '{variant}'")
    physical = kind(variant, time_limit)
    drifting = tuple(
        Channel(channel, *lookup(f"drift channel of {name}", CHANNELS, channel), 1.0) for channel in channels
    )

    return Task(
        name=name,
        family="isaac",
        env=physics.build(physical, engine),
        params=physical.params,
        channels=drifting,
        apply_drift=set_by_name(drifting),
        negative_returns=physical.negative_returns,
        description=kind.description,
        options={"engine": engine, "variant": variant, "channels": channels, "time_limit": physical.time_limit},
        inert=tuple(channel for channel in channels if channel in kind.inert),
    )


def __getattr__(name: str) -> Any:
    """Builders by registered name, for the registry of `envs`: ``envs.isaac:isaac_ant``."""
    if name in TASKS:
        return partial(build, name)
    raise AttributeError(name)
