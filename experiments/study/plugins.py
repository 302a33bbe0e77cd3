"""Schedules, adaptations, proxies, tasks, patterns and carriers that live elsewhere: found, checked, registered.

A name is looked up among what is registered, then among the entry points of installed packages (group
``aesjax.schedules``, ``aesjax.adaptations``, ``aesjax.proxies``, ``aesjax.tasks``, ``aesjax.patterns``,
``aesjax.carriers``), then, if it has the form ``module:attribute``, where Python finds modules and in the current
directory. Nothing is imported before its name is used. An object itself, of a script or a notebook cell, is registered
under its own name. The origin of everything a study used is written into its configuration. A configuration that is
read imports nothing by itself: only entry points of installed packages and modules passed to `trust`.
"""

import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
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

Origins = Mapping[str, Mapping[str, Mapping[str, str | None]]]  # kind -> name -> origin, as a configuration has it


class _Kind(NamedTuple):
    """Objects that one option of the command line accepts."""

    group: str  # of entry points
    registered: Any  # name -> entry
    check: Callable[[str, Any], Any]  # name, object -> the entry to register


class Origin(NamedTuple):
    """Where a plugged-in object came from."""

    object: str | None  # module:attribute; None: a script's or a notebook's own
    package: str | None  # the installed package that offers it; None: a module on the path
    version: str | None
    sha256: str | None = None  # of the module's file or of the source, where no version says what is in it
    source: str | None = None  # of an object that no module holds

    def to_json(self) -> dict[str, str | None]:
        """Plain JSON, without a digest or source where there is none."""
        return {n: value for n, value in self._asdict().items() if n not in ("sha256", "source") or value is not None}

    @property
    def sentence(self) -> str:
        """For messages: the object, and its package if there is one."""
        if self.object is None:
            return "a script or notebook"
        return self.object if self.package is None else f"{self.object} of {self.package} {self.version}"


def _schedule(name: str, plugin: Any) -> ScheduleFactory:
    factory = as_schedule(plugin, name=name) if not isinstance(plugin, ScheduleFactory) else plugin
    factory = dataclasses.replace(factory, name=name)
    taken = {known.label: other for other, known in SCHEDULES.items() if ("schedule", other) not in _ORIGINS}
    if factory.label in taken:
        raise ValueError(
            f"schedule '{name}': its label '{factory.label}' is that of '{taken[factory.label]}'; declare another"
        )
    return factory


def _proxy(name: str, plugin: Any) -> Any:
    return dataclasses.replace(as_proxy(plugin, name=name), name=name)


def _of_type(kind: str, wanted: type) -> Callable[[str, Any], Any]:
    def checked(name: str, plugin: Any) -> Any:
        if not isinstance(plugin, wanted):
            raise ValueError(f"{kind} '{name}' must be of type {wanted.__name__}; got {type(plugin).__name__}")
        return plugin

    return checked


KINDS: dict[str, _Kind] = {
    "schedule": _Kind("aesjax.schedules", SCHEDULES, _schedule),
    "adaptation": _Kind("aesjax.adaptations", ADAPTATIONS, _of_type("adaptation", AdaptationFactory)),
    "proxy": _Kind("aesjax.proxies", PROXIES, _proxy),
    "task": _Kind("aesjax.tasks", envs.TASKS, adopt_task),
    "pattern": _Kind("aesjax.patterns", envs.PATTERNS, adopt_pattern),
    "carrier": _Kind("aesjax.carriers", CARRIERS, _of_type("carrier", CarrierSpec)),
}
_ORIGINS: dict[tuple[str, str], Origin] = {}  # (kind, name) of everything that was plugged in
_TRUSTED: set[str] = set()  # modules that a configuration may import
_READ: ContextVar[Origins | None] = ContextVar("read", default=None)  # plug-ins of the configuration being read


