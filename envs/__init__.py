"""Drifting tasks: a registry, the drift protocol, and a wrapper for custom loops.

>>> import envs
>>> envs.make("toy").channels[0].name
'goal_offset'
"""

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from inspect import Parameter, signature, unwrap
from numbers import Integral
from typing import Any

from aesjax.registry import UnknownNameError, listed, unknown
from envs.adopt import ADAPTERS, adapter_of
from envs.contract import check_task
from envs.core import Channel, Env, EnvSpec, Task, autoreset_step
from envs.drift import DriftTruth, Realisation, draw, truth
from envs.patterns import PATTERNS, pattern_index
from envs.protocols import PROTOCOLS, Protocol
from envs.timeline import Timeline
from envs.world import Drifting, DriftState

__all__ = [
    "ORACLES",
    "PATTERNS",
    "PROTOCOLS",
    "TASKS",
    "Channel",
    "DriftState",
    "DriftTruth",
    "Drifting",
    "Env",
    "EnvSpec",
    "Protocol",
    "Realisation",
    "Task",
    "Timeline",
    "UnknownNameError",
    "autoreset_step",
    "check_task",
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
    "grid": "envs.toy.grid:TASK",
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

_MADE: dict[tuple[str, str], Task] = {}  # (place, complete options) -> task

BRIDGE = "bridge:"  # prefix of tasks that another simulator runs, see `envs.bridge.build`
GYMNASIUM = "gymnasium:"  # prefix of Gymnasium ids, see `envs.adapters.gym_tasks`
PLAYGROUND = "playground:"  # prefix of MuJoCo Playground names, see `envs.adapters.playground`
#: Prefix of a library -> "module:attribute" of the function from a name and options to a task.
NAMED = {GYMNASIUM: "envs.adapters.gym_tasks:named", PLAYGROUND: "envs.adapters.playground:named"}
PREFIXES = (BRIDGE, *NAMED)
_ADAPTED = ("channels", "observation", "time_limit")  # options of environments that a function makes

# Tasks with a known optimum: "module:attribute" of a function from drift values (M, D) to mean returns (M,).
ORACLES: dict[str, str] = {"toy": "envs.toy.oracle:optimal_return", "grid": "envs.toy.grid:optimal_return"}


def attribute(place: str) -> Any:
    """The attribute at ``module:attribute``."""
    module, name = place.split(":")
    return getattr(import_module(module), name)


def optimal_return(name: str) -> Callable[[Any], Any] | None:
    """Best mean episode return of a task as a function of frozen drift values (M, D) -> (M,), or None if unknown."""
    make(name)
    return attribute(ORACLES[name]) if name in ORACLES else None


def make(name: str, **options: Any) -> Task:
    """The task called ``name``; ``options`` are those of its builder, e.g. `envs.mujoco.build`.

    ``bridge:NAME`` is a task of an external simulator (`envs.bridge.build`), ``gymnasium:ID`` a Gymnasium environment
    (`envs.adapters.gym_tasks.from_gymnasium`) and ``playground:NAME`` a MuJoCo Playground environment
    (`envs.adapters.playground.from_playground`).

    Raises:
      UnknownNameError: (a ``KeyError``) ``name`` is not in ``TASKS``.
      ValueError: an option that the task does not have.
    """
    if name.startswith(BRIDGE):
        return attribute("envs.bridge:build")(name, **options)
    for prefix, place in NAMED.items():
        if name.startswith(prefix):
            return build(name, partial(attribute(place), name.removeprefix(prefix)), **options)
    if name not in TASKS:
        raise UnknownNameError(unknown_task(name, TASKS))
    entry = TASKS[name]
    if not isinstance(entry, str):
        return build(name, entry, **options)
    built = build(name, attribute(entry), **options)
    return _MADE.setdefault((entry, repr(sorted(built.options.items()))), built)


def unknown_task(name: str, known: Iterable[str]) -> str:
    """Message about a task that is not ``known``, with the Gymnasium environment of that name if there is one."""
    if "-v" not in name:  # as in Gymnasium's ids
        return unknown("task", known, name)
    from gymnasium import registry

    return unknown("task", known, name) + f"; Gymnasium's is '{GYMNASIUM}{name}'" * (name in registry)


def build(name: str, entry: Any, /, **options: Any) -> Task:
    """Task of an entry: a `Task` without options, an environment of another library, or a function that makes either.

    Raises:
      ValueError: an option that the task does not have, a function that builds something else, or a task whose
        episodes have no step.
    """
    if (place := adapter_of(entry)) and not callable(entry):
        entry = partial(attribute(place), entry)
    if isinstance(entry, Task):
        if options:
            raise ValueError(f"task '{name}' has no options; got {', '.join(options)}")
        return entry
    parameters = signature(entry).parameters
    known = set(parameters) - {"name"}
    misfit = f"task '{name}' has the options {listed(sorted(known))}; got {listed(options)}"
    judges = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    judges &= not adapter_of(unwrap(entry))  # an environment class does not decide what drifts
    own = {key: value for key, value in options.items() if judges or key in known}
    more = {key: value for key, value in options.items() if key not in own}
    if more.keys() - set(_ADAPTED):
        raise ValueError(misfit)
    many = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    wanted = [n for n, p in parameters.items() if p.default is Parameter.empty and p.kind not in many]
    if missing := [n for n in wanted if n not in options]:
        raise ValueError(f"task '{name}': option '{missing[0]}' of its builder has no default; every option needs one")
    built: Any = entry(**own)
    place = adapter_of(built)
    if place and place == ADAPTERS["gymnasium"]:  # the adapter makes more of them
        built.close()
        return attribute(place)(partial(entry, **own), **more)
    if place:
        return build(name, built, **more)
    if more:
        raise ValueError(misfit)
    if not isinstance(built, Task):
        wanted = "a Task or an environment of a known library"
        raise ValueError(f"task '{name}': its builder returned {type(built).__name__}, not {wanted}")
    limit = built.env.spec.time_limit
    if not isinstance(limit, Integral) or limit < 1:
        raise ValueError(f"time_limit of task '{name}' must be a whole number, at least 1; got {limit!r}")
    return built
