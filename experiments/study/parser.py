"""From strings to typed objects, for the shell, TOML, `config.json` and Python: `parse`, and its inverse `text_of`.

A method is ``SCHEDULE[:OPTION=VALUE]...`` with ``+ADAPTATION[:OPTION=VALUE]...`` for everything else that its signal
adjusts, and ``CARRIER+`` before it where no carriers are listed beside it.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, SupportsIndex

from aesjax.adaptations import ADAPTATIONS, CONTROLS
from aesjax.schedules import SCHEDULES
from agents.common.spec import whole
from experiments.study.declared import OPTIONS, flag
from experiments.study.method import BASELINE, BLOCKS, COUPLING, Control, Method, replace_fields, single
from experiments.study.plugins import KINDS, Find, find, name_of

LARGEST_SEED = 2**32 - 1
_MOST_SEEDS = 10_000
_MOST_VALUES = 1000  # of all axes of a sweep together
_TEXTS = ("proxy", "source", "signal", "label")  # options whose values are no numbers


def parse(given: Mapping[str, Any], find: Find = find) -> dict[str, Any]:
    """Options of a study with typed objects in place of strings; typed objects and other options stay as they are.

    Args:
      given: by name, any of them. ``carriers`` with ``schedules`` (of all carriers, or by carrier) become ``methods``.
      find: looks names up; `experiments.study.plugins.known` for those of a file.

    Raises:
      ValueError, UnknownNameError: one sentence that names the value and what is allowed.

    >>> parse({"seeds": "1:3", "sweep": ["kappa=0.1,1"], "patterns": "abrupt", "steps": 4000})
    {'seeds': (1, 2, 3), 'sweep': {'kappa': (0.1, 1.0)}, 'patterns': ('abrupt',), 'steps': 4000}
    """
    found = dict(given)
    if "carriers" in found:
        carriers = parse_names("carrier", "--carriers", found.pop("carriers"), find)
        schedules: Any = found.pop("schedules")
        found["methods"] = tuple(
            method
            for carrier in carriers
            for method in parse_methods(
                schedules[carrier] if isinstance(schedules, Mapping) else schedules, carrier, find
            )
        )
    if "patterns" in found:
        found["patterns"] = parse_names("pattern", "--patterns", found["patterns"], find)
    for name, parsed in _PARSERS.items():
        if name in found:
            found[name] = parsed(found[name])
    return found


def parse_method(text: str, carrier: str, find: Find = find) -> Method:
    """A method such as ``aes:proxy=td_mean:lambda_max=inf:coupling=1`` or ``aes_r+window:power=1`` on a carrier.

    A part without ``=`` belongs to the name before it: ``mypkg.mymodule:factory:decay=0.99``.

    Raises:
      UnknownNameError: unknown schedule, proxy or adaptation. ValueError: something that is no option.

    >>> parse_method("aes:lambda_max=0.5+window:power=1", "sac").values
    (('lambda_max', 0.5), ('window.power', 1.0))
    """
    if re.split(r"[:+]", text)[0] in CONTROLS:
        return _control(text, carrier, find)
    first, *parts = re.split(r"\+(?=[A-Za-z_])", text)  # not the sign of an exponent
    schedule, options = _split(first, (BASELINE, *SCHEDULES))
    chosen = _options(options, text, "schedule")
    if schedule != BASELINE:
        find("schedule", schedule)
    adaptations = []
    for part in parts:
        name, given = _split(part, ADAPTATIONS)
        factory, typed = find("adaptation", name), _options(given, text, "adaptation")
        for option in typed:
            if option not in factory.options:
                raise ValueError(f"adaptation '{name}' has no option '{option}'; allowed: {', '.join(factory.options)}")
        own = {o: single(f"option '{o}' of adaptation '{name}'", value) for o, value in typed.items()}
        adaptations.append(factory(**own))
    proxy, source, signal, label = (chosen.pop(name, None) for name in _TEXTS)
    for kind, name in (("proxy", proxy), ("schedule", signal)):
        if name is not None:
            find(kind, name)
    numbers = {o: single(f"option '{o}' of schedule '{schedule}'", value) for o, value in chosen.items()}
    coupling = numbers.pop(COUPLING, 0.0)
    if coupling not in (0.0, 1.0):
        raise ValueError(f"option 'coupling' is 0 or 1; got '{chosen[COUPLING]}' in '{text}'")
    method = Method(
        carrier, schedule, adaptations,
        label=label, signal=signal, coupling=bool(coupling), proxy=proxy, source=source, options=numbers,
    )  # fmt: skip
    return replace_fields(method, typed=text)


def text_of(method: Method) -> str:
    """The string that stands for a method, without its carrier; the inverse of `parse_method`, to the letter.

    >>> text_of(parse_method("aes_c+recent+refresh:threshold=3", "sac"))
    'aes_c+recent+refresh:threshold=3'
    """
    if method.typed is not None:
        return method.typed
    if method.control is not None:
        name, of, blocks = method.control
        return f"{name}{'' if blocks == BLOCKS else f':blocks={blocks}'}:of={text_of(of)}"
    words = [method.schedule, *(f"{n}={getattr(method, n)}" for n in _TEXTS if getattr(method, n) is not None)]
    words += [f"{option}={number(value)}" for option, value in method.values if "." not in option]
    parts = [":".join(words)]
    for name in method.adaptations:
        own = [f"{o.rpartition('.')[2]}={number(v)}" for o, v in method.values if o.rpartition(".")[0] == name]
        parts.append(":".join([name, *own]))
    return "+".join(parts)


def number(value: float) -> str:
    """The shortest text from which the same number is read."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def parse_methods(schedules: str | Sequence[str], carrier: str, find: Find = find) -> tuple[Method, ...]:
    """`--schedules` on a carrier: names, `baseline`, or all of both, each with its options."""
    everything = (BASELINE, *SCHEDULES)
    texts = everything if schedules == "all" else _listed(schedules)
    if not texts:
        raise ValueError(f"--schedules needs at least one name; registered: {', '.join(sorted(everything))}")
    methods = tuple(parse_method(text, carrier, find) for text in texts)
    if len(set(texts)) != len(texts):
        raise ValueError(f"--schedules names something twice: '{','.join(texts)}'")
    return methods


