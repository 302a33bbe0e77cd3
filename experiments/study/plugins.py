"""Schedules, responses, proxies, tasks, patterns and carriers that live elsewhere: found, checked, registered.

A name is looked up among what is registered, then among the entry points of installed packages (group
``aesjax.schedules``, ``aesjax.adaptations``, ``aesjax.proxies``, ``aesjax.tasks``, ``aesjax.patterns``,
``aesjax.carriers``), then, if it has the form ``module:attribute``, where Python finds modules and in the current
directory. Nothing is imported before its name is asked for. What a study used is written into its configuration and
found again when it is resumed or replayed.
"""

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import envs
from aesjax.adaptations import LEVERS, RESPONSES, ResponseSpec
from aesjax.registry import UnknownNameError, unknown
from aesjax.schedules import PROXIES, SCHEDULES, adopt_proxy, adopt_schedule
from agents import CARRIERS, CarrierSpec
from envs.adopt import adopt_pattern, adopt_task

Origins = Mapping[str, Mapping[str, Mapping[str, str | None]]]  # kind -> name -> origin, as a configuration has it


class _Kind(NamedTuple):
    """What may be plugged in under one option of the command line."""

    group: str  # of entry points
    registered: Mapping[str, Any]
    add: Callable[[str, Any], None]  # name, object


class Origin(NamedTuple):
    """Where a plugged-in object came from."""

    object: str  # module:attribute
    package: str | None  # the installed package that offers it; None: a module on the path
    version: str | None
    sha256: str | None = None  # of the module's file, where no version says what is in it

    def to_json(self) -> dict[str, str | None]:
        """Plain JSON, without a digest where there is none."""
        return {name: value for name, value in self._asdict().items() if name != "sha256" or value is not None}

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


KINDS: dict[str, _Kind] = {
    "schedule": _Kind("aesjax.schedules", SCHEDULES, lambda n, x: SCHEDULES.add(n, adopt_schedule(n, x))),
    "response": _Kind("aesjax.adaptations", RESPONSES, _add_response),
    "proxy": _Kind("aesjax.proxies", PROXIES, lambda n, x: PROXIES.add(n, adopt_proxy(n, x))),
    "task": _Kind("aesjax.tasks", envs.TASKS, lambda n, x: envs.TASKS.update({n: adopt_task(n, x)})),
    "pattern": _Kind("aesjax.patterns", envs.PATTERNS, lambda n, x: envs.PATTERNS.update({n: adopt_pattern(n, x)})),
    "carrier": _Kind("aesjax.carriers", CARRIERS, _add_carrier),
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
        said = unknown(kind, (*known.registered, *points), name)
        raise UnknownNameError(f"{said}; one of your own is typed as module:name")
    _plug_in(kind, name, origin)
    return known.registered[name]


def offered(kind: str) -> dict[str, str]:
    """Names that installed packages offer and that are not plugged in yet -> the package that does."""
    known = KINDS[kind]
    points = _entry_points(known.group)
    return {n: "" if p.dist is None else p.dist.name for n, p in points.items() if n not in known.registered}


def origins_of(names: Iterable[tuple[str, str]]) -> Origins:
    """Of those among (kind, name) that were plugged in, as plain JSON."""
    found: dict[str, dict[str, dict[str, str | None]]] = {}
    for kind, name in names:
        if (kind, name) in _ORIGINS:
            found.setdefault(kind, {})[name] = _ORIGINS[kind, name].to_json()
    return found


def origin_of(kind: str, name: str) -> Origin | None:
    """Where a registered name came from; None for those of this repository."""
    return _ORIGINS.get((kind, name))


def edited(then: Origins, now: Origins) -> str:
    """One sentence about a module whose file is not what a study began with; empty where all are."""
    for kind, names in then.items():
        for name, told in names.items():
            mine, theirs = now.get(kind, {}).get(name, {}).get("sha256"), told.get("sha256")
            if mine and theirs and mine != theirs:
                return (
                    f"the file of {kind} '{name}' was edited since the study began (SHA-256 {theirs[:12]} then, "
                    f"{mine[:12]} now)"
                )
    return ""


def restore(origins: Origins) -> None:
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
    if now is None or now[:3] != origin[:3]:  # a file may have been edited since, which matters to `edited`
        what = "one of this repository" if now is None else now.sentence
        raise ValueError(f"the study uses {kind} '{name}' of {origin.sentence}; what has this name now is {what}")


def _entry_points(group: str) -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=group)}


def _plug_in(kind: str, name: str, origin: Origin) -> None:
    KINDS[kind].add(name, _imported(kind, name, origin.object))
    if origin.package is None:
        file = getattr(sys.modules[origin.object.partition(":")[0]], "__file__", None)
        digest = None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
        origin = origin._replace(sha256=digest)
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
        typed = f"; type '{module[:-3]}:{attribute}', without .py" if module.endswith(".py") else ""
        raise refuse(missing + looked + typed) from None
    except Exception as error:  # whatever a stranger's module raises while it is imported
        raise refuse(f"importing '{module}' failed with {type(error).__name__}: {error}") from None
    for part in attribute.split("."):
        if not part or not hasattr(found, part):
            said = unknown(f"attribute of {module}", _own_names(found), part)
            raise refuse(said + _shadowed(module))
        found = getattr(found, part)
    return found


def _own_names(found: Any) -> list[str]:
    """What is public in a stranger's object, and neither a module, a class nor a function that it only imported."""
    public = {name: getattr(found, name, None) for name in dir(found) if not name.startswith("_")}
    if not inspect.ismodule(found):
        return list(public)
    imported = [
        name
        for name, value in public.items()
        if inspect.ismodule(value)
        or inspect.isclass(value)  # nothing that is plugged in is one
        or (inspect.isroutine(value) and getattr(value, "__module__", None) != getattr(found, "__name__", None))
    ]
    return [name for name in public if name not in imported]


def _shadowed(module: str) -> str:
    """That the file a person means is not the module that Python finds."""
    meant, file = Path(f"{module.partition('.')[0]}.py").resolve(), getattr(sys.modules[module], "__file__", None)
    if not meant.exists() or (file is not None and Path(file).resolve() == meant) or "." in module:
        return ""
    return f"; this is another module of that name ({file or 'built in'}), so call {meant.name} something else"


def _refused(kind: str, name: str, reason: str) -> ValueError:
    return ValueError(f"{kind} '{name}' cannot be used: " + " ".join(reason.split()))
