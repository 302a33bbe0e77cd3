"""Text forms of methods, names, seeds and axes: parsed and written, for the shell, TOML files and messages.

The grammar of a method is ``SCHEDULE[:OPTION=VALUE...][+ADAPTATION[:OPTION=VALUE...]...]``, or a control,
``NAME[:blocks=N]:of=METHOD``. Nothing else in the project reads or writes it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aesjax.adaptations import ADAPTATIONS, CONTROLS, driver_of
from aesjax.registry import listed
from aesjax.schedules import SCHEDULES
from aesjax.typed import Count, several, typed
from agents import CarrierSpec
from experiments.study.method import BASELINE, BLOCKS, KINDS, Control, Method, find, name_of, single

LARGEST_SEED = 2**32 - 1
_MOST_SEEDS = 10_000
_TEXTS = ("proxy", "source", "signal", "label")  # options whose values are not numbers


def parse_method(text: str, carrier: str | CarrierSpec) -> Method:
    """A method such as ``aes:proxy=td_mean:lambda_max=inf:coupling=1`` or ``aes_r+window:power=1`` on a carrier.

    A part without ``=`` belongs to the name before it: ``mypkg.mymodule:factory:decay=0.99``. Options of the
    schedule that drives the adaptations are given among those of the schedule.

    Raises:
      UnknownNameError: unknown schedule, proxy or adaptation. ValueError: an unknown option.

    >>> parse_method("aes:lambda_max=0.5+window:power=1", "sac")
    Method(sac, aes(lambda_max=0.5), window(power=1.0))
    """
    if re.split(r"[:+]", text)[0] in CONTROLS:
        return _control(text, carrier)
    first, *parts = re.split(r"\+(?=[A-Za-z_])", text)  # not the sign of an exponent
    schedule, typed = _split(first, (BASELINE, *SCHEDULES))
    options = _options(typed, text, "schedule")
    adaptations = []
    for part in parts:
        name, typed = _split(part, ADAPTATIONS)
        factory = find("adaptation", name).factory
        own = _options(typed, text, "adaptation")
        adaptations.append(factory(**_numbers(f"adaptation '{name}'", own, factory.options)))
    named, source, signal, label = (options.pop(name, None) for name in _TEXTS)
    coupled = _numbers("a method", {"coupling": options.pop("coupling", "0")})["coupling"]
    coupling: Any = bool(coupled) if coupled in (0.0, 1.0) else coupled
    plain = Method(carrier, schedule, adaptations, signal, label, coupling)
    proxy = find("proxy", named or "td_quantile")
    if named is not None or source is not None:
        plain = plain.reading(proxy.factory(proxy.q, source or proxy.source))
    allowed = set() if plain.schedule is None else set(plain.schedule.factory.options)
    allowed |= set() if plain.driver is None else set(plain.driver.factory.options)
    known = {"proxy", "source", "coupling", *allowed} if allowed else ()
    numbers = _numbers(f"schedule '{schedule}'", options, known)
    if plain.schedule is None and plain.driver is not None:  # a baseline has no options, so they belong to the signal
        own = {option: numbers.pop(option) for option in list(numbers) if option != "q"}
        signal = plain.signal or plain.driver.factory()
        plain = replace(plain, signal=signal.updated(own)) if own else plain
    return plain.varied(numbers, proxy)


def text_of(method: Method, named: Callable[[str, Any], str] = name_of) -> str:
    """Text of a method, without its carrier; the inverse of `parse_method`.

    Args:
      named: kind and factory of an object -> its name; by default its importable name.

    Raises:
      ValueError: it has an object without an importable name, hyper-parameters of its carrier, or a signal with another
        value of an option of its schedule.

    >>> text_of(parse_method("aes_c+recent+refresh:threshold=3", "sac"))
    'aes_c+refresh:threshold=3+recent'
    """
    if method.hyper:
        names = ", ".join(method.hyper)
        raise ValueError(f"{names} of carrier '{method.carrier.name}' cannot be written as text; use Python")
    if method.control is not None:
        name, of, blocks = method.control.name, method.control.of, method.control.blocks
        return f"{name}{'' if blocks == BLOCKS else f':blocks={blocks}'}:of={text_of(of, named)}"
    words = [BASELINE if method.schedule is None else named("schedule", method.schedule.factory)]
    if (proxy := method.proxy) is not None:
        words.append(f"proxy={named('proxy', proxy.factory)}")
        words += [] if proxy.source is None else [f"source={proxy.source}"]
    own = {} if method.schedule is None else method.schedule.given
    if method.signal is not None:
        plain = driver_of(method.in_force, method.adaptations)
        if plain is not None and method.signal.factory is not plain.factory:
            words.append(f"signal={named('schedule', method.signal.factory)}")
        if any(own.get(option, value) != value for option, value in method.signal.given.items()):
            raise ValueError(f"{method.signal} with {method.schedule} cannot be written as text; use Python")
        own = {**own, **method.signal.given}
    own = {**own, **({} if proxy is None or proxy.q == 0.9 else {"q": proxy.q})}
    words += [f"{option}={number(value)}" for option, value in own.items()]
    words += ["coupling=1"] if method.coupling else []
    words += [] if method.label is None else [f"label={method.label}"]
    parts = [":".join(words)]
    for each in method.adaptations:
        parts.append(
            ":".join([named("adaptation", each.factory), *(f"{o}={number(value)}" for o, value in each.given.items())])
        )
    return "+".join(parts)


def number(value: float) -> str:
    """Shortest text that parses to the same number."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def parse_methods(carriers: Any, schedules: str | Sequence[str]) -> tuple[Method, ...]:
    """Methods of `--carriers` and `--schedules`: names with options, `baseline`, or all."""
    texts = [BASELINE, *SCHEDULES] if schedules == "all" else _listed(schedules)
    named = parse_names("carrier", "--carriers", carriers)
    return tuple(parse_method(text, carrier) for carrier in named.values() for text in texts)


