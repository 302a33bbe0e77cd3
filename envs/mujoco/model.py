"""Gymnasium's MuJoCo models, unchanged."""

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from envs.physics.fields import physics_library


def path(xml: str) -> Path:
    """Path of one of Gymnasium's model files."""
    found = importlib.util.find_spec("gymnasium")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            "the MuJoCo tasks need 'gymnasium', which is not installed: pip install '.[envs]' in a clone",
            name="gymnasium",
        )
    # By path: importing gymnasium.envs.mujoco would need its rendering libraries.
    return Path(found.submodule_search_locations[0]) / "envs" / "mujoco" / "assets" / xml


@contextmanager
def total_mass_accepted() -> Iterator[None]:
    """Suppress MuJoCo's warning about Gymnasium's half_cheetah.xml in the block.

    The file uses ``settotalmass``, a deprecated attribute, and MuJoCo prints a warning and writes a log file at every
    load. Other warnings are passed on, or become Python warnings.
    """
    mujoco = physics_library()
    before = mujoco.get_mju_user_warning()
    others = before or (lambda text: warnings.warn(f"MuJoCo: {text}", RuntimeWarning, stacklevel=2))
    mujoco.set_mju_user_warning(lambda text: None if "settotalmass" in text else others(text))
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


@cache
def load(xml: str) -> Any:
    """Compiled ``MjModel`` of one of Gymnasium's files; do not modify it."""
    with total_mass_accepted():
        return physics_library().MjModel.from_xml_path(str(path(xml)))