def name_of(kind: str, entry: Any) -> str:
    """The registered name of an entry, which is registered first if need be.

    Args:
      entry: a name, or an object of a module, a script or a notebook cell.

    Raises:
      UnknownNameError: a name that nothing has. ValueError: an object that cannot be used, or a name that is taken.
    """
    if isinstance(entry, str):
        find(kind, entry)
        return entry
    registered = KINDS[kind].registered
    for name, known in registered.items():
        if known is entry or _MADE.get((kind, name)) is entry:
            return name
    module, attribute = getattr(entry, "__module__", None), getattr(entry, "__qualname__", None)
    made = entry.make if isinstance(entry, ScheduleFactory) else entry
    module, attribute = getattr(made, "__module__", module), getattr(made, "__qualname__", attribute)
    name = getattr(entry, "name", None) or str(attribute or type(entry).__name__).rpartition(".")[2]
    if not re.fullmatch(r"[A-Za-z_][\w.]*", name.rpartition(":")[2]):
        raise ValueError(f"{kind} '{name}' needs a name that can be typed, as in as_schedule(f, name='mine')")
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if attribute is None:  # a task or a carrier, which does not know where it was made
        origin = Origin(None, None, None)
    elif module not in (None, "__main__") and file and "<" not in str(attribute):
        origin = Origin(f"{module}:{attribute}", None, None, _digest(Path(file)))
    else:
        source = _source(made)
        origin = Origin(None, None, None, hashlib.sha256(source.encode()).hexdigest(), source)
    if name in registered:
        own = _ORIGINS.get((kind, name))
        if own is None:
            raise ValueError(f"another {kind} is called '{name}'; give yours another name")
        del registered[name]  # a cell that was run again
    registered[name] = KINDS[kind].check(name, entry)
    _ORIGINS[kind, name], _MADE[kind, name] = origin, entry
    return name


_MADE: dict[tuple[str, str], Any] = {}  # (kind, name) -> the object that was registered under it


def _source(entry: Any) -> str:
    """The source of an object, or what it prints as where there is none."""
    try:
        return inspect.getsource(entry)
    except (OSError, TypeError):
        return repr(entry)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def find(kind: str, name: str) -> Any:
    """The entry of a kind of `KINDS` that is called ``name``, plugged in first if need be.

    Raises:
      UnknownNameError: nothing has this name.
      ValueError: something has it, but cannot be imported or is not what it should be; one sentence.
    """
    known = KINDS[kind]
    if name in known.registered:
        return known.registered[name]
    if kind == "task" and name.startswith(envs.BRIDGE):
        if _READ.get() is None and _bridged(name):  # typed, not stored
            trust(_bridged(name).partition(":")[0])
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
        for name, stored in names.items():
            mine, theirs = now.get(kind, {}).get(name, {}).get("sha256"), stored.get("sha256")
            if mine and theirs and mine != theirs:
                return (
                    f"the file of {kind} '{name}' was edited since the study began (SHA-256 {theirs[:12]} then, "
                    f"{mine[:12]} now)"
                )
    return ""


def trust(modules: str) -> None:
    """Let stored configurations import these modules, a comma between two."""
    _TRUSTED.update(modules.split(","))


def modules_of(task: str, origins: Origins) -> str:
    """The modules of a study that no package offers, as `trust` takes them."""
    stored = [str(o["object"]) for names in origins.values() for o in names.values() if not o["package"]]
    return ",".join(sorted({place.partition(":")[0] for place in [*stored, _bridged(task)] if ":" in place}))


def _bridged(task: str) -> str:
    """``module:function`` of a simulator's environment of one's own; empty for other tasks."""
    place = task.removeprefix(envs.BRIDGE)
    return "" if place == task or place.startswith(NATIVE) else place


def check_bridged(task: str) -> None:
    """Refuse a stored task whose simulation would run a module that nobody trusts."""
    module, _, function = _bridged(task).partition(":")
    if function and module not in _TRUSTED:
        raise ValueError(
            f"the study's task runs {module}:{function}; to run that code, type aesjax --plugins {module} "
            "before the command"
        )


def _check_trusted(kind: str, name: str, place: str) -> None:
    """Refuse to import a module that a configuration names and nobody trusts, or that was edited since."""
    origins, point, known = _READ.get(), _entry_points(KINDS[kind].group).get(name), _ORIGINS.get((kind, name))
    if point and (point.dist is None or Path(str(point.dist.locate_file(""))).resolve() == Path.cwd()):
        point = None  # a folder that Python started in is not installed
    if origins is None or place in (point and point.value, known and known.object):
        return
    module, stored = place.partition(":")[0], origins.get(kind, {}).get(name, {})
    if module not in _TRUSTED:
        recorded = f", SHA-256 {str(stored['sha256'])[:12]}" if stored.get("sha256") else ""
        raise ValueError(
            f"the study uses {kind} '{name}' of {place}{recorded}; to run that code, type aesjax --plugins {module} "
            "before the command"
        )
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.has_location:
        now = {kind: {name: {"sha256": _digest(Path(str(spec.origin)))}}}
        if difference := edited({kind: {name: stored}}, now):
            raise ValueError(difference)


