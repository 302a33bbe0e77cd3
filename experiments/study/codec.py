"""Conversion of dataclasses to JSON and back by their annotations; custom objects are read as stand-ins."""

import dataclasses
from collections import namedtuple
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, get_type_hints

from aesjax.adaptations import Adaptation, AdaptationFactory
from aesjax.factory import Options
from aesjax.registry import lookup
from aesjax.schedules import DriftProxy, ProxyFactory, Schedule, ScheduleFactory
from aesjax.typed import require, typed
from agents import CarrierSpec
from envs.patterns import Pattern
from experiments.study.method import KINDS, Control, Method, source_of

#: Objects of this process by kind and name, see `experiments.study.config.at_hand`.
Objects = Mapping[tuple[str, str], Any]


def encode(value: Any) -> Any:
    """Plain JSON of a value: dataclasses without default fields, and objects by their definition."""
    if isinstance(value, Method):
        return _method_json(value)
    if isinstance(value, DriftProxy):
        return _defined(value.factory, {"q": value.q}) | ({"source": value.source} if value.source else {})
    if dataclasses.is_dataclass(value):
        fields = [field for field in dataclasses.fields(value) if field.metadata.get("json", True)]
        pairs = [(field, getattr(value, field.name)) for field in fields]
        return {f.name: encode(given) for f, given in pairs if given != _default(f) or f.name == "format"}
    if isinstance(value, Mapping):
        return {name: encode(given) for name, given in value.items()}
    return [encode(each) for each in value] if isinstance(value, list | tuple) else value


def _default(field: dataclasses.Field) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _method_json(method: Method) -> dict[str, Any]:
    """Complete definition of a method: all options, and the definitions of custom objects."""
    signal = method.signal
    if signal is not None:  # without a default that only names the proxy, which the method's entry contains
        signal = dataclasses.replace(method, signal=Schedule(signal.factory, signal.given)).signal
    proxy = method.proxy  # of the schedule, else of the signal, which may consist of it alone
    control = method.control and {**vars(method.control), "of": _method_json(method.control.of)}
    given = {
        "schedule": method.schedule and _complete(method.schedule),
        "adaptations": [*map(_complete, method.adaptations)],
        "proxy": proxy and _defined(proxy.factory, {"q": proxy.q}),
        "signal": signal and _complete(signal),
        "control": control,
        "label": method.label,
        "source": proxy and proxy.source,
        "coupling": method.coupling,
        "hyper": dict(method.hyper),
    }
    carrier = {"carrier": _defined(method.carrier)}
    return carrier | {name: value for name, value in given.items() if value}


def _complete(made: Schedule | Adaptation) -> dict[str, Any]:
    return _defined(made.factory, made.given, made.factory.signature.defaults)