def parse_method_with_carrier(text: str) -> Method:
    """A method with its carrier, ``sac+aes`` or ``ppo+fixed+refresh``; ``sac`` has the carrier's own schedule.

    >>> text_of(parse_method_with_carrier("sac+recent"))
    'baseline+recent'
    """
    carrier, _, rest = text.partition("+")
    first = re.split(r"[:+]", rest)[0]
    if not rest or first in ADAPTATIONS:
        rest = f"{BASELINE}+{rest}" if rest else BASELINE
    return parse_method(rest, find("carrier", carrier))


def parse_objects(given: Any) -> tuple[Method, ...]:
    """Methods from objects or texts with carriers, without repetitions."""
    parts = list(given) if several(given) else [given]
    methods: list[Method] = []
    for part in parts:
        method = parse_method_with_carrier(part) if isinstance(part, str) else part
        if not isinstance(method, Method):
            raise ValueError(f"a method must be a Method or a text such as 'sac+aes'; got {type(part).__name__}")
        if method in methods:
            raise ValueError(f"duplicate method: {part}")
        methods.append(method)
    if not methods:
        raise ValueError("a study needs at least one method")
    return tuple(methods)


def parse_names(kind: str, option: str, given: Any) -> dict[str, Any]:
    """Objects by name, from comma-separated names, ``all``, or objects."""
    registered = KINDS[kind].registered
    if isinstance(given, str):
        everything = [name for name, entry in registered.items() if getattr(entry, "in_all", True)]
        parts: list[Any] = everything if given == "all" else _listed(given)
    else:
        parts = list(given) if several(given) else [given]
    if not parts:
        raise ValueError(f"{option} needs at least one name; registered: {listed(sorted(registered))}")
    entries = [find(kind, part) for part in parts]
    names = [part if isinstance(part, str) else _name(kind, part) for part in parts]
    if len(set(names)) != len(names):
        raise ValueError(f"{option} has duplicate names: '{','.join(names)}'")
    return dict(zip(names, entries, strict=True))


def _name(kind: str, entry: Any) -> str:
    try:
        return name_of(kind, entry)
    except ValueError:  # of a notebook cell
        return getattr(entry, "name", None) or getattr(getattr(entry, "value", entry), "__name__", kind)


def parse_seeds(seeds: Any) -> tuple[int, ...]:
    """``1:5`` (both ends included), ``1,4,7`` or a mix of the two; a number n means 1 to n.

    >>> parse_seeds("1:3,10"), parse_seeds(2)
    ((1, 2, 3, 10), (1, 2))
    """
    if isinstance(seeds, str):
        text = seeds
    elif several(seeds):
        text = ",".join(str(typed(int, seed, "each of seeds")) for seed in seeds)
    else:
        text = f"1:{typed(Count, seeds, 'seeds')}"
    found: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        try:
            low, high = int(first), int(last if colon else first)
        except ValueError:
            raise ValueError(f"seeds must look like 1:5 or 1,2,7; got '{text}'") from None
        if low < 0 or high < low or high > LARGEST_SEED:
            raise ValueError(f"seeds must be between 0 and {LARGEST_SEED}, ranges from low to high; got '{part}'")
        if len(found) + high - low >= _MOST_SEEDS:
            raise ValueError(f"at most {_MOST_SEEDS} seeds go into one study; got '{text}'")
        found += range(low, high + 1)
    if len(set(found)) != len(found):
        raise ValueError(f"every seed may be given once; got '{text}'")
    return tuple(found)


def seeds_text(seeds: Sequence[int]) -> str:
    """Text of seeds; consecutive seeds are a range."""
    whole = len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}:{seeds[-1]}" if whole else ",".join(map(str, seeds))


