"""The options of `aesjax run` as classes: one that is parsed, in groups, and one with all of them side by side."""

import dataclasses
import shlex
from collections.abc import Collection, Mapping
from typing import Annotated, Any

import tyro

from experiments.study.declared import CLUSTER, OPTIONS, OUTPUT, RUNTIME, SHELL, SIZES, TASK, WHAT, Option

ALL: dict[str, Option] = {"out": RUNTIME["out"], **SHELL, **OPTIONS, **RUNTIME}
_FLAGS = {"start": "warm_start"}  # where the shell's word is another one
_GROUPS = (WHAT, SIZES, TASK, OUTPUT, CLUSTER)


def _absent(name: str, option: Option) -> Any:
    """Default at the shell: of options that a named study sets, none."""
    return None if name in ("patterns", "seeds", "preset") else option.default


Run: Any = dataclasses.make_dataclass(
    "Run", [(name, Any, dataclasses.field(default=_absent(name, option))) for name, option in ALL.items()]
)
Run.__doc__ = "The options of `aesjax run`, those that were not given at their defaults."


def grouped(name: str, about: str, options: Mapping[str, Option], more: type | None = None) -> type:
    """The class that tyro parses: a field per group, flags without its name, ``more`` for a command's own options."""
    groups = []
    for title in _GROUPS:
        own = [_argument(n, option) for n, option in options.items() if option.group == title]
        if own:
            group = dataclasses.make_dataclass(title, own)
            group.__doc__ = ""
            groups.append((title.replace(" ", "_"), group, dataclasses.field(default_factory=group)))
    if more is not None:
        groups.insert(0, ("own", more, dataclasses.field(default_factory=more)))
    made = dataclasses.make_dataclass(name, groups)
    made.__doc__ = about
    return tyro.conf.configure(tyro.conf.OmitArgPrefixes)(made)


def _argument(name: str, option: Option) -> tuple[str, Any, Any]:
    flag = _FLAGS.get(name, name).replace("_", "-")
    hint = f"(default: {option.default})" if option.default not in (None, ()) else ""
    if option.type is bool:
        kind: Any = Annotated[bool, tyro.conf.arg(name=flag, help=option.help, help_behavior_hint=hint)]
        return name, kind, dataclasses.field(default=option.default)
    if option.type is tuple:
        argument = tyro.conf.arg(name=flag, help=option.help, metavar=option.metavar)
        kind = Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], argument]
        return name, kind, dataclasses.field(default=())
    default = _absent(name, option)
    kind = Annotated[
        option.type | None if default is None else option.type,
        tyro.conf.arg(name=flag, help=option.help, metavar=option.metavar, help_behavior_hint=hint),
    ]
    return name, kind, dataclasses.field(default=default)


def flat(parsed: Any, into: Any = Run) -> Any:
    """The options of a parsed class, side by side in the fields of ``into``."""
    groups = [getattr(parsed, each.name) for each in dataclasses.fields(parsed)]
    return into(**{field.name: getattr(group, field.name) for group in groups for field in dataclasses.fields(group)})


def typed(options: Any, besides: Collection[str] = ("resume",)) -> list[str]:
    """The words after `aesjax run` of the options that are not at their defaults.

    Args:
      besides: names of options that are left out.
    """
    words = []
    for field in dataclasses.fields(Run):
        value = getattr(options, field.name)
        option = "--" + _FLAGS.get(field.name, field.name).replace("_", "-")
        if value == field.default or field.name in besides:
            continue
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        elif field.name == "sweep":
            words += [word for item in value for word in (option, item)]
        else:
            words += [option, str(value)]
    return words


def command(options: Any, besides: Collection[str] = ("resume",)) -> str:
    """The command line of ``options``."""
    return shlex.join(["aesjax", "run", *typed(options, besides)])
