"""The physics-task protocol: a model, named parameters, and functions on arrays that an engine calls.

A control step of any engine is::

    for each of ``substeps``:  drive = control(qpos, qvel, memory, action, params);  one MuJoCo step under ``drive``
    obs, reward, terminated, memory = outcome(physics, memory, action, drive, params)

and the beginning of an episode is::

    qpos, qvel, memory = start(noise, params);  obs, memory = opening(physics of qpos and qvel, memory, params)

Every function takes ``xp``, ``numpy`` or ``jax.numpy``, and arrays with the same leading axes, written ``...`` below:
(n,) on the C engine, which computes in float64, and none on MJX, which traces one copy in float32. A parameter is one
number per copy, (...).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from aesjax.registry import lookup
from envs.physics.fields import Factor, nominal, physics_library

#: Derived fields that follow from positions and velocities alone, and so exist before a first step.
AT_START = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis", "geom_xpos", "geom_xmat", "site_xpos"),
    *("site_xmat", "subtree_com", "cinert", "cvel"),
)

#: Derived fields that MuJoCo computes from a finished step only on request (mj_rnePostConstraint).
FORCES = ("cacc", "cfrc_int", "cfrc_ext")


class Physics(SimpleNamespace):
    """``qpos`` (..., nq), ``qvel`` (..., nv), and the derived fields that a task names, under MuJoCo's names.

    Shapes are MuJoCo's, after the leading axes; rotation matrices are (..., 3, 3). Derived fields describe the state
    before the last sub-step, as after ``mj_step``, or the newest state where the task is ``fresh``.
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
    """Forces during a sub-step; None leaves a kind of force out, and must do so always or never."""

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
    """A shape in pictures of a task that touches nothing: a goal, say."""

    kind: str  # of MuJoCo's geoms: sphere, capsule, ellipsoid, cylinder, box
    size: Any  # (3,) as of a geom
    place: Any  # (3,) metres
    rotation: Any  # (3, 3)
    colour: Any  # (3,) in [0, 1]


class PhysicsTask(ABC):
    """A task on a MuJoCo model, for any engine. Subclasses set the attributes and write the functions."""

    name: str
    model: Any  # the compiled MjModel, from wherever the task has it; engines do not write to it
    obs_size: int  # S
    action_size: int  # A, in [-1, 1] each; need not be the model's nu
    time_limit: int  # control steps of an episode
    substeps: int  # physics steps of a control step
    params: Any  # a NamedTuple of numbers: names and nominal values of all that may drift or be swept
    #: Parameter -> the model fields it multiplies; parameters that are not here are the task's own to read. No two may
    #: scale the same field.
    scales: Mapping[str, Factor]
    fields: tuple[str, ...] = ()  # of MjData, what `outcome` reads beyond positions and velocities
    start_fields: tuple[str, ...] = ()  # of `AT_START`, what `opening` reads; those of the unscaled model
    memory_size: int = 0  # M, numbers of an episode that are not in the physics: goals, targets, earlier actions
    held: bool = False  # `control` gives the same in all sub-steps: it is called once, and the sub-steps are one call
    fresh: bool = False  # `fields` are computed again at the new state

    @abstractmethod
    def noise(self, key: Any) -> Any:
        """(K,) random numbers for one `start`, drawn in JAX, the same on every engine."""

    @abstractmethod
    def start(self, xp: ModuleType, noise: Any, params: Any) -> Start:
        """State and memory of a new episode from ``noise`` (..., K)."""

    @abstractmethod
    def opening(self, xp: ModuleType, physics: Physics, memory: Any, params: Any) -> tuple[Any, Any]:
        """First observation (..., S) and memory (..., M), of ``physics`` with ``start_fields``; nothing has moved."""

    @abstractmethod
    def control(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, params: Any) -> Drive:
        """Forces in the next sub-step. ``physics`` has current positions and velocities and nothing else."""

    @abstractmethod
    def outcome(self, xp: ModuleType, physics: Physics, memory: Any, action: Any, drive: Drive, params: Any) -> Outcome:
        """The result of a control step; ``memory`` is from before it, ``drive`` from its last sub-step."""

    def settle(self, xp: ModuleType, qpos: Any, qvel: Any) -> Any:
        """Velocities (..., nv) to go on with after a sub-step, for limits that MuJoCo has not; as they are."""
        return qvel

    def recentred(self, xp: ModuleType, qpos: Any, memory: Any) -> tuple[Any, Any]:
        """The same state where float32 resolves it best, e.g. with the origin at the body; for engines in float32."""
        return qpos, memory

    def markers(self, memory: Any) -> Sequence[Marker]:
        """Marks in a picture besides the model, for one environment with ``memory`` (M,) NumPy; none."""
        return ()


def lasting(task: PhysicsTask) -> bool:
    """Whether a control step of ``task`` is one call of the engine, with nothing to do between its sub-steps."""
    return task.held and type(task).settle is PhysicsTask.settle


def expect(task: PhysicsTask, function: str, lead: tuple[int, ...], obs: Any, memory: Any) -> None:
    """Refuse what a ``function`` of ``task`` returned for copies with leading axes ``lead`` in another shape."""
    for kind, value, size in (("obs", obs, task.obs_size), ("memory", memory, task.memory_size)):
        if value.shape != (*lead, size):
            shape = (*lead, size)
            raise ValueError(f"task '{task.name}': {function} must return {kind} of shape {shape}; got {value.shape}")


def check(task: PhysicsTask) -> None:
    """Refuse a task that contradicts itself or its model, before anything is compiled.

    Raises:
      UnknownNameError: (a ``KeyError``) a scaled parameter or a data field that does not exist.
      ValueError: two factors on one field, forces of a ``fresh`` state. AttributeError: a model field does not exist.
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