def parse_method_with_carrier(text: str) -> Method:
    """A method with its carrier, ``sac``, ``sac+aes`` or ``ppo+fixed+refresh``; without a schedule the carrier's own.

    >>> text_of(parse_method_with_carrier("sac+recent"))
    'baseline+recent'
    """
    carrier, _, rest = text.partition("+")
    find("carrier", carrier)
    first = re.split(r"[:+]", rest)[0]
    if not rest or first in ADAPTATIONS:
        rest = f"{BASELINE}+{rest}" if rest else BASELINE
    return parse_method(rest, carrier)


def parse_names(kind: str, option: str, names: Any, find: Find = find) -> tuple[str, ...]:
    """Registered names, each found so that an unknown one is answered with the nearest known one, or objects."""
    registered = KINDS[kind].registered
    if not isinstance(names, str):
        several = isinstance(names, Iterable) and not hasattr(names, "_fields")  # a pattern is a named tuple
        parts = names if several else [names]
        names = [part if isinstance(part, str) else name_of(kind, part) for part in parts]
    everything = (name for name, entry in registered.items() if getattr(entry, "in_all", True))
    found = tuple(everything if names == "all" else _listed(names))
    if not found:
        raise ValueError(f"{option} needs at least one name; registered: {', '.join(sorted(registered))}")
    for name in found:
        find(kind, name)
    if len(set(found)) != len(found):
        raise ValueError(f"{option} names something twice: '{','.join(found)}'")
    return found