def _defined(entry: Any, given: Mapping[str, Any] = {}, defaults: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Name, given options and defaults of a factory or carrier; for a custom one also its definitions."""
    data: dict[str, Any] = {"name": entry.name}
    data |= {"given": dict(given)} if given else {}
    sources = source_of(entry.kind, entry)
    rest = {name: value for name, value in defaults.items() if name not in given or sources is not None}
    data |= {"defaults": rest} if rest else {}
    if sources is not None:
        data |= {"sources": dict(sources), "traits": {name: getattr(entry, name) for name in entry.traits}}
        data |= {"defaults": entry.hyper()._asdict()} if entry.kind == "carrier" else {}
    return data


#: Options at the shell that give a custom object, where they are not named by its kind.
_OPTIONS = {"carrier": "carriers", "pattern": "patterns", "schedule": "schedules", "adaptation": "schedules"}
_FACTORIES = {factory.kind: factory for factory in (ScheduleFactory, AdaptationFactory, ProxyFactory)}


def decode(wanted: Any, data: Any, where: str = "", objects: Objects = MappingProxyType({})) -> Any:
    """The value of an annotated type in JSON.

    Args:
      objects: replace the stand-ins of custom objects with equal definitions.

    Raises:
      ValueError: names the field, the allowed values and the value.
    """
    return typed(wanted, data, where, partial(_object, objects))


def _object(objects: Objects, wanted: Any, data: Any, where: str) -> Any:
    if dataclasses.is_dataclass(wanted) and wanted not in (Method, DriftProxy):
        return _fields(objects, wanted, data, where)
    try:
        return (_method if wanted is Method else _proxy)(objects, data)
    except KeyError as error:
        raise ValueError(f"{where} lacks {error}; got {data!r:.60}") from None
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{where} must be a definition ({error}); got {data!r:.60}") from None


def _fields(objects: Objects, wanted: Any, data: Any, where: str) -> Any:
    require(isinstance(data, dict), where, "an object", data)
    fields = {field.name: field for field in dataclasses.fields(wanted) if field.metadata.get("json", True)}
    needed = {name for name, field in fields.items() if _default(field) is dataclasses.MISSING}
    if odd := sorted({*data} - fields.keys() | needed - {*data}):
        raise ValueError(f"its fields differ from those of this version: {', '.join(odd)}")
    hints = get_type_hints(wanted, include_extras=True)
    inside = f"{where}." if where else ""
    return wanted(**{name: decode(hints[name], value, f"{inside}{name}", objects) for name, value in data.items()})


def _method(objects: Objects, data: Any) -> Method:
    control = None
    if "control" in data:
        control = Control(data["control"]["name"], _method(objects, data["control"]["of"]), data["control"]["blocks"])
    schedule, signal = (
        Schedule(_entry("schedule", data[name], objects), data[name].get("given", {})) if name in data else None
        for name in ("schedule", "signal")
    )
    adaptations = data.get("adaptations", ())
    method = Method(
        _entry("carrier", data["carrier"], objects),
        schedule,
        [Adaptation(_entry("adaptation", each, objects), each.get("given", {})) for each in adaptations],
        signal=signal,
        control=control,
        **{name: data[name] for name in ("label", "coupling", "hyper") if name in data},
    )
    if "proxy" not in data:
        return method
    return method.reading(_proxy(objects, {**data["proxy"], "source": data.get("source")}))


def _proxy(objects: Objects, data: Any) -> DriftProxy:
    return _entry("proxy", data, objects)(data["given"]["q"], data.get("source"))


def _entry(kind: str, data: Any, objects: Objects) -> Any:
    """The registered object of a definition; for a custom object see `stored`."""
    if "sources" not in data:
        return lookup(kind, KINDS[kind].registered, data["name"])
    return stored(kind, data["name"], data["sources"], objects, data)


def stored(kind: str, name: str, sources: Mapping[str, str], objects: Objects, data: Mapping[str, Any]) -> Any:
    """The custom object of a definition, if it is one of ``objects``, else a stand-in for tables."""
    entry = objects.get((kind, name))
    now = None if entry is None else source_of(kind, entry)
    if now == sources:
        return entry

    def absent(*_: Any, **__: Any) -> Any:
        check_sources(name, sources, now or sources)
        raise ValueError(absence(kind, name, sources))

    absent.sources = sources  # type: ignore[attr-defined]
    if kind == "pattern":
        return Pattern(absent, jumps=False)
    defaults, traits = data.get("defaults", {}), dict(data["traits"])
    if kind == "carrier":
        hyper = namedtuple("Hyper", defaults, defaults=defaults.values())  # type: ignore[misc]
        return CarrierSpec(make=absent, config=absent, hyper=hyper, check=absent, **traits)  # type: ignore[arg-type]
    required = tuple(option for option in data.get("given", {}) if option not in defaults)
    signature = Options(defaults, required, frozenset(["proxy"] * traits.pop("uses_proxy", False)))
    return _FACTORIES[kind](name, absent, signature, {}, **traits)


def check_sources(name: str, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise a ValueError if definitions of an object differ from those stored with a study."""
    if differing := [key for key in {**then, **now} if then.get(key) != now.get(key)]:
        others = f" and {len(differing) - 1} more" if differing[1:] else ""
        raise ValueError(
            f"'{name}' differs from the object that the study was trained with, in {differing[0]}{others}; "
            "restore it or rename the new one"
        )


def absence(kind: str, name: str, sources: Mapping[str, str]) -> str:
    """Message about a custom object of a stored study that this process does not have."""
    place = next((text for text in (name, next(iter(sources), "")) if ":" in text), "MODULE:NAME")
    option = _OPTIONS.get(kind, kind)
    argument = "methods" if option == "schedules" else option
    return (
        f"{kind} '{name}' is a custom object, which a folder does not hold; add --{option} {place}, or in Python open "
        f"the study by Results.open(FOLDER, {argument}=...)"
    )