def parse_sweep(axes: Sequence[str] | Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    """`--sweep`: hyper-parameter axes from items such as ``kappa=0.1,1``, or from a mapping.

    ``kappa=0.01:10:7`` has seven values from 0.01 to 10 with equal ratios, rounded to three digits.

    >>> parse_sweep(["kappa=0.1:10:3"])
    {'kappa': (0.1, 1.0, 10.0)}
    """
    if isinstance(axes, Mapping):
        pairs = [*axes.items()]
    else:
        texts = () if isinstance(axes, tuple | list) and not axes else typed(tuple[str, ...], axes, "sweep")
        pairs = [text.partition("=")[::2] for text in texts]
    found: dict[str, tuple[float, ...]] = {}
    for name, values in pairs:
        if name in found:
            raise ValueError(f"--sweep gives '{name}' twice; put all its values into one: {name}=VALUE,VALUE,...")
        try:
            each = _axis(values) if isinstance(values, str) else values
            found[name] = tuple(single(f"'{name}'", value) for value in each)
        except (ValueError, TypeError) as error:
            raise ValueError(f"--sweep takes NAME=VALUE,VALUE,...: {error}") from None
        if not name or not 0 < len(found[name]) == len(set(found[name])):
            raise ValueError(f"--sweep takes NAME=VALUE,VALUE,... and each value of '{name}' once; got '{values}'")
    return found


def _axis(text: str) -> Sequence[Any]:
    """Values of an axis, ``0.1,1`` or ``0.01:10:7``; ValueError for a range that is not LOW:HIGH:COUNT."""
    if ":" not in text:
        return text.split(",")
    ends = [float(part) for part in text.split(":")]
    if len(ends) != 3 or not 0 < ends[0] < ends[1] or ends[2] < 2 or ends[2] != int(ends[2]):
        raise ValueError(f"a range is LOW:HIGH:COUNT with 0 < LOW < HIGH and COUNT at least 2; got '{text}'")
    low, high, count = ends
    return [float(f"{value:.3g}") for value in np.geomspace(low, high, int(count))]


def parse_shares(shares: Any) -> tuple[float, ...]:
    """Shares of a run, ``0.1,1`` or numbers, in ascending order.

    Raises:
      ValueError: one is not a number above 0 and at most 1, or is given twice.
    """
    texts = shares.split(",") if isinstance(shares, str) else shares if several(shares) else [shares]
    found = sorted(single("a share of the run", share) for share in texts)
    if not found or found[0] <= 0 or found[-1] > 1 or len(set(found)) < len(found):
        raise ValueError(f"--shares must be shares of the run, above 0 and at most 1, each once; got {shares}")
    return tuple(found)


def _options(parts: Sequence[str], text: str, kind: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for option in parts:
        name, equals, value = option.partition("=")
        if not equals or name in chosen:
            raise ValueError(f"an option of a {kind} must be NAME=VALUE, each once; got '{option}' in '{text}'")
        chosen[name] = value
    return chosen


def _numbers(what: str, options: Mapping[str, str], allowed: Collection[str] | None = None) -> dict[str, float]:
    """Values of the ``options`` of ``what``; with ``allowed`` None all names are accepted."""
    for option in options:
        if allowed is not None and option not in allowed:
            raise ValueError(f"{what} has no option '{option}'; allowed: {listed(sorted(allowed)) or 'none'}")
    return {option: single(f"option '{option}' of {what}", value) for option, value in options.items()}


def _control(text: str, carrier: str | CarrierSpec) -> Method:
    """Parse ``permuted:blocks=40:of=aes_r+window``; the method is the rest after ``of=``."""
    head, given, of = text.partition(":of=")
    name, *rest = head.split(":")
    if not given or re.split(r"[:+]", of)[0] in CONTROLS:
        raise ValueError(f"control '{name}' needs the method it is made of, as in {name}:of=aes_r; got '{text}'")
    known = ("blocks", "of") if name == "permuted" else ("of",)
    options = _numbers(f"control '{name}'", _options(rest, text, "control"), known)
    blocks: Any = options.get("blocks", BLOCKS)
    return Method(carrier, control=Control(name, parse_method(of, carrier), blocks if blocks % 1 else int(blocks)))


def _split(text: str, registered: Collection[str]) -> tuple[str, list[str]]:
    """Split a part into name and options; ``module:attribute`` is one name, also as the value of an option."""
    name, *parts = text.split(":")
    options: list[str] = []
    for part in parts:
        if "=" in part or (not options and name in registered):
            options.append(part)
        elif options:
            options[-1] += ":" + part
        else:
            name += ":" + part
    return name, options


def _listed(names: str | Iterable[str]) -> list[str]:
    parts = names.split(",") if isinstance(names, str) else names
    return [part.strip() for part in parts if part.strip()]
