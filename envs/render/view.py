"""From where a MuJoCo model is looked at."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from envs.physics import Marker

FOVY = 45.0  # degrees, vertical field of view


class View(NamedTuple):
    """From where a model is looked at: MuJoCo's free camera about the torso."""

    distance: float  # metres
    height: float | None  # of the point looked at, metres; None: amid torso and markers, and far enough to see them
    azimuth: float = 90.0  # degrees
    elevation: float = -10.0
    ahead: float = 0.0  # metres along x from the torso to the point looked at


def aim(view: View, torso: np.ndarray, markers: Sequence[Marker]) -> tuple[np.ndarray, float]:
    """The point (3,) that is looked at, and from how far, metres."""
    if view.height is not None:
        return np.array([torso[0] + view.ahead, torso[1], view.height]), view.distance
    places = np.array([torso, *(marker.place for marker in markers)])
    low, high = places.min(axis=0), places.max(axis=0)
    return (low + high) / 2, view.distance + np.linalg.norm(high - low) / 2 / np.sin(np.radians(FOVY) / 2)


_VIEWS = {
    "hopper": View(3.0, 0.74),
    "halfcheetah": View(2.6, 0.5),
    "walker2d": View(3.0, 0.74),
    "ant": View(3.8, 0.35, 60.0, -28.0),
    "humanoid": View(3.1, 0.8, 60.0, -12.0),
    "isaac_ingenuity": View(1.2, None, 60.0, -12.0),
    "isaac_ant": View(3.2, 0.3, 60.0, -28.0),
    "isaac_humanoid": View(3.0, 0.8, 60.0, -12.0),
    "isaac_allegro_hand": View(0.65, 0.56, 60.0, -28.0),
    "isaac_anymal": View(2.2, 0.42, 130.0, -14.0),
    "isaac_franka_cabinet": View(2.5, 0.5, 140.0, -18.0, ahead=0.45),
}


def view_of(name: str, model: Any) -> View:
    """From where task ``name`` is looked at; a model nobody has chosen a view for, from the side."""
    return _VIEWS.get(name) or View(1.5 * float(model.stat.extent), float(model.stat.center[2]))