def parse_seeds(seeds: str | SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    """``1:5`` (both ends included), ``1,4,7`` or a mix of the two; a number n means 1 to n.

    >>> parse_seeds("1:3,10"), parse_seeds(2)
    ((1, 2, 3, 10), (1, 2))
    """
    if isinstance(seeds, str):
        text = seeds
    elif isinstance(seeds, SupportsIndex):
        if operator.index(seeds) < 1:
            raise ValueError(f"seeds must be at least 1, how many there are; got {seeds}")
        text = f"1:{operator.index(seeds)}"
    elif isinstance(seeds, Iterable):
        text = ",".join(str(operator.index(seed) if isinstance(seed, SupportsIndex) else seed) for seed in seeds)
    else:
        text = str(seeds)
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


def parse_sweep(axes: Sequence[str] | Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    """`--sweep`: hyper-parameter axes from items such as ``kappa=0.1,1``, or from a mapping."""
    found: dict[str, tuple[float, ...]] = {}
    given: Mapping[str, Sequence[Any]] = axes if isinstance(axes, Mapping) else _axes(axes)
    for name, values in given.items():
        try:
            found[name] = tuple(single(f"'{name}'", value) for value in values)
        except (ValueError, TypeError) as error:
            raise ValueError(f"--sweep takes NAME=VALUE,VALUE,...: {error}") from None
        if not found[name]:
            raise ValueError(f"--sweep takes NAME=VALUE,VALUE,...; '{name}' has no value")
        if len(found[name]) > _MOST_VALUES:
            raise ValueError(
                f"--sweep takes at most {_MOST_VALUES} values of a name; got {len(found[name])} of '{name}'"
            )
        if len(set(found[name])) != len(found[name]):
            raise ValueError(f"--sweep gives a value of '{name}' twice; got {', '.join(map(str, values))}")
    if (product := math.prod(map(len, found.values()))) > _MOST_VALUES:
        raise ValueError(f"--sweep may combine at most {_MOST_VALUES} settings; got {product}")
    return found


def _axes(items: Sequence[str]) -> dict[str, list[str]]:
    axes: dict[str, list[str]] = {}
    for item in items:
        name, equals, values = item.partition("=")
        if not equals or not name or not values:
            raise ValueError(f"--sweep takes NAME=VALUE,VALUE,...; got '{item}'")
        if name in axes:
            raise ValueError(f"--sweep gives '{name}' twice; put all its values into one: {name}=VALUE,VALUE,...")
        axes[name] = values.split(",")
    return axes


def parse_block(given: str | Sequence[int] | None) -> tuple[int, int] | None:
    """``1:40`` of `--block`, or its two numbers: the first and the last run.

    >>> parse_block("1:40")
    (1, 40)
    """
    if given is None:
        return None
    with suppress(TypeError, ValueError):
        first, last = map(int, given.split(":") if isinstance(given, str) else given)
        if 1 <= first <= last:
            return first, last
    raise ValueError(f"--block must look like 1:40, the first and the last run; got '{given}'")


def parse_objects(given: Any) -> tuple[Method, ...]:
    """Methods, given as objects or as strings with carriers, each once."""
    parts = [given] if isinstance(given, Method | str) else list(given)
    methods = [parse_method_with_carrier(part) if isinstance(part, str) else part for part in parts]
    for at, method in enumerate(methods):
        if not isinstance(method, Method):
            raise ValueError(f"a method is a Method or a string such as 'sac+aes'; got {type(method).__name__}")
        if method in methods[:at]:
            raise ValueError(f"the methods name something twice: {parts[at]}")
    if not methods:
        raise ValueError("a study needs at least one method")
    return tuple(methods)


def _options(parts: Sequence[str], text: str, kind: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for option in parts:
        name, equals, value = option.partition("=")
        if not equals or name in chosen:
            raise ValueError(f"an option of a {kind} is NAME=VALUE, each given once; got '{option}' in '{text}'")
        chosen[name] = value
    return chosen


def _control(text: str, carrier: str, find: Find) -> Method:
    """``permuted:blocks=40:of=aes_r+window``: all that follows ``of=`` is the method."""
    head, given, of = text.partition(":of=")
    name, *rest = head.split(":")
    if not given or re.split(r"[:+]", of)[0] in CONTROLS:
        raise ValueError(f"control '{name}' needs the method it is made of, as in {name}:of=aes_r; got '{text}'")
    options = _options(rest, text, "control")
    allowed = ("blocks", "of") if name == "permuted" else ("of",)
    for option in options:
        if option not in allowed:
            raise ValueError(f"control '{name}' has no option '{option}'; allowed: {', '.join(allowed)}")
    blocks = single(f"option 'blocks' of control '{name}'", options.get("blocks", BLOCKS))
    if blocks < 2 or blocks % 1:
        raise ValueError(f"option 'blocks' of control '{name}' is a whole number, at least 2; got {blocks:g}")
    method = Method(carrier, "fixed", control=Control(name, parse_method(of, carrier, find), int(blocks)))
    return replace_fields(method, typed=text)


def _split(text: str, registered: Collection[str]) -> tuple[str, list[str]]:
    """Name and options; ``module:attribute`` is one name, also as the value of an option."""
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


def _whole(name: str, value: Any) -> int | None:
    return None if value is None else whole(f"--{flag(name)}", value, None)


_PARSERS: dict[str, Callable[[Any], Any]] = {
    **{name: partial(_whole, name) for name, option in OPTIONS.items() if option.type is int},
    "methods": parse_objects,
    "seeds": parse_seeds,
    "sweep": parse_sweep,
    "block": parse_block,
    "channels": lambda names: None if names is None else tuple(_listed(names)),
}
