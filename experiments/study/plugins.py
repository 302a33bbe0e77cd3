"""Objects of a study by name: registered ones, entry points of installed packages, and ``module:attribute``.

Objects from outside are never registered: a study holds them, and a text that names one is made of its place.
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import metadata
from typing import Any, NamedTuple

import envs
from aesjax.adaptations import ADAPTATIONS, Adaptation, AdaptationFactory
from aesjax.registry import UnknownNameError, unknown
from aesjax.schedules import PROXIES, SCHEDULES, DriftProxy, Schedule, as_proxy, as_schedule
from agents import CARRIERS, CarrierSpec
from envs.adopt import adopt_pattern, adopt_task


class _Kind(NamedTuple):
    """Objects that one option of the command line accepts."""

    group: str  # of entry points
    registered: Mapping[str, Any]  # name -> object
    adopt: Callable[[Any], Any]  # any accepted form -> the object, or ValueError


# Of each function one factory, so that what is named twice is equal.
_schedule_of, _proxy_of = cache(as_schedule), cache(as_proxy)


def _schedule(given: Any) -> Schedule:
    if isinstance(given, Schedule):
        return given
    return (_schedule_of if inspect.isfunction(given) else as_schedule)(given)()


def _proxy(given: Any) -> DriftProxy:
    if isinstance(given, DriftProxy):
        return given
    return (_proxy_of if inspect.isfunction(given) else as_proxy)(given)()


def _adaptation(given: Any) -> Adaptation:
    made = given() if isinstance(given, AdaptationFactory) else given
    return _of_type(Adaptation, made)


def _of_type(wanted: type, given: Any) -> Any:
    if not isinstance(given, wanted):
        raise ValueError(f"it must be of type {wanted.__name__}; got {type(given).__name__}")
    return given


def _named(entry: Any) -> str:
    return getattr(entry, "name", "") or getattr(code_of(entry), "__qualname__", "").rpartition(".")[2]


KINDS: dict[str, _Kind] = {
    "schedule": _Kind("aesjax.schedules", SCHEDULES, _schedule),
    "adaptation": _Kind("aesjax.adaptations", ADAPTATIONS, _adaptation),
    "proxy": _Kind("aesjax.proxies", PROXIES, _proxy),
    "task": _Kind("aesjax.tasks", envs.TASKS, lambda given: adopt_task(_named(given), given)),
    "pattern": _Kind("aesjax.patterns", envs.PATTERNS, lambda given: adopt_pattern(_named(given), given)),
    "carrier": _Kind("aesjax.carriers", CARRIERS, partial(_of_type, CarrierSpec)),
}


def find(kind: str, given: Any) -> Any:
    """The object of a kind of `KINDS` that a name or an object stands for; ``module:attribute`` is imported.

    Raises:
      UnknownNameError: nothing has this name.
      ValueError: something has it, but cannot be imported or is not what it should be; one sentence.
    """
    group, registered, adopt = KINDS[kind]
    name, entry = given if isinstance(given, str) else _named(given), given
    if isinstance(given, str):
        if given in registered or (kind == "task" and given.startswith(envs.PREFIXES)):
            return partial(envs.make, given) if kind == "task" else adopt(registered[given])
        points, (known, colon, options) = _entry_points(group), given.partition(":")
        if colon and known in registered:
            raise ValueError(f"{kind} '{given}' is a name with options; write {known}({options.replace(':', ', ')})")
        if given not in points and ":" not in given:
            names = (*registered, *points)
            text = envs.unknown_task(given, names) if kind == "task" else unknown(kind, names, given)
            raise UnknownNameError(f"{text}; one of your own is typed as module:name")
        entry = _imported(kind, given, points[given].value if given in points else given)
    try:
        return adopt(entry)
    except ValueError as error:
        raise ValueError(f"{kind} '{name}' cannot be used: {error}") from None


def name_of(kind: str, entry: Any) -> str:
    """The text by which another process finds an object.

    Raises:
      ValueError: there is none, as of an object of a notebook's cell.
    """
    group, registered, _ = KINDS[kind]
    for name, other in registered.items():
        if other is entry:
            return name
    code = code_of(entry)
    for module in [getattr(code, "__module__", ""), *sys.modules]:
        known = {} if module == "__main__" else getattr(sys.modules.get(module), "__dict__", {})
        for name, other in list(known.items()):
            if other is entry or (other is code and _makes(kind, code, entry)):
                place = f"{module}:{name}"
                return next((n for n, point in _entry_points(group).items() if point.value == place), place)
    raise ValueError(
        f"{kind} '{_named(entry)}' is an object of this process, which no command finds; save it in a module and give "
        "its name, module:name"
    )


def _makes(kind: str, code: Any, entry: Any) -> bool:
    """Whether ``code`` is a plain function of which `find` makes ``entry``."""
    if kind not in ("schedule", "proxy", "pattern") or not inspect.isfunction(code):
        return False
    made = KINDS[kind].adopt(code)
    return getattr(made, "factory", made) == entry


def source_of(kind: str, entry: Any) -> str | None:
    """The source text of an object from outside this repository; None of a registered one, which the commit defines.

    An object that only combines code of this repository, such as a carrier with another weight, is described by its
    fields.
    """
    code = code_of(entry)
    if any(entry is own for own in KINDS[kind].registered.values()):
        return None
    if hasattr(code, "source_text"):  # of a stand-in
        return code.source_text
    if _package(code) in ("aesjax", "agents", "envs"):
        return re.sub(r" at 0x[0-9a-f]+", "", repr(entry))
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):  # typed at a prompt: equal to itself alone
        return repr(code)


def offered(kind: str) -> list[str]:
    """Names that installed packages offer."""
    return list(_entry_points(KINDS[kind].group))


def code_of(entry: Any) -> Any:
    """The function or class that an object consists of."""
    if isinstance(entry, envs.Task):
        return getattr(entry.env, "code", type(entry.env))
    fields = (getattr(entry, name) for name in ("make", "adjust", "value") if hasattr(entry, name))
    return inspect.unwrap(next(fields, entry))


def _package(code: Any) -> str:
    return str(getattr(code, "__module__", None)).partition(".")[0]


def _entry_points(group: str) -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=group)}


def _imported(kind: str, name: str, place: str) -> Any:
    """The object at ``module:attribute``."""
    module, _, attribute = place.partition(":")
    if os.getcwd() not in sys.path:  # where the console script does not look
        sys.path.append(os.getcwd())
    try:
        entry = importlib.import_module(module)
        for part in attribute.split("."):
            if not part or not hasattr(entry, part):
                public = [n for n in dir(entry) if not n.startswith("_")]
                raise ValueError(unknown(f"attribute of {module} ({getattr(entry, '__file__', None)})", public, part))
            entry = getattr(entry, part)
        return entry
    except ModuleNotFoundError as error:
        looked = "; looked where Python looks and in the current directory" if error.name == module else ""
        typed = f"; type '{module[:-3]}:{attribute}', without .py" if module.endswith(".py") else ""
        reason = f"there is no module '{error.name}'{looked}{typed}"
    except (Exception, SystemExit) as error:  # a stranger's module may raise anything
        own = type(error) is ValueError and str(error).startswith("unknown attribute")
        reason = str(error) if own else f"importing '{module}' failed with {type(error).__name__}: {error}"
    raise ValueError(f"{kind} '{name}' cannot be used: " + " ".join(reason.split()))
