"""Parts shared by the six tasks: model files, two drifting parameters, variant tables, options and servos."""

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.physics import FACTORS, Physics, PhysicsTask
from envs.physics.fields import Factor, physics_library


class IsaacParams(NamedTuple):
    """Drifting parameters, as factors of the model's values; () or, inside an engine, (n,) each."""

    gravity: Any = np.float32(1.0)
    joint_damping: Any = np.float32(1.0)  # viscous damping of the joints and velocity gain of their servos


@cache
def load(xml: str) -> Any:
    """The compiled ``MjModel`` of one of our files in ``assets``; do not write to it."""
    return physics_library().MjModel.from_xml_path(str(Path(__file__).parent / "assets" / xml))


class IsaacTask(PhysicsTask):
    """A task of the Isaac family as defined in Isaac Gym; subclasses set the rest of `PhysicsTask`.

    An episode ends where the reference's counter reaches its length minus one. It is 0 at the first observation, or 1
    where the reference resets before the physics: `resets_first`, and always in ``omni``.

    Args:
      variant: a key of ``constants``.
      time_limit: steps of an episode; by default the reference's.
      own: values for fields of the variant's table, of those in the attribute `own`.
    """

    xml: str
    description: str
    length: int  # steps, the reference's maxEpisodeLength, if the variant's table has none
    resets_first: bool = False  # whether Isaac Gym resets the task before the physics step
    inert: tuple[str, ...] = ()  # channels of `IsaacParams` without effect in this task
    constants: Mapping[str, NamedTuple]  # variant -> its table; a ``timestep`` there replaces the model's
    #: Fields of the table that options may set -> allowed values; None: any number from 0 on.
    own: Mapping[str, tuple[Any, ...] | None] = MappingProxyType({})
    draws: int  # K, uniform random numbers of a start
    lowest_draw: float = -1.0  # they are below 1
    reach: np.ndarray  # (nu,) largest lead of a servo's target over its joint, see `pursue`

    params = IsaacParams()
    scales: Mapping[str, Factor] = {name: FACTORS[name] for name in IsaacParams._fields}

    def __init__(self, variant: str = "gym", time_limit: int | None = None, **own: Any) -> None:
        for option, value in own.items():
            allowed = self.own[option]
            if value not in allowed if allowed else value < 0:
                wanted = f"one of {', '.join(map(str, allowed))}" if allowed else "a number from 0 on"
                raise ValueError(f"{option} of {self.name} must be {wanted}; got '{value}'")
        self.variant, self.table = variant, self.constants[variant]._replace(**own)
        self.model = copy.copy(load(self.xml))
        self.model.opt.timestep = getattr(self.table, "timestep", self.model.opt.timestep)
        length = getattr(self.table, "length", None) or self.length
        self.time_limit = length - 1 - (self.resets_first or variant == "omni") if time_limit is None else time_limit
        self.prepare()

    def prepare(self) -> None:
        """Set the attributes that depend on model and table."""

    def noise(self, key: Any) -> Any:
        """(K,) uniform on [-1, 1), or from `lowest_draw` on."""
        return jax.random.uniform(key, (self.draws,), minval=self.lowest_draw)

    def observe(self, xp: ModuleType, physics: Physics, memory: Any, action: Any) -> Any:
        """Observation (..., S), from the last action (..., A) and the memory before it."""
        raise NotImplementedError

    def opening(self, xp: ModuleType, physics: Physics, memory: Any, params: IsaacParams) -> tuple[Any, Any]:
        """First observation, with an action of zeros."""
        still = xp.zeros((*physics.qpos.shape[:-1], self.action_size), physics.qpos.dtype)
        return self.observe(xp, physics, memory, still), memory

    def limit_speeds(self, speed: Any) -> None:
        """Limit the lead of targets so that joint speeds (nu,) are at most ``speed`` under the model's gains.

        A servo's force is ``kp (target - q) - kd qd``, as in PhysX's position drive, which also caps the speed of a
        joint. A target that leads by ``speed kd / kp`` drives a free joint at that speed.
        """
        self.reach = -self.model.actuator_biasprm[:, 2] * speed / self.model.actuator_gainprm[:, 0]

    def pursue(self, xp: ModuleType, position: Any, target: Any, params: IsaacParams) -> Any:
        """Controls (..., nu) of servos at ``position`` (..., nu) that follow ``target`` at a limited speed.

        The lead uses the damping in force, so that a drift of the damping does not change the speed limit.
        """
        reach = xp.asarray(params.joint_damping)[..., None] * self.reach
        return position + xp.clip(target - position, -reach, reach)
