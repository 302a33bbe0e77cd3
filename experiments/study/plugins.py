"""Objects of a study from outside this repository: found by name, registered, and described for `config.json`.

`find` looks a typed name up among the registered names and the entry points of installed packages (groups
``aesjax.schedules``, ``aesjax.tasks``, ...); ``module:attribute`` is imported, also from the current directory. `known`
is for names that a file contains: it imports nothing. An object of a script or notebook is registered under its name.
"""

import hashlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import envs
from aesjax.adaptations import ADAPTATIONS, AdaptationFactory
from aesjax.registry import UnknownNameError, unknown
from aesjax.schedules import PROXIES, SCHEDULES, ScheduleFactory, as_proxy, as_schedule
from agents import CARRIERS, CarrierSpec
from envs.adopt import adopt_pattern, adopt_task
from envs.bridge.names import NATIVE

Definitions = Mapping[str, Mapping[str, Mapping[str, str]]]  # kind -> name -> what defines it, plain JSON
Find = Callable[[str, str], Any]  # kind, name -> entry: `find` or `known`


class _Kind(NamedTuple):
    """Objects that one option of the command line accepts."""

    group: str  # of entry points
    registered: Any  # name -> entry
    check: Callable[[str, Any], Any]  # name, object -> the entry to register


def _schedule(name: str, given: Any) -> ScheduleFactory:
    factory = replace(given if isinstance(given, ScheduleFactory) else as_schedule(given, name=name), name=name)
    taken = {SCHEDULES[ours].label: ours for ours in _OURS["schedule"]}
    if factory.label in taken:
        raise ValueError(
            f"schedule '{name}': its label '{factory.label}' is that of '{taken[factory.label]}'; declare another"
        )
    return factory


def _of_type(kind: str, wanted: type) -> Callable[[str, Any], Any]:
    def checked(name: str, given: Any) -> Any:
        if not isinstance(given, wanted):
            raise ValueError(f"{kind} '{name}' must be of type {wanted.__name__}; got {type(given).__name__}")
        return given

    return checked


KINDS: dict[str, _Kind] = {
    "schedule": _Kind("aesjax.schedules", SCHEDULES, _schedule),
    "adaptation": _Kind("aesjax.adaptations", ADAPTATIONS, _of_type("adaptation", AdaptationFactory)),
    "proxy": _Kind("aesjax.proxies", PROXIES, lambda name, given: replace(as_proxy(given, name=name), name=name)),
    "task": _Kind("aesjax.tasks", envs.TASKS, adopt_task),
    "pattern": _Kind("aesjax.patterns", envs.PATTERNS, adopt_pattern),
    "carrier": _Kind("aesjax.carriers", CARRIERS, _of_type("carrier", CarrierSpec)),
}
_OURS = {kind: frozenset(known.registered) for kind, known in KINDS.items()}


def is_ours(kind: str, name: str) -> bool:
    """Whether a registered name is one of this repository."""
    return name in _OURS[kind] or (kind == "task" and name.startswith(envs.BRIDGE))


def find(kind: str, name: str) -> Any:
    """The entry of a kind of `KINDS` that is called ``name``, imported and registered if need be.

    Raises:
      UnknownNameError: nothing has this name.
      ValueError: something has it, but cannot be imported or is not what it should be; one sentence.
    """
    group, registered, check = KINDS[kind]
    if name in registered:
        return registered[name]
    if kind == "task" and name.startswith(envs.BRIDGE):
        if is_typed(name):  # so that `known` accepts it from here on
            registered[name] = partial(envs.make, name)
        return partial(envs.make, name)  # only a simulator knows what it is
    points = _entry_points(group)
    if name not in points and ":" not in name:
        text = unknown(kind, (*registered, *points), name)
        raise UnknownNameError(f"{text}; one of your own is typed as module:name")
    registered[name] = check(name, _imported(kind, name, points[name].value if name in points else name))
    return registered[name]


def known(kind: str, name: str) -> Any:
    """The entry that a file calls ``name``; `find` without any import.

    Raises:
      UnknownNameError: as `find`. ValueError: the entry is one that this process has not imported or defined.
    """
    point = _entry_points(KINDS[kind].group).get(name)
    place = name if point is None else point.value
    module, colon, _ = place.removeprefix(envs.BRIDGE).removeprefix(NATIVE).partition(":")
    loaded = module in sys.modules and not place.startswith(envs.BRIDGE)
    if name not in KINDS[kind].registered and colon and not loaded:
        raise ValueError(
            f"it uses {kind} '{name}', and reading a study imports nothing: type the complete command again, or import "
            f"{module} in Python first"
        )
    return find(kind, name)


