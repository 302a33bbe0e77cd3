"""What a `config.json` may hold: types and ranges, checked before anything is made of it."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from experiments.study.results import MOST_SEGMENTS, is_count
from experiments.study.store import shortened
from experiments.study.strings import LARGEST_SEED

_MOST_TOGETHER = 100_000  # runs in one program


def _seed(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_SEED


def _number(value: Any) -> bool:
    return type(value) in (int, float) and not math.isnan(value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and bool(value) and all(map(fits, value))


def _dict_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _any_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _setting(value: Any) -> bool:
    """One carrier's settings."""
    parts: Mapping[str, Callable[[Any], bool]] = {
        "num_envs": is_count,
        "base": _number,
        "config": _any_dict,
        "hyper": _dict_of(_number),
        "schedule": _dict_of(_number),
    }
    return (
        isinstance(value, dict)
        and set(parts) <= set(value) <= {*parts, "warmup"}
        and all(fits(value[name]) for name, fits in parts.items())
        and is_count(value.get("warmup", 1))
    )


def _part(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"number", "of"} and all(map(is_count, value.values()))


_NAMES = (_list_of(_text), "a list of names")
_ONE_NAME = (_text, "a name")
_COUNT = (is_count, "a positive whole number")
_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "task": _ONE_NAME,
    "preset": _ONE_NAME,
    "proxy": _ONE_NAME,
    "carriers": _NAMES,
    "schedules": (
        lambda value: _NAMES[0](value) or (isinstance(value, dict) and all(map(_NAMES[0], value.values()))),
        "a list of names, or carriers with such lists",
    ),
    "patterns": _NAMES,
    "seeds": (_list_of(_seed), f"a list of whole numbers from 0 to {LARGEST_SEED}"),
    "steps": _COUNT,
    "evaluations": _COUNT,
    "episodes": _COUNT,
    "segments": (lambda value: is_count(value) and value <= MOST_SEGMENTS, f"a whole number from 1 to {MOST_SEGMENTS}"),
    "replay_capacity": _COUNT,
    "warmup": _COUNT,
    "source": (_or_none(_text), "a name or null"),
    "drift_seed": (_or_none(_seed), f"a whole number from 0 to {LARGEST_SEED}, or null"),
    "sweep": (_dict_of(_list_of(_number)), "names with lists of numbers"),
    "settings": (_dict_of(_setting), "carriers with num_envs, base, config, hyper and schedule"),
    "options": (_any_dict, "an object"),
    "plugins": (_dict_of(_dict_of(_any_dict)), "kinds with names with origins"),
    "controls": (_dict_of(_text), "names with text"),
    "warm_start": (_any_dict, "an object"),
    "observe": (lambda value: value == "drift", "'drift'"),
    "plasticity": (_flag, "true or false"),
    "counterfactual": (_flag, "true or false"),
    "together": _COUNT,
    "part": (_part, "an object of number and of, positive whole numbers"),
}


def parse_part(text: str | None, together: int | None) -> dict[str, int]:
    """``2/4`` of `--part`, the second of four parts; nothing where it is not given.

    Args:
      together: runs that train together, at most.

    Raises:
      ValueError: another form, a ``together`` outside its range, or none for a part.

    >>> parse_part("2/4", 8)
    {'number': 2, 'of': 4}
    """
    if together is not None and not 1 <= together <= _MOST_TOGETHER:
        raise ValueError(f"--together must be between 1 and {_MOST_TOGETHER}; got {together}")
    if text is None:
        return {}
    if together is None:
        raise ValueError("--part needs --together, which fixes how many runs train together in every part")
    number, _, of = text.partition("/")
    if not number.isdecimal() or not of.isdecimal() or not 1 <= int(number) <= int(of):
        raise ValueError(f"--part must look like 2/4, the second of four parts; got '{text}'")
    return {"number": int(number), "of": int(of)}


def check_shape(data: Mapping[str, Any]) -> None:
    """Refuse a configuration whose entries are not of the right kind.

    Raises:
      ValueError: naming the entry, what it holds and what it must be.
    """
    for name, (fits, wanted) in _FIELDS.items():
        if name in data and not fits(data[name]):
            raise ValueError(f"'{name}' must be {wanted}; got {shortened(data[name])}")
    if "part" in data and "together" not in data:
        raise ValueError("'part' needs 'together', which is missing")
    if set(data["settings"]) != set(data["carriers"]):
        raise ValueError(f"'settings' must be those of its carriers; got {shortened(sorted(data['settings']))}")
    if isinstance(data["schedules"], dict) and set(data["schedules"]) != set(data["carriers"]):
        raise ValueError(f"'schedules' must be those of its carriers; got {shortened(sorted(data['schedules']))}")
    for carrier, own in data["settings"].items():
        if data["steps"] % (own["num_envs"] * data["evaluations"]):
            raise ValueError(
                f"'steps' must be a multiple of {own['num_envs']} environments of '{carrier}' times "
                f"{data['evaluations']} evaluations; got {data['steps']}"
            )
