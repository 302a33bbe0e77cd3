"""`aesjax run`: train a study and report it"""

import contextlib
import dataclasses
import os
import shlex
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from experiments.cli.errors import DIVERGED, DONE, INTERRUPTED, WRONG, Output, Refusal, refusing, say
from experiments.study.declared import (
    CLUSTER,
    OPTIONS,
    OUTPUT,
    RUNTIME,
    SHELL,
    SIZES,
    TASK,
    WHAT,
    Option,
    flag,
    in_words,
)
from experiments.study.devices import start_jax

if TYPE_CHECKING:
    from experiments.study.config import StudyConfig


ALL: dict[str, Option] = {"out": RUNTIME["out"], **SHELL, **OPTIONS, **RUNTIME}
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
    default = _absent(name, option)
    how: dict[str, Any] = {} if option.type is bool else {"metavar": option.metavar}
    if option.type is not tuple:
        how["help_behavior_hint"] = f"(default: {option.default})" if option.default is not None else ""
    kind: Any = tyro.conf.UseAppendAction[tuple[str, ...]] if option.type is tuple else option.type
    marks = [tyro.conf.arg(name=flag(name), help=option.help, **how)]
    if kind in (int, float):
        marks.append(_number(kind, option.metavar))
    return name, Annotated[kind | None if default is None else kind, *marks], dataclasses.field(default=default)


def _number(kind: type[int] | type[float], metavar: str) -> Any:
    """How a number is read: 100000, 100_000 or 1e5; a whole one where ``kind`` is int."""

    def read(words: list[str]) -> int | float:
        with contextlib.suppress(ValueError, OverflowError):
            value = int(words[0]) if kind is int and not set(words[0]) & set(".eE") else float(words[0])
            if kind is float or kind(value) == value:
                return kind(value)
        raise ValueError(f"it must be a {'whole ' if kind is int else ''}number; got '{words[0]}'")

    return tyro.constructors.PrimitiveConstructorSpec(1, metavar, read, lambda value: True, lambda value: [str(value)])


def flat(parsed: Any, into: Any = Run) -> Any:
    """The options of a parsed class, side by side in the fields of ``into``."""
    groups = [getattr(parsed, each.name) for each in dataclasses.fields(parsed)]
    return into(**{field.name: getattr(group, field.name) for group in groups for field in dataclasses.fields(group)})


def typed(options: Any, besides: Collection[str] = ("resume",)) -> list[str]:
    """The words after `aesjax run` of the options that are not at their defaults nor named in ``besides``."""
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Run) if field.name not in besides}
    return in_words({name: value for name, value in given.items() if value != _absent(name, ALL[name])})


def command(options: Any, besides: Collection[str] = ("resume",)) -> str:
    """The command line of ``options``."""
    return shlex.join(["aesjax", "run", *typed(options, besides)])


_LONGEST_WAIT = 86_400.0  # seconds between checkpoints
_ABOUT = "Train a sweep: every carrier under every schedule, pattern and seed, then write the report."
RunOptions: Any = grouped("RunOptions", _ABOUT, ALL)


def execute(parsed: Any) -> int:
    """Train, write the report, and name the runs that diverged."""
    return train(flat(parsed))


