"""From where a MuJoCo model is looked at."""

from typing import Any, NamedTuple

__all__ = ["View", "view_of"]


class View(NamedTuple):
    """From where a model is looked at: MuJoCo's free camera about the torso, at a fixed height."""

    distance: float  # metres
    height: float  # of the point looked at, metres
    azimuth: float = 90.0  # degrees
    elevation: float = -10.0


VIEWS = {
    "hopper": View(3.0, 0.74),
    "halfcheetah": View(2.6, 0.5),
    "walker2d": View(3.0, 0.74),
    "ant": View(3.8, 0.35, 60.0, -28.0),
    "humanoid": View(3.1, 0.8, 60.0, -12.0),
    "isaac_ingenuity": View(2.2, 1.5, 60.0, -12.0),
    "isaac_ant": View(3.2, 0.3, 60.0, -28.0),
    "isaac_humanoid": View(3.6, 0.9, 60.0, -12.0),
    "isaac_allegro_hand": View(0.55, 0.5, 60.0, -28.0),
    "isaac_anymal": View(2.2, 0.42, 130.0, -14.0),
    "isaac_franka_cabinet": View(3.2, 0.45, 125.0, -18.0),
}


def view_of(name: str, model: Any) -> View:
    """From where task ``name`` is looked at; a model nobody has chosen a view for, from the side."""
    return VIEWS.get(name) or View(1.5 * float(model.stat.extent), float(model.stat.center[2]))
