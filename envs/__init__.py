"""Drifting tasks: a registry, the drift protocol, and a wrapper for loops of one's own.

>>> import envs
>>> envs.make("toy").channels[0].name
'goal_offset'
"""

from collections.abc import Callable
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from aesjax.registry import UnknownNameError, lookup
from envs.core import Channel, Env, EnvSpec, Task, autoreset_step
from envs.drift import DriftTruth, Realisation, draw, truth
from envs.patterns import PATTERNS, pattern_index
from envs.world import Drifting, DriftState

__all__ = [
    "ORACLES",
    "PATTERNS",
    "TASKS",
    "Channel",
    "DriftState",
    "DriftTruth",
    "Drifting",
    "Env",
    "EnvSpec",
    "Realisation",
    "Task",
    "UnknownNameError",
    "autoreset_step",
    "draw",
    "make",
    "optimal_return",
    "pattern_index",
    "truth",
]

# A Task, a function that builds one, or "module:attribute" of either: imported on first use, so that a task may need
# a physics engine without `import envs` needing it. Read at every `make`, so entries may be added at any time.
TASKS: dict[str, Task | Callable[..., Task] | str] = {
    "toy": "envs.toy.multigoal:TASK",
    "toy_multigoal_classic": "envs.toy.multigoal:build_classic",
    "pendulum": "envs.toy.mechanics:PENDULUM",
    "reacher": "envs.toy.mechanics:REACHER",
    "cartpole_swingup": "envs.toy.mechanics:CARTPOLE",
    "hopper": "envs.mujoco:hopper",
    "halfcheetah": "envs.mujoco:halfcheetah",
    "walker2d": "envs.mujoco:walker2d",
    "ant": "envs.mujoco:ant",
    "humanoid": "envs.mujoco:humanoid",
    "isaac_ingenuity": "envs.isaac:isaac_ingenuity",
    "isaac_ant": "envs.isaac:isaac_ant",
    "isaac_humanoid": "envs.isaac:isaac_humanoid",
    "isaac_allegro_hand": "envs.isaac:isaac_allegro_hand",
    "isaac_anymal": "envs.isaac:isaac_anymal",
    "isaac_franka_cabinet": "envs.isaac:isaac_franka_cabinet",
}

BRIDGE = "bridge:"  # prefix of tasks that another simulator runs, see `envs.bridge.build`

# Tasks whose optimum is known: "module:attribute" of a function from drift values (M, D) to mean returns (M,).
ORACLES: dict[str, str] = {"toy": "envs.toy.oracle:optimal_return"}


def _attribute(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(module), name)


def optimal_return(name: str) -> Callable[[Any], Any] | None:
    """Best mean episode return of a task as a function of frozen drift values (M, D) -> (M,), or None if unknown."""
    make(name)
    return _attribute(ORACLES[name]) if name in ORACLES else None


def make(name: str, **options: Any) -> Task:
    """The task called ``name``; ``options`` are those of its builder, e.g. `envs.mujoco.build`.

    A name that begins with ``bridge:`` is a task of a simulator beside us (`envs.bridge.build`).

    Raises:
      UnknownNameError: (a ``KeyError``) ``name`` is not in ``TASKS``.
      ValueError: an option that the task does not have.
    """
    if name.startswith(BRIDGE):
        return _attribute("envs.bridge:build")(name, **options)
    entry = lookup("task", TASKS, name)
    return build(name, _attribute(entry) if isinstance(entry, str) else entry, **options)


def build(name: str, entry: Any, /, **options: Any) -> Task:
    """The task of an entry: a `Task`, which has no options, or a function that builds one.

    Raises:
      ValueError: an option that the task does not have, or a function that builds something else.
    """
    if isinstance(entry, Task):
        if options:
            raise ValueError(f"task '{name}' has no options; got {', '.join(options)}")
        return entry
    parameters = signature(entry).parameters.values()
    known = {p.name for p in parameters if p.kind is not Parameter.VAR_KEYWORD}
    if not {*options} <= known and known == {p.name for p in parameters}:  # a builder with ``**options`` checks its own
        raise ValueError(f"task '{name}' has the options {', '.join(sorted(known))}; got {', '.join(options)}")
    built = entry(**options)
    if not isinstance(built, Task):
        raise ValueError(f"task '{name}': its builder returned {type(built).__name__}, not a Task")
    return built
