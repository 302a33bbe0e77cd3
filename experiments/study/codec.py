"""Conversion of dataclasses to JSON and back by their annotations; custom objects are read as stand-ins."""

import dataclasses
from collections import namedtuple
from collections.abc import Mapping
from typing import Any, get_type_hints

from aesjax.adaptations import Adaptation, AdaptationFactory
from aesjax.factory import Options
from aesjax.registry import lookup
from aesjax.schedules import DriftProxy, ProxyFactory, Schedule, ScheduleFactory
from aesjax.typed import require, typed
from agents import CarrierSpec
from experiments.study.method import KINDS, Control, Method, source_of


def encode(value: Any) -> Any:
    """Plain JSON of a value: dataclasses without default fields, and objects by their definition."""
    if isinstance(value, Method):
        return _method_json(value)
    if isinstance(value, DriftProxy):
        return _defined("proxy", value.factory, {"q": value.q}, {}) | ({"source": value.source} if value.source else {})
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
    """Complete definition of a method: all options, and the source texts of custom objects."""
    schedule, signal = (
        each and _defined("schedule", each.factory, each.given, each.factory.signature.defaults)
        for each in (method.schedule, method.signal)
    )
    control = method.control and {**vars(method.control), "of": _method_json(method.control.of)}
    given = {
        "schedule": schedule,
        "adaptations": [_defined("adaptation", a.factory, a.given, a.factory.options) for a in method.adaptations],
        "proxy": method.proxy and encode(method.proxy),
        "signal": signal,
        "control": control,
        "label": method.label,
        "source": method.source,
        "coupling": method.coupling,
        "hyper": dict(method.hyper),
    }
    carrier = {"carrier": _defined("carrier", method.carrier, {}, {})}
    return carrier | {name: value for name, value in given.items() if value}


def _defined(kind: str, entry: Any, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Name, given options and defaults of an object; for a custom object also its source text."""
    data: dict[str, Any] = {"name": entry.name}
    data |= {"given": dict(given)} if given else {}
    source = source_of(kind, entry)
    rest = {name: value for name, value in defaults.items() if name not in given or source is not None}
    data |= {"defaults": rest} if rest else {}
    if source is not None:
        data |= {"source_text": source, "traits": {name: getattr(entry, name) for name in _TRAITS[kind]}}
        data |= {"defaults": entry.hyper()._asdict()} if kind == "carrier" else {}
    return data


#: Fields of a custom object that tables and readers need.
_TRAITS = {
    "carrier": ("label", "baseline"),
    "schedule": ("label", "relative", "uses_proxy"),
    "adaptation": ("lever", "uses_signal", "units"),
    "proxy": ("label",),
}


def decode(wanted: Any, data: Any, where: str = "") -> Any:
    """The value of an annotated type in JSON.

    Raises:
      ValueError: names the field, the allowed values and the value.
    """
    return typed(wanted, data, where, _object)


def _object(wanted: Any, data: Any, where: str) -> Any:
    if dataclasses.is_dataclass(wanted) and wanted not in (Method, DriftProxy):
        return _fields(wanted, data, where)
    try:
        return (_method if wanted is Method else _proxy)(data)
    except KeyError as error:
        raise ValueError(f"{where} lacks {error}; got {data!r:.60}") from None
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{where} must be a definition ({error}); got {data!r:.60}") from None


def _fields(wanted: Any, data: Any, where: str) -> Any:
    require(isinstance(data, dict), where, "an object", data)
    fields = {field.name: field for field in dataclasses.fields(wanted) if field.metadata.get("json", True)}
    needed = {name for name, field in fields.items() if _default(field) is dataclasses.MISSING}
    if odd := sorted({*data} - fields.keys() | needed - {*data}):
        raise ValueError(f"its fields differ from those of this version: {', '.join(odd)}")
    hints = get_type_hints(wanted, include_extras=True)
    inside = f"{where}." if where else ""
    return wanted(**{name: decode(hints[name], value, f"{inside}{name}") for name, value in data.items()})


def _method(data: Any) -> Method:
    control = None
    if "control" in data:
        control = Control(data["control"]["name"], _method(data["control"]["of"]), data["control"]["blocks"])
    schedule, signal = (
        Schedule(_entry("schedule", data[name]), data[name].get("given", {})) if name in data else None
        for name in ("schedule", "signal")
    )
    return Method(
        _entry("carrier", data["carrier"]),
        schedule,
        [Adaptation(_entry("adaptation", each), each.get("given", {})) for each in data.get("adaptations", ())],
        proxy=_proxy(data["proxy"]) if "proxy" in data else None,
        signal=signal,
        control=control,
        **{name: data[name] for name in ("label", "source", "coupling", "hyper") if name in data},
    )


def _proxy(data: Any) -> DriftProxy:
    return DriftProxy(_entry("proxy", data), data["given"]["q"], data.get("source"))


def _entry(kind: str, data: Any) -> Any:
    """The registered object of a definition, or a stand-in for a custom object with its name and options."""
    source = data.get("source_text")
    if source is None:
        return lookup(kind, KINDS[kind].registered, data["name"])
    defaults = data.get("defaults", {})
    signature = Options(defaults, tuple(name for name in data.get("given", {}) if name not in defaults), frozenset())
    return _stand_in(kind, data["name"], data["traits"], signature, source)


def _stand_in(kind: str, name: str, traits: Mapping[str, Any], signature: Options, source: str) -> Any:
    """Stand-in with the name and options of a custom object, for tables; it cannot be trained."""

    def absent(*_: Any, **__: Any) -> Any:
        raise ValueError(f"{kind} '{name}' is a custom object: give the study that was trained, or its command")

    absent.source_text = source  # type: ignore[attr-defined]
    if kind == "carrier":
        known = signature.defaults
        hyper = namedtuple("Hyper", known, defaults=known.values())  # type: ignore[misc]
        return CarrierSpec(make=absent, config=absent, hyper=hyper, check=absent, **traits)  # type: ignore[arg-type]
    if kind == "proxy":
        fields = {"update": "td_error", "fresh": "fresh_td_error"}
        return ProxyFactory(name, absent, signature, {}, fields, **traits)
    if kind == "adaptation":
        return AdaptationFactory(name, absent, signature, {}, tuple, **traits)
    traits = dict(traits)
    signature = signature._replace(others=frozenset(["proxy"] * traits.pop("uses_proxy")))
    return ScheduleFactory(name, absent, signature, {}, needs=frozenset(), source="update", **traits)
