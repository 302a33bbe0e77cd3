"""Schedules, responses, proxies, tasks, patterns and carriers that live elsewhere: found, checked, registered.

A name is looked up among what is registered, then among the entry points of installed packages (group
``aesjax.schedules``, ``aesjax.responses``, ``aesjax.proxies``, ``aesjax.tasks``, ``aesjax.patterns``,
``aesjax.carriers``), then, if it has the form ``module:attribute``, where Python finds modules and in the current
directory. Nothing is imported before its name is asked for. What a study used is written into its configuration and
found again when it is resumed or replayed.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import metadata
from typing import Any, NamedTuple

import envs
from aesjax.registry import Registry
from aesjax.responses import LEVERS, RESPONSES, ResponseSpec
from aesjax.schedules import PROXIES, SCHEDULES, adopt_proxy, adopt_schedule
from agents import CARRIERS, CarrierSpec
from envs.adopt import adopt_pattern, adopt_task

__all__ = ["KINDS", "Origin", "find", "offered", "origin_of", "origins_of", "restore"]


class Kind(NamedTuple):
    """What may be plugged in under one option of the command line."""

    group: str  # of entry points
    registered: Mapping[str, Any]
    add: Callable[[str, Any], None]  # name, object


class Origin(NamedTuple):
    """Where a plugged-in object came from."""

    object: str  # module:attribute
    package: str | None  # the installed package that offers it; None: a module on the path
    version: str | None

    @property
    def sentence(self) -> str:
        """For messages: the object, and its package if there is one."""
        return self.object if self.package is None else f"{self.object} of {self.package} {self.version}"


def _add_carrier(name: str, plugin: Any) -> None:
    if not isinstance(plugin, CarrierSpec):
        raise ValueError(f"carrier '{name}' must be a CarrierSpec; got {type(plugin).__name__}")
    CARRIERS.add(name, plugin)


def _add_response(name: str, plugin: Any) -> None:
    if not isinstance(plugin, ResponseSpec):
        raise ValueError(f"response '{name}' must be a ResponseSpec; got {type(plugin).__name__}")
    if plugin.lever not in LEVERS:
        raise ValueError(f"response '{name}' turns '{plugin.lever}'; levers: {', '.join(LEVERS)}")
    RESPONSES.add(name, plugin)


KINDS: dict[str, Kind] = {
    "schedule": Kind("aesjax.schedules", SCHEDULES, lambda n, x: SCHEDULES.add(n, adopt_schedule(n, x))),
    "response": Kind("aesjax.responses", RESPONSES, _add_response),
    "proxy": Kind("aesjax.proxies", PROXIES, lambda n, x: PROXIES.add(n, adopt_proxy(n, x))),
    "task": Kind("aesjax.tasks", envs.TASKS, lambda n, x: envs.TASKS.update({n: adopt_task(n, x)})),
    "pattern": Kind("aesjax.patterns", envs.PATTERNS, lambda n, x: envs.PATTERNS.update({n: adopt_pattern(n, x)})),
    "carrier": Kind("aesjax.carriers", CARRIERS, _add_carrier),
}
_ORIGINS: dict[tuple[str, str], Origin] = {}  # (kind, name) of everything that was plugged in


def find(kind: str, name: str) -> Any:
    """The entry called ``name``, plugged in first if need be.

    Args:
      kind: of `KINDS`.

    Raises:
      UnknownNameError: nothing has this name.
      ValueError: something has it, but cannot be imported or is not what it should be; one sentence.
    """
    known = KINDS[kind]
    if name in known.registered:
        return known.registered[name]
    if kind == "task" and name.startswith(envs.BRIDGE):
        return partial(envs.make, name)  # what it is, only a simulator knows
    points = _entry_points(known.group)
    if name in points:
        point = points[name]
        version = None if point.dist is None else point.dist.version
        origin = Origin(point.value, None if point.dist is None else point.dist.name, version)
    elif ":" in name:
        origin = Origin(name, None, None)
    else:
        Registry(kind, **dict.fromkeys((*known.registered, *points)))[name]  # raises
        raise AssertionError
    _plug_in(kind, name, origin)
    return known.registered[name]


def offered(kind: str) -> dict[str, str]:
    """Names that installed packages offer and that are not plugged in yet -> the package that does."""
    known = KINDS[kind]
    points = _entry_points(known.group)
    return {n: "" if p.dist is None else p.dist.name for n, p in points.items() if n not in known.registered}


def origins_of(names: Iterable[tuple[str, str]]) -> dict[str, dict[str, dict[str, str | None]]]:
    """Kind -> name -> origin, as plain JSON, of those among (kind, name) that were plugged in."""
    found: dict[str, dict[str, dict[str, str | None]]] = {}
    for kind, name in names:
        if (kind, name) in _ORIGINS:
            found.setdefault(kind, {})[name] = _ORIGINS[kind, name]._asdict()
    return found


def origin_of(kind: str, name: str) -> Origin | None:
    """Where a registered name came from; None for those of this repository."""
    return _ORIGINS.get((kind, name))


def restore(origins: Mapping[str, Mapping[str, Mapping[str, str | None]]]) -> None:
    """Plug in everything that a study used, as its configuration tells.

    Raises:
      ValueError: something is not there any more; one sentence that says what and where it came from.
    """
    for kind, names in origins.items():
        for name, told in names.items():
            origin = Origin(str(told["object"]), told["package"], told["version"])
            try:
                find(kind, name)
            except (KeyError, ValueError) as error:
                reason = error
            else:
                _check_same(kind, name, origin)
                continue
            try:  # its package may have stopped offering the name, but still hold the object
                _plug_in(kind, name, origin)
            except ValueError:
                raise ValueError(
                    f"the study uses {kind} '{name}', which came from {origin.sentence} and cannot be found: {reason}"
                ) from None


def _check_same(kind: str, name: str, origin: Origin) -> None:
    """Refuse another thing of the same name than the study used, or another version of it."""
    now = origin_of(kind, name)
    if now != origin:
        what = "one of this repository" if now is None else now.sentence
        raise ValueError(f"the study uses {kind} '{name}' of {origin.sentence}; what has this name now is {what}")


def _entry_points(group: str) -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=group)}


def _plug_in(kind: str, name: str, origin: Origin) -> None:
    KINDS[kind].add(name, _imported(kind, name, origin.object))
    _ORIGINS[kind, name] = origin


def _imported(kind: str, name: str, place: str) -> Any:
    """The object at ``module:attribute``."""
    module, _, attribute = place.partition(":")
    if os.getcwd() not in sys.path:  # the console script does not look here by itself
        sys.path.append(os.getcwd())
    refuse = partial(_refused, kind, name)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = f"there is no module '{error.name}'"
        looked = "; looked where Python looks and in the current directory" if error.name == module else ""
        raise refuse(missing + looked) from None
    except Exception as error:  # whatever a stranger's module raises while it is imported
        raise refuse(f"importing '{module}' failed with {type(error).__name__}: {error}") from None
    for part in attribute.split("."):
        if not part or not hasattr(found, part):
            public = Registry(f"attribute of {module}", **{n: None for n in dir(found) if not n.startswith("_")})
            try:
                public[part]
            except KeyError as error:
                raise refuse(str(error)) from None
        found = getattr(found, part)
    return found


def _refused(kind: str, name: str, reason: str) -> ValueError:
    return ValueError(f"{kind} '{name}' cannot be used: " + " ".join(reason.split()))
