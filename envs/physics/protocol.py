"""The physics-task protocol: a model, named parameters, and functions on arrays that an engine calls.

A control step of any engine is::

    for each of ``substeps``:  drive = control(qpos, qvel, memory, action, params);  one MuJoCo step under ``drive``
    obs, reward, terminated, memory = outcome(physics, memory, action, drive, params)

and an episode begins with::

    qpos, qvel, memory = start(noise, params);  obs, memory = opening(physics of qpos and qvel, memory, params)

Every function takes ``xp``, ``numpy`` or ``jax.numpy``, and arrays with equal leading axes, written ``...`` below:
(n,) on the C engine, which computes in float64, and none on MJX, which traces one copy in float32. A parameter has one
number per copy, (...).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from aesjax.registry import lookup
from envs.physics.fields import Factor, nominal, physics_library

#: Derived fields of positions and velocities alone, which exist before the first step.
AT_START = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis", "geom_xpos", "geom_xmat", "site_xpos"),
    *("site_xmat", "subtree_com", "cinert", "cvel"),
)

#: Derived fields that MuJoCo computes from a finished step only on request (mj_rnePostConstraint).
FORCES = ("cacc", "cfrc_int", "cfrc_ext")


class Physics(SimpleNamespace):
    """``qpos`` (..., nq), ``qvel`` (..., nv), and the derived fields that a task names, under MuJoCo's names.

    Shapes are MuJoCo's, after the leading axes; rotation matrices are (..., 3, 3). Derived fields describe the state
    before the last sub-step, as after ``mj_step``, or the newest state if the task is ``fresh``.
    """

    qpos: Any
    qvel: Any

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(vars(self))
        raise AttributeError(f"the task reads '{name}' but does not name it in its fields; there are {known}")


class Start(NamedTuple):
    """The beginning of an episode."""

    qpos: Any  # (..., nq)
    qvel: Any  # (..., nv)
    memory: Any  # (..., M)


class Drive(NamedTuple):
    """Forces during a sub-step; None omits a kind of force, in all sub-steps or in none."""

    ctrl: Any  # (..., nu) in the model's units
    qfrc_applied: Any = None  # (..., nv) generalised forces
    xfrc_applied: Any = None  # (..., nbody, 6) force and torque at each body's centre of mass, world axes


class Outcome(NamedTuple):
    """Outcome of a control step, and the task's memory of it."""

    obs: Any  # (..., S)
    reward: Any  # (...,)
    terminated: Any  # (...,) bool
    memory: Any  # (..., M), handed to the next step


class Marker(NamedTuple):
    """A visual shape without contacts, such as a goal."""

    kind: str  # of MuJoCo's geoms: sphere, capsule, ellipsoid, cylinder, box
    size: Any  # (3,) as in a geom
    place: Any  # (3,) metres
    rotation: Any  # (3, 3)
    colour: Any  # (3,) in [0, 1]


class PhysicsTask(ABC):
    """A task on a MuJoCo model, for any engine. Subclasses set the attributes and write the functions."""

    name: str
    model: Any  # the compiled MjModel; engines do not modify it
    obs_size: int  # S
    action_size: int  # A, in [-1, 1] each; need not be the model's nu
    time_limit: int  # control steps of an episode
    substeps: int  # physics steps of a control step
    params: Any  # a NamedTuple of numbers: nominal values of all parameters that may drift or be swept
    #: Parameter -> the model fields it multiplies; the task reads the other parameters. No two may scale the same
    #: field.
    scales: Mapping[str, Factor]
    fields: tuple[str, ...] = ()  # fields of MjData that `outcome` reads besides positions and velocities
    start_fields: tuple[str, ...] = ()  # fields of `AT_START` that `opening` reads, of the unscaled model
    memory_size: int = 0  # M, numbers of an episode outside the physics: goals, targets, earlier actions
    held: bool = False  # `control` is constant over sub-steps: it is called once, and all sub-steps are one call
    fresh: bool = False  # `fields` are recomputed at the new state

    @abstractmethod
    def noise(self, key: Any) -> Any:
        """(K,) random numbers for one `start`, drawn in JAX and equal on every engine."""

    @abstractmethod
    def start(self, xp: ModuleType, noise: Any, params: Any) -> Start:
        """State and memory of a new episode from ``noise`` (..., K)."""

    @abstractmethod
    def opening(self, xp: ModuleType, physics: Physics, memory: Any, params: Any) -> tuple[Any, Any]:
        """First observation (..., S) and memory (..., M), from ``physics`` with ``start_fields``, before any step."""

    @abstractmethod
    def control(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, params: Any) -> Drive:
        """Forces in the next sub-step. ``physics`` has only current positions and velocities."""

    @abstractmethod
    def outcome(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, drive: Drive, params: Any) -> Outcome:
        """Result of a control step; ``memory`` is from before it, ``drive`` from its last sub-step."""

    def settle(self, xp: ModuleType, qpos: Any, qvel: Any) -> Any:
        """Velocities (..., nv) after a sub-step, for limits that MuJoCo lacks; by default unchanged."""
        return qvel

    def recentred(self, xp: ModuleType, qpos: Any, memory: Any) -> tuple[Any, Any]:
        """Equivalent state with better float32 resolution, such as the origin at the body; for float32 engines."""
        return qpos, memory

    def markers(self, memory: Any) -> Sequence[Marker]:
        """Markers in a picture, for one environment with ``memory`` (M,) NumPy; by default none."""
        return ()


def lasting(task: PhysicsTask) -> bool:
    """Whether a control step of ``task`` is one call of the engine, without work between sub-steps."""
    return task.held and type(task).settle is PhysicsTask.settle


def expect(task: PhysicsTask, function: str, lead: tuple[int, ...], obs: Any, memory: Any) -> None:
    """Raise if a ``function`` of ``task`` returned a wrong shape for copies with leading axes ``lead``."""
    for kind, value, size in (("obs", obs, task.obs_size), ("memory", memory, task.memory_size)):
        if value.shape != (*lead, size):
            shape = (*lead, size)
            raise ValueError(f"task '{task.name}': {function} must return {kind} of shape {shape}; got {value.shape}")


def check(task: PhysicsTask) -> None:
    """Raise for a task that is inconsistent with itself or its model, before compilation.

    Raises:
      UnknownNameError: (a ``KeyError``) an unknown scaled parameter or data field.
      ValueError: two factors on one field, forces of a ``fresh`` state. AttributeError: an unknown model field.
    """
    known = dict.fromkeys(dir(physics_library().MjData))
    for what, names, there in (
        ("parameter", task.scales, task.params._asdict()),
        ("data field", task.fields, known),
        ("data field at the start", task.start_fields, dict.fromkeys(AT_START)),
    ):
        for name in names:
            lookup(f"{what} of task {task.name}", there, name)
    owners: dict[str, str] = {}
    for parameter, factor in task.scales.items():
        for field in factor.fields:
            nominal(task.model, field.name)
            if (other := owners.setdefault(field.name, parameter)) != parameter:
                both = f"{other} and {parameter}"
                raise ValueError(f"task '{task.name}': the parameters {both} both scale {field.name}; one may")
    stale = [name for name in task.fields if name in FORCES]
    if task.fresh and stale:
        raise ValueError(f"task '{task.name}': {', '.join(stale)} belong to the last sub-step; fresh must be False")
