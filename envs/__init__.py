"""Drifting tasks: a registry, the drift protocol, and a wrapper for loops of one's own.

>>> import envs
>>> envs.make("toy").channels[0].name
'goal_offset'
"""

from importlib import import_module

from envs.core import Channel, Env, EnvSpec, Task, autoreset_step
from envs.drift import DriftTruth, Realisation, draw, drifted_params, truth
from envs.drifting import Drifting, DriftState
from envs.names import UnknownNameError, lookup
from envs.patterns import PATTERNS, pattern_index

__all__ = [
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
    "drifted_params",
    "make",
    "pattern_index",
    "truth",
]

# A Task, or "module:attribute" of a Task or of a function that builds one: imported on first use, so that a
# task may need a physics engine without `import envs` needing it.
TASKS: dict[str, Task | str] = {
    "toy": "envs.toy.multigoal:TASK",
    "toy_multigoal_classic": "envs.toy.classic:TASK",
}


def make(name: str) -> Task:
    """The task called ``name``.

    Raises:
      UnknownNameError: (a ``KeyError``) ``name`` is not in ``TASKS``.
    """
    entry = lookup("task", TASKS, name)
    if isinstance(entry, str):
        module, attribute = entry.split(":")
        entry = getattr(import_module(module), attribute)
        if not isinstance(entry, Task):
            entry = entry()
    return entry
