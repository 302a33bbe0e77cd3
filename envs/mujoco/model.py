"""Gymnasium's MuJoCo models as they are, and which of their fields a drift factor multiplies."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["FACTORS", "load", "path", "physics_library", "scaled_fields"]

#: Drift factor -> model fields it multiplies. Gymnasium's models have no dry friction, so the factor of joint
#: friction covers viscous damping too. Sliding friction is the first column of ``geom_friction``.
FACTORS: dict[str, tuple[str, ...]] = {
    "body_mass": ("body_mass", "body_inertia"),
    "joint_friction": ("dof_damping", "dof_frictionloss"),
    "geom_friction": ("geom_friction",),
}

SLIDING = np.array([1.0, 0.0, 0.0])


def physics_library() -> ModuleType:
    """The ``mujoco`` module.

    Raises:
      ModuleNotFoundError: it is not installed; the text says what to install.
    """
    try:
        import mujoco
        import mujoco.batch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the MuJoCo tasks need '{error.name}', which is not installed: pip install 'aesjax[mujoco]'",
            name=error.name,
        ) from None
    return mujoco


def path(xml: str) -> Path:
    """Where one of Gymnasium's model files lies."""
    found = importlib.util.find_spec("gymnasium")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            "the MuJoCo tasks need 'gymnasium', which is not installed: pip install 'aesjax[mujoco]'", name="gymnasium"
        )
    # By path: importing gymnasium.envs.mujoco would need its rendering libraries.
    return Path(found.submodule_search_locations[0]) / "envs" / "mujoco" / "assets" / xml


@cache
def load(xml: str) -> Any:
    """The compiled ``MjModel`` of one of Gymnasium's files; do not write to it."""
    mujoco = physics_library()
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)  # half_cheetah.xml uses an attribute that is going away
    try:
        return mujoco.MjModel.from_xml_path(str(path(xml)))
    finally:
        mujoco.set_mju_user_warning(before)


def scaled_fields(model: Any, factor: str, value: Any) -> dict[str, Any]:
    """Model fields under one drift factor.

    Args:
      value: () or (n,) array, of any array library.

    Returns:
      Field name -> array with the leading axes of ``value``. Derived constants are not among them.
    """
    fields = {}
    for name in FACTORS[factor]:
        nominal = getattr(model, name)
        by = value.reshape(*value.shape, *(1,) * nominal.ndim)
        # Written as a sum so that a factor of 1 leaves every bit as it is.
        fields[name] = nominal * (1.0 + (by - 1.0) * SLIDING if name == "geom_friction" else by)
    return fields