def name_of(kind: str, entry: Any) -> str:
    """The registered name of an entry, which is registered first if need be.

    Args:
      entry: a name, or an object; one of the same name that is not this repository's, as of a cell that was run
        again, is replaced.

    Raises:
      UnknownNameError: a name that nothing has. ValueError: an object that cannot be used, or a name that is taken.
    """
    if isinstance(entry, str):
        find(kind, entry)
        return entry
    registered = KINDS[kind].registered
    for name, other in registered.items():
        if other is entry:
            return name
    name = getattr(entry, "name", None) or getattr(_code(entry), "__qualname__", "").rpartition(".")[2]
    if not re.fullmatch(r"[A-Za-z_][\w.]*", name.rpartition(":")[2]):
        raise ValueError(f"{kind} '{name}' needs a name that can be typed, as in as_schedule(f, name='mine')")
    if name in _OURS[kind]:
        raise ValueError(f"another {kind} is called '{name}'; give yours another name")
    adopted = KINDS[kind].check(name, entry)
    registered.pop(name, None)
    registered[name] = adopted
    return name


def offered(kind: str) -> list[str]:
    """Names that installed packages offer."""
    return list(_entry_points(KINDS[kind].group))


def definitions(names: Iterable[tuple[str, str]]) -> Definitions:
    """Kind -> name -> what defines the object, of those among (kind, name) that are not this repository's.

    Of a module's object: its place and the SHA-256 of the module's file. Of a script's or notebook's: its source.
    """
    found: dict[str, dict[str, dict[str, str]]] = {}
    for kind, name in names:
        if not is_ours(kind, name):
            found.setdefault(kind, {})[name] = _definition(_code(KINDS[kind].registered[name]))
    return found


def check_defined(stored: Definitions) -> None:
    """Refuse with a ValueError, naming it, an object of a file that this process has not, or has another one of."""
    names = [(kind, name) for kind, own in stored.items() for name in own]
    for kind, name in names:
        try:
            known(kind, name)
        except UnknownNameError:
            raise ValueError(
                f"it uses {kind} '{name}', which no package offers; run the script or notebook that defined it"
            ) from None
    check_unchanged(stored, definitions(names))


def check_unchanged(then: Definitions, now: Definitions) -> None:
    """Refuse with a ValueError, naming it, an object whose two definitions differ."""
    for kind, own in then.items():
        for name, definition in own.items():
            if now.get(kind, {}).get(name, definition) != definition:
                raise ValueError(
                    f"{kind} '{name}' is not the one that the study was trained with; put back what it was, or give "
                    "the new one another name"
                )


def is_typed(task: str) -> bool:
    """Whether a task is a simulator's environment of a person's own, ``bridge:module:function``."""
    return task.startswith(envs.BRIDGE) and ":" in task.removeprefix(envs.BRIDGE).removeprefix(NATIVE)


def _code(entry: Any) -> Any:
    """The function or class that an entry consists of."""
    if isinstance(entry, envs.Task):
        return type(entry.env)
    fields = (getattr(entry, name) for name in ("make", "adjust", "value") if hasattr(entry, name))
    return inspect.unwrap(next(fields, entry))


def _definition(code: Any) -> dict[str, str]:
    module = str(getattr(code, "__module__", None))
    file = getattr(sys.modules.get(module), "__file__", None)
    place = f"{module}:{getattr(code, '__qualname__', '')}"
    if module.partition(".")[0] in ("aesjax", "agents", "envs"):  # ours under another name; the commit defines it
        return {"object": place}
    if module != "__main__" and file:
        return {"object": place, "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()}
    try:
        return {"source": inspect.getsource(code)}
    except (OSError, TypeError):  # typed at a prompt: equal to itself alone
        return {"source": repr(code)}


def _entry_points(group: str) -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=group)}


def _imported(kind: str, name: str, place: str) -> Any:
    """The object at ``module:attribute``."""
    module, _, attribute = place.partition(":")
    if os.getcwd() not in sys.path:  # the console script does not look here by itself
        sys.path.append(os.getcwd())
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            if not part or not hasattr(found, part):
                public = [n for n in dir(found) if not n.startswith("_")]
                raise ValueError(unknown(f"attribute of {module} ({getattr(found, '__file__', None)})", public, part))
            found = getattr(found, part)
        return found
    except ModuleNotFoundError as error:
        looked = "; looked where Python looks and in the current directory" if error.name == module else ""
        typed = f"; type '{module[:-3]}:{attribute}', without .py" if module.endswith(".py") else ""
        reason = f"there is no module '{error.name}'{looked}{typed}"
    except (Exception, SystemExit) as error:  # a stranger's module may raise anything
        own = type(error) is ValueError and str(error).startswith("unknown attribute")
        reason = str(error) if own else f"importing '{module}' failed with {type(error).__name__}: {error}"
    raise ValueError(f"{kind} '{name}' cannot be used: " + " ".join(reason.split()))