def train(options: Any) -> int:
    """`execute` of a `Run`."""
    from experiments.report.live import writers
    from experiments.study import store
    from experiments.study import train as training
    from experiments.study.driver import Interrupted
    from experiments.study.folder import begun, check_place, claim, readable
    from experiments.study.forecast import forecast, lines_of
    from experiments.study.prepare import notes_of, prepare

    with refusing(), ExitStack() as stack:
        if options.dry_run and options.resume:
            raise ValueError("--dry-run plans a study from its beginning; leave out --resume")
        if not 0.0 <= options.checkpoint_seconds <= _LONGEST_WAIT:  # false for nan, too
            raise ValueError(
                f"--checkpoint-seconds must be between 0 and {_LONGEST_WAIT:g}; got {options.checkpoint_seconds:g}"
            )
        if options.sim_python is not None:  # of this machine, and so no part of the study's configuration
            from envs.bridge.names import PYTHON

            os.environ[PYTHON] = str(options.sim_python.expanduser())
        if options.out is None:
            if options.resume:
                raise ValueError("--resume continues the study in --out; name its folder")
            options = dataclasses.replace(options, out=_new_folder(options.task))
        start_jax(options.devices, options.compiled, options.out if options.resume else None)
        alone = options.resume and not typed(options, besides=RUNTIME)
        config = begun(options.out) if alone else configured(options)
        prepared = prepare(config)  # refusals come before a folder is claimed
        if options.dry_run:
            check_place(options.out)
            print(*lines_of(config, forecast(config, prepared)), sep="\n")
            return DONE
        on_rows = stack.enter_context(writers(options.tensorboard, options.wandb))
        study = claim(config, options.out, resume=options.resume)
        release = stack.pop_all()
    Output.place = options.out.absolute() / store.MESSAGES
    on = f"Continue with:\n  {again(options, complete=not readable(config))}"
    with release, study.owner:
        for line in notes_of(config):
            print(line, flush=True)
        if options.resume and (options.out / store.MANIFEST).exists():
            print("the training has ended; nothing is trained again", flush=True)
        try:
            outcome = training.train(
                study,
                prepared=prepared,
                checkpoint_seconds=options.checkpoint_seconds,
                command=command(dataclasses.replace(options, out=Path("DIR"))),
                quiet=options.quiet,
                on_rows=on_rows,
            )
        except training.Refused as error:
            raise Refusal(str(error)) from None
        except training.Stopped as error:
            say(f"{error}\nProgress is saved in the latest checkpoint. {on}")
            return INTERRUPTED
        except (Interrupted, KeyboardInterrupt) as where:
            say(f"interrupted; {str(where) or 'the latest checkpoint, if there is one, is unchanged'}. {on}")
            return INTERRUPTED
        except store.Unwritable as error:
            say(f"{error}\nThe latest checkpoint, if there is one, is unchanged. {on}")
            return WRONG
    if options.report:
        from experiments.report import write_report

        try:
            with refusing():
                print(f"report: {write_report(options.out)}")
        except KeyboardInterrupt:
            folder = shlex.quote(str(options.out))
            say(f"interrupted; the training is complete. For the report:\n  aesjax report {folder}")
            return INTERRUPTED
    if outcome.faults:
        say(f"the physics engine gave up on {outcome.faults} simulations, which were reset; see manifest.json")
    for line in outcome.diverged:
        say(line)
    return DIVERGED if outcome.diverged else DONE


def _new_folder(task: str) -> Path:
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{task.replace(':', '-').replace('/', '-')}"
    return Path("runs") / name


def configured(options: Any) -> "StudyConfig":
    """The configuration that was typed; a named study stands for the options that were not."""
    from experiments.session import Study
    from experiments.study.named import STUDIES
    from experiments.study.parser import parse

    if options.config is not None:
        if more := typed(options, besides={*RUNTIME, "config"}):
            raise ValueError(f"--config {options.config} is the complete study; leave out {more[0]}")
        return Study.from_file(options.config).config
    named = STUDIES[options.study]._asdict()
    chosen = named | {name: value for name, value in dataclasses.asdict(options).items() if value is not None}
    fields = {field.name for field in dataclasses.fields(Study)}
    return Study(**{name: value for name, value in parse(chosen).items() if name in fields}).config


def again(options: Any, *, complete: bool) -> str:
    """The command that continues this one, without the options that the folder holds unless it shall be complete."""
    which = set() if complete else {field.name for field in dataclasses.fields(options)} - set(RUNTIME)
    return command(options, {*which, "resume"}) + " --resume"