@contextmanager
def restored(origins: Origins) -> Iterator[None]:
    """Plug in everything that a configuration names; what is parsed in the block imports nothing else.

    Raises:
      ValueError: something is not there any more or not trusted; one sentence that names it and its origin.
    """
    token = _READ.set(origins)
    try:
        _restore(origins)
        yield
    finally:
        _READ.reset(token)


def _restore(origins: Origins) -> None:
    for kind, names in origins.items():
        for name, stored in names.items():
            if stored["object"] is None:
                _check_defined(kind, name, stored)
                continue
            origin = Origin(str(stored["object"]), stored["package"], stored["version"])
            try:
                try:
                    find(kind, name)
                except UnknownNameError:  # its package may have stopped offering the name, but still hold the object
                    _plug_in(kind, name, origin)
            except ValueError as error:
                raise ValueError(
                    f"the study uses {kind} '{name}', which came from {origin.sentence} and cannot be used: {error}"
                ) from None
            _check_same(kind, name, origin)


def _check_defined(kind: str, name: str, stored: Mapping[str, Any]) -> None:
    """Refuse a study whose object is a script's or notebook's, unless this process has defined it."""
    now = _ORIGINS.get((kind, name))
    if now is None:
        raise ValueError(
            f"the study uses {kind} '{name}', which a script or notebook defined; run the study there again, or save "
            f"its source, which {'is in config.json' if stored.get('source') else 'was not recorded'}, as a module"
        )
    if now.sha256 != stored.get("sha256"):
        raise ValueError(f"the study uses {kind} '{name}' as it was before it was edited; name the new one otherwise")


def _check_same(kind: str, name: str, origin: Origin) -> None:
    """Refuse another thing of the same name than the study used, or another version of it."""
    now = origin_of(kind, name)
    if now is None or now[:3] != origin[:3]:  # a file may have been edited since, which matters to `edited`
        what = "one of this repository" if now is None else now.sentence
        raise ValueError(f"the study uses {kind} '{name}' of {origin.sentence}; what has this name now is {what}")


def _entry_points(group: str) -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=group)}


def _plug_in(kind: str, name: str, origin: Origin) -> None:
    assert origin.object is not None
    plugin = _imported(kind, name, origin.object)
    KINDS[kind].registered[name] = KINDS[kind].check(name, plugin)
    if origin.package is None:
        file = getattr(sys.modules[origin.object.partition(":")[0]], "__file__", None)
        origin = origin._replace(sha256=None if file is None else _digest(Path(file)))
    _MADE[kind, name] = plugin
    _ORIGINS[kind, name] = origin


def _imported(kind: str, name: str, place: str) -> Any:
    """The object at ``module:attribute``."""
    module, _, attribute = place.partition(":")
    if os.getcwd() not in sys.path:  # the console script does not look here by itself
        sys.path.append(os.getcwd())
    _check_trusted(kind, name, place)
    refuse = partial(_refused, kind, name)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = f"there is no module '{error.name}'"
        looked = "; looked where Python looks and in the current directory" if error.name == module else ""
        typed = f"; type '{module[:-3]}:{attribute}', without .py" if module.endswith(".py") else ""
        raise refuse(missing + looked + typed) from None
    except (Exception, SystemExit) as error:  # whatever a stranger's module raises while it is imported
        raise refuse(f"importing '{module}' failed with {type(error).__name__}: {error}") from None
    for part in attribute.split("."):
        if not part or not hasattr(found, part):
            said = unknown(f"attribute of {module}", _own_names(found), part)
            raise refuse(said + _shadowed(module))
        found = getattr(found, part)
    return found


def _own_names(found: Any) -> list[str]:
    """Public names of an imported object, without modules, classes and functions that it only imports."""
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
