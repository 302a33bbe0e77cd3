"""Parts shared by the six tasks: model files, two drifting parameters, tables of a variant and options."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from envs.physics import FACTORS, PhysicsTask
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
    """A task of the Isaac family by the definitions of Isaac Gym; subclasses set the rest of `PhysicsTask`.

    An episode ends where the reference's counter reaches its length minus one. It is 0 at the first observation, or 1
    where the reference resets before the physics: `resets_first`, and always in ``omni``.
    """

    xml: str
    description: str
    negative_returns: bool = False
    length: int  # steps, the reference's maxEpisodeLength, where the table of the variant has none
    resets_first: bool = False  # whether Isaac Gym resets the task before it moves
    inert: tuple[str, ...] = ()  # channels of `IsaacParams` that change nothing in this task
    constants: Mapping[str, NamedTuple]  # variant -> its table
    #: Fields of the table that an option of the same name may set -> what it may be; None: any number from 0 on.
    own: Mapping[str, tuple[Any, ...] | None] = MappingProxyType({})

    params = IsaacParams()
    scales: Mapping[str, Factor] = {name: FACTORS[name] for name in IsaacParams._fields}

    def __init__(self, variant: str = "gym", time_limit: int | None = None, **own: Any) -> None:
        for option, value in own.items():
            allowed = self.own[option]
            if allowed is None and not (isinstance(value, int | float) and 0 <= value < float("inf")):
                raise ValueError(f"{option} of {self.name} must be a number from 0 on; got {value}")
            if allowed is not None and value not in allowed:
                choices = ", ".join(map(str, allowed))
                raise ValueError(f"{option} of {self.name} must be one of {choices}; got '{value}'")
        self.model = load(self.xml)
        self.variant, self.table = variant, self.constants[variant]._replace(**own)
        length = getattr(self.table, "length", None) or self.length
        self.time_limit = length - 1 - (self.resets_first or variant == "omni") if time_limit is None else time_limit
