"""MuJoCo model fields that a drift factor multiplies."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from aesjax.registry import lookup


class Field(NamedTuple):
    """Entries of one model field that a factor multiplies."""

    name: str  # of MjModel, or "opt.<name>" of its options
    where: Callable[[Any], np.ndarray] | None = None  # MjModel -> 1.0 where the factor acts, else 0.0; None: everywhere


class Factor(NamedTuple):
    """All fields that one parameter multiplies; a factor of 1 leaves every bit of the model unchanged."""

    fields: tuple[Field, ...]
    derives: bool = False  # MuJoCo derives constants from these fields (mj_setConst)


def _sliding(model: Any) -> np.ndarray:
    return np.array([1.0, 0.0, 0.0])  # columns of geom_friction: sliding, torsional, rolling


def _driven_joints(model: Any) -> np.ndarray:
    """(nv,) 1.0 at hinges and slides: the damping of a free or ball joint is drag, not a property of a joint."""
    mujoco = physics_library()
    kinds = model.jnt_type[model.dof_jntid]
    return np.isin(kinds, (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)).astype(np.float64)


def _velocity_gain(model: Any) -> np.ndarray:
    """(nu, size) 1.0 at the coefficient of the velocity in an actuator's bias, ``-kv`` of a position servo."""
    mask = np.zeros_like(model.actuator_biasprm)
    mask[:, 2] = 1.0
    return mask


def motors_of(model: Any, joints: Sequence[str]) -> np.ndarray:
    """(nu, size) 1.0 at the gain of the actuators that drive ``joints``, for a `Field` of "actuator_gainprm"."""
    wanted = [model.joint(name).id for name in joints]
    mask = np.zeros_like(model.actuator_gainprm)
    mask[np.isin(model.actuator_trnid[:, 0], wanted), 0] = 1.0
    return mask


def of_part(model: Any, factor: Factor, part: str) -> Factor:
    """Restrict ``factor`` to the body, joint, geom or actuator ``part`` of an ``MjModel``.

    Raises:
      UnknownNameError: an unknown part.
      ValueError: the factor has no parts, such as gravity.
    """
    kinds = {"body": model.body, "dof": model.joint, "geom": model.geom, "actuator": model.actuator}

    def only(field: Field) -> Field:
        values, kind = nominal(model, field.name), field.name.split("_")[0]
        if kind not in kinds:
            raise ValueError(f"{field.name} has no parts; got '{part}'")
        rows = model.dof_jntid if kind == "dof" else np.arange(len(values))
        names = {kinds[kind](row).name: row for row in set(rows.tolist())}
        here = (rows == lookup("joint" if kind == "dof" else kind, names, part)).astype(np.float64)
        mask = here.reshape(-1, *(1,) * (values.ndim - 1)) * (1.0 if field.where is None else field.where(model))
        return Field(field.name, lambda _: mask)

    return Factor(tuple(map(only, factor.fields)), factor.derives)


#: Common factors for the ``scales`` of a task. ``joint_friction``: viscous and dry friction of all joints.
#: ``joint_damping``: viscous damping of hinges and slides, and velocity gain of their servos. Both scale
#: ``dof_damping``, so a task can use only one. ``actuator_gain``: force of motors and servos.
FACTORS: Mapping[str, Factor] = {
    "body_mass": Factor((Field("body_mass"), Field("body_inertia")), derives=True),
    "joint_friction": Factor((Field("dof_damping"), Field("dof_frictionloss"))),
    "joint_damping": Factor((Field("dof_damping", _driven_joints), Field("actuator_biasprm", _velocity_gain))),
    "geom_friction": Factor((Field("geom_friction", _sliding),)),
    "gravity": Factor((Field("opt.gravity"),)),
    "actuator_gain": Factor((Field("actuator_gainprm"), Field("actuator_biasprm"))),
}


@cache
def physics_library() -> ModuleType:
    """The ``mujoco`` module, without its timers.

    Raises:
      ModuleNotFoundError: it is not installed; the text names the package.
    """
    try:
        import mujoco
        import mujoco.batch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the MuJoCo tasks need '{error.name}', which is not installed: pip install '.[envs]' in a clone",
            name=error.name,
        ) from None
    _stop_timers(Path(mujoco.__file__).parent)
    return mujoco


def _stop_timers(package: Path) -> None:
    """Remove the clock that the Python package sets, which costs 10 to 15 % of a step; `MjData.timer` then stays 0.

    The package has no function for it: ``set_mjcb_time(None)`` sets its own clock again.
    """
    for library in package.glob("*mujoco.*"):
        with suppress(OSError, ValueError):  # no library, or one without this symbol
            ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "mjcb_time").value = None


def nominal(model: Any, field: str) -> np.ndarray:
    """Array of ``field`` in an ``MjModel``; ``opt.<name>`` is one of its options."""
    return attrgetter(field)(model)


def scaled_fields(model: Any, factor: Factor, value: Any) -> dict[str, Any]:
    """Model fields under one factor.

    Args:
      model: the nominal ``MjModel``.
      value: () or (n,) array, of any array library.

    Returns:
      Field name -> array with the leading axes of ``value``, without derived constants.
    """
    fields = {}
    for name, where in factor.fields:
        unscaled = nominal(model, name)
        by = value.reshape(*value.shape, *(1,) * unscaled.ndim)
        # Written as a sum so that a factor of 1 leaves every bit unchanged.
        fields[name] = unscaled * (by if where is None else 1.0 + (by - 1.0) * where(model))
    return fields


def subtrees(parents: np.ndarray) -> np.ndarray:
    """(nbody, nbody) float32, 1.0 where the column is the row's body or below it, of ``body_parentid``."""
    below = np.eye(len(parents), dtype=np.float32)
    for body in range(len(parents) - 1, 0, -1):
        below[parents[body]] += below[body]
    return below
